"""A data folder with images and labels."""

from __future__ import annotations

from pathlib import Path

from .. import errors
from ..images.formats import SEARCHED


def find_file(root: Path, name: str, kind: str) -> Path:
    """Return the path of a pair's entry below the data folder; kind is "images" or "labels". See
    :func:`evaluate`.

    Examples
    --------
    >>> os.makedirs("data/images")
    >>> _ = Path("fixed.nii.gz").rename("data/images/fixed.nii.gz")
    >>> cohort.find_file(Path("data"), "fixed", "images").as_posix()
    'data/images/fixed.nii.gz'
    """
    if "/" in name:
        if kind == "labels" and "images" not in name:
            raise errors.InputUnreadableError(
                f"{root / name}: where its label map is cannot be told; a path in a pair list must"
                ' have "images" in it, which "labels" replaces'
            )
        base = root / (name if kind == "images" else name.replace("images", "labels", 1))
    else:
        base = root / kind / name
    for suffix in ("", *SEARCHED):
        path = base.with_name(base.name + suffix)
        if path.exists():
            return path
    raise errors.InputUnreadableError(
        f"{base}: there is no such file, with or without {', '.join(SEARCHED)}; check the data"
        " folder and the pair list"
    )
