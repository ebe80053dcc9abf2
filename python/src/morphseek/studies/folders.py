"""A data folder with images and labels."""

from __future__ import annotations

from pathlib import Path

from .. import errors
from ..images.formats import SEARCHED


def find_file(root: Path, name: str, kind: str) -> Path:
    """Return the path of a pair's entry below the data folder; kind is images or labels."""
    if (path := _find(root, name, kind)) is not None:
        return path
    base = root / name if "/" in name else root / kind / name
    if "/" in name and kind == "labels":
        if "images" not in name:
            raise errors.InputUnreadableError(
                f"{root / name}: where its label map is cannot be told; a path in a pair list must"
                ' have "images" in it, which "labels" replaces'
            )
        base = root / label_names(name)[0]
    raise errors.InputUnreadableError(
        f"{base}: there is no such file, with or without {', '.join(SEARCHED)}; check the data"
        " folder and the pair list"
    )


def has_labels(root: Path, image: str) -> bool:
    """Whether a pair's entry has a label map below the data folder."""
    return _find(root, image, "labels") is not None


def _find(root: Path, name: str, kind: str) -> Path | None:
    if "/" in name and kind == "labels":
        return find_labels(root, name)
    base = root / name if "/" in name else root / kind / name
    paths = (base.with_name(base.name + suffix) for suffix in ("", *SEARCHED))
    return next((path for path in paths if path.exists()), None)


def find_labels(root: Path, image: str) -> Path | None:
    """Return the label map of an image, a path below a data folder; None where there is none."""
    for name in label_names(image):
        stem = next((name.removesuffix(e) for e in SEARCHED if name.endswith(e)), name)
        for path in (root / each for each in (name, *(stem + e for e in SEARCHED))):
            if path.exists():
                return path
    return None


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
