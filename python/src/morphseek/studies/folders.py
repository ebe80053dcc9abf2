"""A data folder with images and labels."""

from __future__ import annotations

from pathlib import Path

from .. import errors
from ..images.formats import SEARCHED, ending_of


def find_file(root: Path, name: str, kind: str) -> Path:
    """Return the path of a pair's entry below the data folder; kind is images or labels."""
    places = _places(name, kind)
    if (path := _first(root, places)) is not None:
        return path
    if not places:
        raise errors.InputUnreadableError(
            f"{root / name}: where its label map is cannot be told; a path in a pair list must"
            ' have "images" in it, which "labels" replaces'
        )
    raise errors.InputUnreadableError(
        f"{root / places[0]}: there is no such file, with or without {', '.join(SEARCHED)}; check"
        " the data folder and the pair list"
    )


def has_labels(root: Path, image: str) -> bool:
    """Whether a pair's entry has a label map below the data folder."""
    return _first(root, _places(image, "labels")) is not None


def find_labels(root: Path, image: str) -> Path | None:
    """Return the label map of an image, a path below a data folder; None where there is none."""
    return _first(root, label_names(image))


def _places(name: str, kind: str) -> list[str]:
    if "/" not in name:
        return [f"{kind}/{name}"]
    return label_names(name) if kind == "labels" else [name]


def _first(root: Path, places: list[str]) -> Path | None:
    """Return the first of several files that there is, with or without an ending or another one;
    refuse two that differ in it.
    """
    for name in places:
        if (root / name).exists():
            return root / name
        stem = root / name.removesuffix(ending_of(name, SEARCHED))
        found = [path for e in ("", *SEARCHED) if (path := stem.with_name(stem.name + e)).exists()]
        if found:
            check_alone(found)
            return found[0]
    return None


def check_alone(paths: list[Path]) -> None:
    """Refuse files that differ in their endings alone: nothing says which one is meant."""
    if len(paths) > 1:
        raise errors.InputUnreadableError(
            f"{paths[0]}: beside it lies {paths[1].name}; write the ending, or remove one of them"
        )


def label_names(image: str) -> list[str]:
    """Return where the label map of an image may be, the likeliest place first: "labels" replaces
    "images" in the name of one folder, the innermost first; of all; and of the file, too.

    >>> label_names("CT_images/imagesTr/a.nii")
    ['CT_images/labelsTr/a.nii', 'CT_labels/imagesTr/a.nii', 'CT_labels/labelsTr/a.nii']
    """
    parts = image.split("/")
    folders = [k for k in range(len(parts) - 1) if "images" in parts[k]]
    choices = [*([k] for k in reversed(folders)), folders, [*folders, len(parts) - 1]]
    names = (
        "/".join(
            part.replace("images", "labels") if k in chosen else part
            for k, part in enumerate(parts)
        )
        for chosen in choices
    )
    return [name for name in dict.fromkeys(names) if name != image]
