"""The images that a template is made of, and their label maps, from whatever names them."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import errors, images
from .._engine.bindings import Doubles
from .._grid import Grid
from .._tables import is_frame, read_records
from ..images import named
from ..scoring.labels import check_labels

FEWEST = 2
_TABLES = (".csv", ".tsv", ".txt")


@dataclasses.dataclass(frozen=True)
class Source:
    """One image: what its files are called, what messages call it, and what is known of it."""

    id: str
    name: str
    image: Any
    labels: Any
    grid: Grid
    center: Doubles
    """Of its mass, LPS mm."""
    window: tuple[float, float]
    """Two percentiles of its intensities, which become 0 and 1."""

    def read(self) -> images.Image:
        """Return the image with intensities from 0 to 1 between its percentiles, and beyond."""
        found = images.read(self.image, self.name)
        low, high = self.window
        return found.like((found.intensities()[0] - low) / np.float32(high - low))

    def read_labels(self) -> images.Image:
        """Return the label map."""
        return images.read_on(self.labels, self.grid, f"labels of {self.name}")


def read_sources(given: Any, labels: Any) -> list[Source]:
    """Return the images of a list, of a table, or of paths, each looked at once.

    Raises
    ------
    morphseek.errors.MorphSeekError
        With the name of the image: it cannot be read, is 2-D, shows nothing, or its label map does
        not lie on its grid; or there are fewer than two, or another number of label maps.
    """
    if isinstance(given, (list, tuple)) and len(given) == 1 and _is_table(given[0]):
        given = given[0]
    rows = _table(given) if _is_table(given) else _listed(given, labels)
    if _is_table(given) and labels is not None:
        raise errors.InvalidArgumentError(
            "labels: the table of the images says where the label maps are; leave labels out, or"
            " list the images instead"
        )
    if len(rows) < FEWEST:
        said = ": " + ", ".join(str(_name(row[0], k)) for k, row in enumerate(rows)) if rows else ""
        raise errors.InvalidArgumentError(
            f"template: {len(rows)} image{'' if len(rows) == 1 else 's'}{said}; a mean needs two"
            " or more"
        )
    found: list[Source] = []
    taken: set[str] = set()
    for number, (image, labels_of, said) in enumerate(rows):
        stem = _identifier(said or _stem(image, number))
        id, further = stem, 2
        while id.casefold() in taken:
            id, further = f"{stem}-{further}", further + 1
        taken.add(id.casefold())
        found.append(looked_at(id, _name(image, number), image, labels_of))
    return found


def _is_table(given: Any) -> bool:
    return is_frame(given) or (
        isinstance(given, (str, os.PathLike)) and Path(given).suffix.lower() in _TABLES
    )


def _table(source: Any) -> list[tuple[Any, Any, str]]:
    """Return image, labels and id of every row; paths are relative to the file."""
    table = read_records(source, "images", [("image",)], ("labels", "id"))
    folder = Path() if is_frame(source) else Path(source).parent
    with_labels = any("labels" in cells for _, cells in table.rows)
    found = []
    for place, row in table.rows:
        if with_labels and "labels" not in row:
            raise table.table.refuse(" has no labels; give every image one, or none", place)
        labels = named.beside(folder, row["labels"]) if with_labels else None
        found.append((named.beside(folder, row["image"]), labels, row.get("id", "")))
    return found


def _listed(given: Any, labels: Any) -> list[tuple[Any, Any, str]]:
    if images.convert.is_image(given) or not isinstance(given, Iterable):
        said = given if isinstance(given, (str, os.PathLike)) else type(given).__name__
        raise errors.InvalidArgumentError(
            f"template: {said} is one image; give a list of two or more, or a table (CSV) with the"
            " column image"
        )
    sources = list(given)
    if labels is None:
        return [(image, None, "") for image in sources]
    if isinstance(labels, (str, os.PathLike)):
        maps: Sequence[Any] = [_beside(Path(labels), image) for image in sources]
    else:
        maps = list(labels)
    if len(maps) != len(sources):
        raise errors.InvalidArgumentError(
            f"labels: {len(maps)} label maps for {len(sources)} images; give one for each, in the"
            f" same order (the last one is {_name(maps[-1], len(maps) - 1) if maps else 'missing'})"
        )
    return [(image, of, "") for image, of in zip(sources, maps)]


def _beside(folder: Path, image: Any) -> Path:
    """Return the file in a folder of label maps that is called like an image."""
    if not folder.is_dir():
        raise errors.InputUnreadableError(
            f"labels: {folder} is no folder; give one with a label map for each image, under the"
            " image's name, or a list of label maps"
        )
    if not isinstance(image, (str, os.PathLike)):
        raise errors.InvalidArgumentError(
            "labels: a folder has label maps for files; give a list for images in memory"
        )
    path = folder / Path(image).name
    if not path.exists():
        raise errors.InputUnreadableError(
            f"labels: there is no {path} for the image {image}; label maps have their images' names"
        )
    return path


def _name(source: Any, number: int) -> str:
    if isinstance(source, (str, os.PathLike)):
        return str(source)
    return f"image {number}"


def _stem(source: Any, number: int) -> str:
    if isinstance(source, (str, os.PathLike)):
        return Path(source).name.split(".")[0]
    return f"image-{number:04}"


def _identifier(name: str) -> str:
    """Return a name as part of a file's."""
    return re.sub(r"[^\w-]", "_", name).encode()[:80].decode(errors="ignore") or "_"


def looked_at(id: str, name: str, source: Any, labels: Any) -> Source:
    """Return an image with what is known of it."""
    image = _read(source, name)
    if 1 in image.array.shape:
        raise errors.ThinVolumeError(
            f"template: {name} is a slice; a template is made of volumes: leave it out"
        )
    values, (low, high) = image.intensities()
    if not high > low:
        if not float(values.max()) > float(values.min()):
            raise errors.ConstantVolumeError(
                f"template: {name} shows nothing: every voxel has the same value; leave it out"
            )
        low, high = float(values.min()), float(values.max())
    weights = np.clip(values, low, high) - low
    total = float(weights.sum(dtype=np.float64))
    index = [
        float(weights.sum(axis=tuple({0, 1, 2} - {axis}), dtype=np.float64) @ np.arange(n)) / total
        for axis, n in zip((2, 1, 0), values.shape[::-1])
    ]
    found = Source(
        id, name, source, labels, image.grid, (image.index_to_physical @ [*index, 1.0])[:3],
        (low, high),
    )  # fmt: skip
    if labels is not None:
        map_ = _read(labels, _name(labels, 0), image.grid)
        check_labels(map_)
        if not image.same_grid(map_):
            raise errors.GridMismatchError(
                f"template: the label map {map_.name} ({map_!r}) is not on the grid of its image,"
                f" {name} ({image!r}); resample it onto it, with nearest neighbours"
            )
    return found


def _read(source: Any, name: str, grid: Grid | None = None) -> images.Image:
    """Return an image; what goes wrong has its name."""
    try:
        found = (
            images.read(source, name)
            if grid is None
            else images.read_on(source, grid, f"label map {name}")
        )
    except errors.MorphSeekError as error:
        if name in str(error):
            raise
        raise type(error)(f"{error} ({name})") from None
    return dataclasses.replace(found, name=name)
