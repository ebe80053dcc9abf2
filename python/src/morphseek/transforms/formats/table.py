"""The table of formats."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ... import errors, images
from ..._files import output_folder, readable
from ..._formats import NAMES
from ..._grid import Grid
from ..._itk import HDF5
from ...images.dicom_headers import is_dicom
from ...images.formats import ending_of
from ..files import text_of
from . import dicom, elastix, field, fsl, greedy, itk, lta, x5
from .job import FIELDS, Content, Export, TransformFile, grid_of


class Format(NamedTuple):
    """A format by its name."""

    name: str
    read: Callable[[TransformFile], Content]
    write: Callable[[Export], None]
    bends: bool
    """Whether it holds a deformation."""
    endings: tuple[str, ...]
    """Endings of the file to write; the first format with an ending has it by default."""
    prefix: tuple[str, ...] = ()
    """Suffixes of the matrix and the field written when the output is a prefix (ANTs, greedy)."""
    asks: tuple[str, ...] = ()
    """Images that it cannot do without."""


def _either(of_matrix: Callable[[Any], Any], of_field: Callable[[Any], Any]) -> Any:
    """Return what reads or writes matrices in one way, and files of vectors in another."""

    def act(file: TransformFile | Export) -> Any:
        is_field = file.path.name.lower().endswith(field.ENDINGS)
        return (of_field if is_field else of_matrix)(file)

    return act


FORMATS = (
    Format("itk", itk.read, itk.write, True, itk.ENDINGS),
    Format("field", field.read, field.write, True, field.ENDINGS),
    Format("field-ras", field.read, field.write_ras, True, (".nii", ".nii.gz")),
    Format("spm", field.read, field.write_spm, True, (".nii", ".nii.gz")),
    Format("ants", _either(itk.read, field.read), _either(itk.write, field.write), True,
           (".mat", ".nii.gz"), ("0GenericAffine.mat", "1Warp.nii.gz")),
    Format("fsl", fsl.read, fsl.write, True, (".mat", ".nii.gz"),
           asks=("reference", "moving")),
    Format("greedy", _either(greedy.read, field.read), _either(greedy.write, field.write), True,
           (".mat", ".txt", ".nii.gz"), ("_affine.mat", "_warp.nii.gz")),
    Format("lta", lta.read, lta.write, False, (".lta",),
           asks=("reference", "moving")),
    Format("elastix", elastix.read, elastix.write, False, elastix.ENDINGS[:1]),
    Format("x5", x5.read, x5.write, True, (".x5",)),
    Format("dicom", dicom.read, dicom.write, True, dicom.ENDINGS),
)  # fmt: skip
_BY_NAME = {each.name: each for each in FORMATS}
#: Endings that say what a file is, whatever is in it.
_ENDINGS = {
    "lta": (".lta", ".xfm"), "x5": (".x5",), "field": field.ENDINGS, "dicom": dicom.ENDINGS,
    "itk": (*HDF5, ".tfm"),
}  # fmt: skip


def split(
    path: str | os.PathLike[str], format: str | None = None
) -> tuple[str | os.PathLike[str], bool, str | None]:
    """Return path, whether it is inverted, and format: ``a.mat@greedy@inverse`` says all."""
    text, inverse = os.fspath(path), False
    if "@" not in text:  # as of nearly all files, which a study asks by the hundred thousand
        return path, inverse, format
    while not os.path.exists(text):
        text, at, word = text.rpartition("@")
        if not at or word not in ("inverse", *NAMES):
            return path, False, format
        inverse, format = (not inverse, format) if word == "inverse" else (inverse, word)
        path = type(path)(text) if isinstance(path, Path) else text
    return path, inverse, format


def files_of(path: Path) -> list[Path]:
    """Return the files that a transform is of: itself, and those that elastix's begins with."""
    return elastix.chain(path) if ending_of(path, elastix.ENDINGS) else [path]


def load(
    path: str | os.PathLike[str],
    format: str | None = None,
    reference: images.ImageLike | None = None,
    moving: images.ImageLike | None = None,
) -> Content:
    """Read a file, of the format that its content says where none is given."""
    path = Path(path)
    with readable(path, "transform"):
        kind = _known(format) if format is not None else _found(path)
        grids = grid_of(reference, "reference"), grid_of(moving, "moving")
        return kind.read(TransformFile(path, *grids, format or ""))


def save(
    content: Content,
    name: str,
    path: str | os.PathLike[str],
    format: str | None,
    grid: Grid | None,
    reference: images.ImageLike | None,
    moving: images.ImageLike | None,
) -> list[Path]:
    """Write a transform, a field on `grid` where that is given; return the files."""
    path = Path(path)
    kind = _known(format) if format is not None else _by_ending(path)
    ending = ending_of(path, kind.endings)
    if not ending and (path.suffix or not kind.prefix):
        or_none = ", or no ending" if kind.prefix else ""
        raise errors.OutputUnwritableError(
            f"{path}: the format {kind.name} is written to {', '.join(kind.endings)}{or_none};"
            " give the file another ending"
        )
    job = Export(content, name, path, ending, grid, reference, moving)
    if not kind.bends and not job.is_linear:
        raise errors.InvalidArgumentError(
            f"{path}: {kind.name} holds a rigid or affine transform alone, and {name} bends;"
            f" write a deformation as one of {', '.join(FIELDS)}"
        )
    for what, lies in (("reference", job.own_grid), ("moving", job.moving_grid)):
        if what in kind.asks and lies is None:
            image = {"reference": "fixed image as reference", "moving": "moving image"}[what]
            raise errors.InvalidArgumentError(
                f"{path}: the format {kind.name} counts from the images' corners; give the {image}"
            )
    if not ending:
        return _save_pair(job, kind)
    kind.write(job)
    return [path]


def _save_pair(job: Export, kind: Format) -> list[Path]:
    """Write a matrix and the field that acts before it, together or not at all."""
    files = []
    with output_folder(job.path.parent) as folder:
        for content, suffix in zip(job.split(), kind.prefix):
            files.append(job.path.with_name(job.path.name + suffix))
            place, ending = folder / files[-1].name, ending_of(suffix, kind.endings)
            kind.write(Export(content, job.name, place, ending, None, job.images[0]))
    return files


def outputs(path: Path, format: str | None) -> list[str]:
    """Return the names of the files that a transform may be written to."""
    kind = _known(format) if format is not None else _by_ending(path)
    if ending_of(path, kind.endings):
        return [path.name]
    return [path.name + name for name in kind.prefix]


def _known(name: str) -> Format:
    errors._check_choice("format", name, NAMES)
    return _BY_NAME[name]


def _by_ending(path: Path) -> Format:
    for each in FORMATS:
        if ending_of(path, each.endings):
            return each
    raise errors.OutputUnwritableError(
        f"{path}: its ending is that of no transform; use .h5, .tfm, .nii.gz, .nrrd, .lta, .x5 or"
        f" .dcm, or say the format: {', '.join(NAMES)}"
    )


def _found(path: Path) -> Format:
    """Return the format of a file by its ending and its content."""
    for name, endings in _ENDINGS.items():
        if ending_of(path, endings):
            return _BY_NAME[name]
    if is_dicom(path):
        return _BY_NAME["dicom"]
    try:
        head = text_of(path, 1 << 16)
    except (OSError, ValueError):
        head = ""  # the reader of ITK's files says why
    if re.search(r"^\s*\(Transform |^Transform\s*=", head, re.M):
        return _BY_NAME["elastix"]
    if greedy.rows(head) is not None:
        raise errors.InputUnreadableError(
            f"transform: {path} is a matrix that does not say whose: give the format, greedy (RAS"
            " mm, fixed to moving) or fsl (FLIRT's, with both images)"
        )
    return _BY_NAME["itk"]
