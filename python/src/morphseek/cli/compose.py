"""morphseek compose, invert, convert, jacobian and check"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import errors
from .._formats import NAMES
from .._plain import plain
from ._app import app, reported
from .options import PATH, json_option, out_folder
from .output import print_rows
from .transforms import inputs, loaded, moving_option, reference_option, stage_option, to_option

_FILES = click.argument("transforms", type=PATH, nargs=-1, required=True, metavar="TRANSFORM...")
_FILE = click.argument("transform", type=PATH, metavar="TRANSFORM")
_OUT = out_folder(
    required=True,
    help="File to write; for ants and greedy also what the names of a matrix and a field begin"
    " with.",
)


def _save(
    transform: Any,
    sources: Sequence[Path],
    out: Path,
    to: str | None,
    reference: Path | None,
    moving: Path | None,
    as_json: bool,
) -> None:
    from .. import images
    from ..transforms import formats

    names = formats.outputs(out, to)
    images.check_apart(out.parent, names, inputs(sources, reference=reference, moving=moving))
    files = transform.save(out, to, reference, moving)
    if as_json:
        print(json.dumps({"out": [str(file) for file in files]}))
    else:
        for file in files:
            print(plain(str(file)))


@app.command()
@_FILES
@_OUT
@reference_option
@moving_option
@to_option
@json_option
def compose(
    transforms: tuple[Path, ...],
    out: Path,
    reference: Path | None,
    moving: Path | None,
    to: str | None,
    as_json: bool,
) -> None:
    """Make one transform of several, in the order in which a point of the fixed image goes through
    them.

    FILE@inverse is the inverse of a file.
    """
    with reported(as_json):
        _save(loaded(transforms), transforms, out, to, reference, moving, as_json)


@app.command()
@_FILE
@_OUT
@reference_option
@moving_option
@to_option
@json_option
def invert(
    transform: Path,
    out: Path,
    reference: Path | None,
    moving: Path | None,
    to: str | None,
    as_json: bool,
) -> None:
    """Write the inverse of a transform, from the moving to the fixed space.

    --reference is then the image that was the moving one.
    """
    with reported(as_json):
        _save(loaded([transform], True), [transform], out, to, reference, moving, as_json)


@app.command()
@_FILE
@_OUT
@reference_option
@moving_option
@click.option(
    "--from", "format", type=click.Choice(NAMES),
    help="Format of the file, where its ending and content do not say it.",
)  # fmt: skip
@stage_option
@to_option
@json_option
def convert(
    transform: Path,
    out: Path,
    reference: Path | None,
    moving: Path | None,
    format: str | None,
    stage: str,
    to: str | None,
    as_json: bool,
) -> None:
    """Write a transform in another program's format.

    The ending of --out says it, or --to. Formats of FSL and FreeSurfer ask for --reference and
    --moving.
    """
    with reported(as_json):
        from ..transforms import Transform

        found = Transform.read(transform, format, reference, moving).stage(stage)
        _save(found, [transform], out, to, reference, moving, as_json)


@app.command()
@_FILE
@_OUT
@reference_option
@click.option("--log", is_flag=True, help="Write the natural logarithm; NaN where the map folds.")
@json_option
def jacobian(transform: Path, out: Path, reference: Path | None, log: bool, as_json: bool) -> None:
    """Write the Jacobian determinant of a transform as an image: above 1 where the moving image is
    larger.
    """
    with reported(as_json):
        import numpy as np

        from .. import images
        from ..transforms.transform import target_grid

        images.check_apart(out.parent, [out.name], inputs([transform], reference=reference))
        found = loaded([transform])
        grid = target_grid(found, reference)
        values = found.jacobian(reference)
        said = {
            "out": str(out),
            "min": float(values.min()),
            "max": float(values.max()),
            "njd_percent": float(100 * (values < 0).mean()),
        }
        if log:
            values = np.log(np.where(values > 0, values, np.nan)).astype(np.float32)
        images.write(out, images.Image.on_grid(values, grid))
        if as_json:
            print(json.dumps(said))
        else:
            print(plain(str(out)))
            print_rows(
                [
                    ("determinant", f"{said['min']:.3f} to {said['max']:.3f}"),
                    ("folding (NJD)", f"{said['njd_percent']:.4f} %"),
                ]
            )


@app.command()
@_FILE
@reference_option
@json_option
def check(transform: Path, reference: Path | None, as_json: bool) -> None:
    """Say what a transform's file holds: kind, parts, grid, displacements and folds.

    A file that cannot be used, such as one that is cut short, 2-D, singular or holds NaN, is an
    error with the reason.
    """
    with reported(as_json):
        from ..transforms import Transform
        from ..transforms.summary import rows

        found = Transform.read(transform)
        if found.grid is None and reference is None and not found.is_linear:
            raise errors.InvalidArgumentError(
                f"{found.name} holds no grid to measure it on; give the fixed image as reference"
            )
        said = found.summary(reference)
        if as_json:
            print(json.dumps(said))
        else:
            print_rows([("file", str(transform)), *rows(said)])
