"""BrainGlobe's atlases where its client keeps them: TIFF files up to its version 2, OME-Zarr since.

The client is not asked: it downloads what it does not find. Its OME-Zarr is read by the library
that it reads them by (extra: ``pip install morphseek[brainglobe]``).
"""

from __future__ import annotations

import configparser
import csv
import difflib
import functools
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from .. import errors
from .._features import needing
from ._words import listed

#: Where an axis of the array goes that begins at a side: LPS.
_FROM = {
    "a": (0, 1, 0), "p": (0, -1, 0), "s": (0, 0, -1), "i": (0, 0, 1), "r": (1, 0, 0),
    "l": (-1, 0, 0),
}  # fmt: skip
_ORIENTATION = "asr"  # of every atlas but an old one that says otherwise
_SIDES = {"left": 1, "right": 2}  # as the files of hemispheres have them
_TIFF = {"annotation": "annotation.tiff", "hemispheres": "hemispheres.tiff", "": "reference.tiff"}
_ZARR = {
    "annotation": "annotations_compressed.ome.zarr",
    "hemispheres": "hemispheres.ome.zarr",
    "": "template.ome.zarr",
}


_Reader = Callable[[Path, str], np.ndarray]  # of a file, and what messages call it


class _Atlas(NamedTuple):
    """A version of an atlas on the disk."""

    version: tuple[int, ...]
    listing: Path
    """metadata.json among TIFF files, manifest.json of OME-Zarr."""

    @property
    def is_zarr(self) -> bool:
        return self.listing.name == "manifest.json"


def home() -> Path:
    """Return the client's folder, which need not be there."""
    folder = os.environ.get("BRAINGLOBE_CONFIG_DIR")
    config = configparser.ConfigParser(interpolation=None)
    try:
        place = Path(folder) if folder else Path.home() / ".config" / "brainglobe"
        config.read(place / "bg_config.conf", encoding="utf-8")
        return Path(config["default_dirs"]["brainglobe_dir"])
    except (OSError, KeyError, ValueError, configparser.Error):
        return Path.home() / ".brainglobe"


def find(
    label: str, atlas: str, keys: dict[str, str], word: str
) -> tuple[list[Path], Callable[[], dict[int, str]], Callable[..., tuple[Any, ...]]]:
    """Return an image's files, what reads the names of its labels, and what reads its voxels,
    spacing and direction, given what messages call it and a reader of files. Messages begin with
    ``label``; the rest is what a name says, ``brainglobe:atlas:key-value:word``.
    """
    side, version = keys.get("hemisphere", ""), keys.get("version", "")
    if (
        keys.keys() - {"hemisphere", "version"}
        or word not in ("", "annotation")
        or side not in ("", *_SIDES)
    ):
        raise errors.InvalidArgumentError(
            f"{label}: after a BrainGlobe atlas there may be annotation,"
            " hemisphere-left or hemisphere-right, and version-NUMBER"
        )
    there = [one for name, one in _atlases(atlas) if name == atlas]
    fits = [a for a in there if not version or a.version == _numbers(version)]
    if not fits:
        names = sorted({name for name, _ in _atlases()})
        known = listed([f"version-{'.'.join(map(str, a.version))}" for a in there])
        near = known or listed(difflib.get_close_matches(atlas, names) or names)
        raise errors.InputUnreadableError(
            f"{label} is not in BrainGlobe's folder, {home()}"
            f"{f' (it has {near})' if near else ''}; {_fetch(atlas)}"
        )
    chosen = max(fits)
    facts = _read_listing(chosen.listing, label)
    need = [word] + (["hemispheres"] if side and not facts["symmetric"] else [])
    stored = [_stored(atlas, chosen, facts, kind, label) for kind in need]

    def image(name: str, read: _Reader) -> tuple[Any, ...]:
        voxels, *halves = (voxels_of(name, read) for _, voxels_of in stored)
        for array in (voxels, *halves):
            if array.shape != tuple(facts["shape"]):
                raise errors.InputUnreadableError(
                    f"{label} has shape {array.shape} and not {facts['shape']}, as"
                    f" {chosen.listing} says; fetch it again"
                )
        if side:
            of = halves[0] if halves else _halves(facts)
            voxels = np.where(of == _SIDES[side], voxels, np.zeros((), voxels.dtype))
        direction = np.array([_FROM[letter] for letter in facts["orientation"][::-1]]).T
        spacing = tuple(micrometres / 1000 for micrometres in facts["resolution"][::-1])
        return voxels, spacing, tuple(direction.ravel())

    files = [file for listed_files, _ in stored for file in listed_files]
    return [*files, chosen.listing], functools.partial(_label_names, chosen, facts), image


def _atlases(name: str = "*") -> list[tuple[str, _Atlas]]:
    """Return the names and versions that are there, of one atlas or all."""
    old = home().glob(f"{name}_v*/metadata.json")
    new = (home() / "brainglobe-atlasapi" / "atlases").glob(f"{name}/*/manifest.json")
    known = [(*path.parent.name.rpartition("_v")[::2], path) for path in old]
    known += [(path.parent.parent.name, path.parent.name, path) for path in new]
    return [(atlas, _Atlas(_numbers(v), path)) for atlas, v, path in known if _numbers(v)]


def _numbers(version: str) -> tuple[int, ...]:
    """Return 1.2 or 1_2 as numbers; none of what is no version."""
    whole = re.fullmatch(r"\d+([._]\d+)*", version)
    return tuple(int(part) for part in re.split("[._]", version)) if whole else ()


def _fetch(atlas: str) -> str:
    """Return how to get an atlas: the client fetches voxels when they are asked for."""
    return (
        "fetch it where there is a network: pip install 'morphseek[brainglobe]', then python -c"
        f' "from brainglobe_atlasapi import BrainGlobeAtlas; atlas = BrainGlobeAtlas({atlas!r});'
        ' atlas.template; atlas.annotation; atlas.hemispheres"'
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8-sig"))


def _read_listing(path: Path, label: str) -> dict[str, Any]:
    """Return what an atlas says of itself, checked."""
    try:
        facts: dict[str, Any] = {"orientation": _ORIENTATION, "symmetric": True}
        facts |= _json(path)
        resolution = [float(number) for number in facts["resolution"]]
        letters = str(facts["orientation"]).lower()
        axes = sorted({"p": "a", "i": "s", "l": "r"}.get(letter, letter) for letter in letters)
        whole = axes == ["a", "r", "s"] and len(resolution) == len(facts["shape"]) == 3
        if not whole or not all(math.isfinite(r) and r > 0 for r in resolution):
            raise ValueError(f"resolution {resolution}, orientation {letters!r}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise errors.InputUnreadableError(
            f"{label}: {path} does not say how the atlas lies: {error!r}; fetch it again"
        ) from None
    return facts | {"orientation": letters, "resolution": resolution}


def _stored(
    atlas_name: str, atlas: _Atlas, facts: Mapping[str, Any], kind: str, label: str
) -> tuple[list[Path], Callable[[str, _Reader], np.ndarray]]:
    """Return the files of an atlas's template, annotation or hemispheres, and what reads them."""
    if not atlas.is_zarr:
        tiff = atlas.listing.with_name(_TIFF[kind])
        if not tiff.is_file() or not tiff.stat().st_size:
            raise _not_fetched(atlas_name, tiff, label)
        return [tiff], lambda name, read: read(tiff, name)
    owner = facts.get("annotation_set")
    if kind == "" and isinstance(owner, dict):
        owner = owner.get("template")
    store = _place(atlas, owner, label) / _ZARR[kind]
    with needing("brainglobe", label):
        from ngff_zarr import from_ngff_zarr
    try:
        scales = from_ngff_zarr(store)
    except Exception as error:  # a reader of foreign files may raise anything
        raise _not_fetched(atlas_name, store, label, f" ({error})") from None
    wanted = [micrometres / 1000 for micrometres in facts["resolution"]]
    for level, dataset in zip(scales.images, scales.metadata.datasets):
        if np.allclose([level.scale[axis] for axis in level.dims[-3:]], wanted):
            folder = store / dataset.path
            # a chunk that is not there would be read as zeros
            chunks = sorted(path for path in folder.glob("c/**/*") if path.is_file())
            if not chunks:
                break
            return [*chunks, folder / "zarr.json"], functools.partial(_compute, level.data, folder)
    raise _not_fetched(atlas_name, store, label)


def _compute(data: Any, folder: Path, name: str, read: _Reader) -> np.ndarray:
    try:
        return np.asarray(data)
    except Exception as error:
        raise errors.InputUnreadableError(
            f"{name}: {folder} cannot be read: {error}; fetch it again"
        ) from None


def _place(atlas: _Atlas, owner: Any, label: str) -> Path:
    """Return the folder that a manifest names, which lies below the atlases'."""
    location = owner.get("location") if isinstance(owner, dict) else None
    inner = PurePosixPath(str(location or "..").lstrip("/"))
    if ".." in inner.parts:
        raise errors.InputUnreadableError(
            f"{label}: {atlas.listing} does not say where the atlas's files are; fetch it again"
        )
    return atlas.listing.parents[3] / inner


def _not_fetched(atlas: str, place: Path, label: str, why: str = "") -> errors.MorphSeekError:
    return errors.InputUnreadableError(
        f"{label} was not fetched: {place} is missing or has no voxels{why}; {_fetch(atlas)}"
    )


def _halves(facts: Mapping[str, Any]) -> np.ndarray:
    """Return the sides of a symmetric atlas, as its client splits it; broadcasts to its shape."""
    letters, shape = facts["orientation"], facts["shape"]
    axis = next(k for k, letter in enumerate(letters) if letter in "rl")
    first, second = (_SIDES["right"], _SIDES["left"])[:: 1 if letters[axis] == "r" else -1]
    sides = np.full(shape[axis], second, np.uint8)
    sides[: round(shape[axis] / 2)] = first
    return sides.reshape([-1 if k == axis else 1 for k in range(3)])


def _label_names(atlas: _Atlas, facts: Mapping[str, Any]) -> dict[int, str]:
    """Return the structures' names; none where the table was not fetched or is none."""
    try:
        if not atlas.is_zarr:
            rows = _json(atlas.listing.with_name("structures.json"))
            return {int(row["id"]): str(row["name"]) for row in rows}
        table = _place(atlas, facts.get("terminology"), "structures") / "terminology.csv"
        cells = csv.DictReader(table.read_text(encoding="utf-8-sig").splitlines())
        return {int(row["identifier"]): row["name"] for row in cells}
    except (errors.InputUnreadableError, OSError, ValueError, KeyError, TypeError, csv.Error):
        return {}
