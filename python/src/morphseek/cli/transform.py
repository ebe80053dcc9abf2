"""morphseek transform: compose, invert, convert, jacobian and show"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from .._formats import NAMES
from ._command import app, command, together
from .options import PATH, json_option, option, out_file, reference_option, stage_option
from .output import Reply, aligned, reply

if TYPE_CHECKING:
    from ..transforms import Transform

_FILE = click.argument("transform", type=PATH, metavar="TRANSFORM")
_written = together(
    out_file(
        help="File to write; for ants and greedy also what the names of a matrix and a field begin"
        " with."
    ),
    reference_option,
    option("--moving", type=PATH, help="The moving image, for formats that count from its corner."),
    option(
        "--format", "format", type=click.Choice(NAMES),
        help="Format to write; by default the ending of --out-file says it.",
    ),
    json_option,
)  # fmt: skip


@app.group("transform", no_args_is_help=True)
def group() -> None:
    """Compose, invert, convert and look at transforms of any program."""


def load(paths: Sequence[Path], inverse: bool = False, stage: str = "final") -> Transform:
    """Return the transform of files, in the order in which a fixed image's point meets them."""
    from ..transforms import Transform

    whole = Transform.read(paths[0])
    if stage != "final":
        if len(paths) > 1:
            raise errors.InvalidArgumentError(
                f"--stage {stage} is of one transform, and {len(paths)} are given; write each"
                " one's with morphseek transform convert first"
            )
        whole = whole.stage(stage)
    for path in paths[1:]:
        whole = Transform.read(path) @ whole
    return whole.inverse() if inverse else whole


def inputs(paths: Sequence[Path], **others: Path | None) -> dict[str, Path | None]:
    """Return the files that an output must not replace, by what messages call them."""
    from ..transforms.formats import split

    named = {
        f"transform {i + 1}" if len(paths) > 1 else "transform": Path(split(path)[0])
        for i, path in enumerate(paths)
    }
    return {**named, **others}


def _save(
    transform: Transform, sources: Sequence[Path], out: Path, format: str | None,
    reference: Path | None, moving: Path | None,
) -> Reply:  # fmt: skip
    from ..images.sidecars import check_apart
    from ..transforms import formats

    names = formats.outputs(out, format)
    check_apart(out.parent, names, inputs(sources, reference=reference, moving=moving))
    files = [str(file) for file in transform.save(out, format, reference, moving)]
    return reply({"out": files}, files)


@command(
    "compose",
    click.argument("transforms", type=PATH, nargs=-1, required=True, metavar="TRANSFORM..."),
    _written,
    group=group,
)
def compose(transforms: tuple[Path, ...], **how: Any) -> Reply:
    """Make one transform of several, in the order in which a point of the fixed image goes through
    them.

    FILE@inverse is the inverse of a file.
    """
    return _save(load(transforms), transforms, **how)


@command("invert", _FILE, _written, group=group)
def invert(transform: Path, **how: Any) -> Reply:
    """Write the inverse of a transform, from the moving to the fixed space.

    --reference is then the image that was the moving one.
    """
    return _save(load([transform], True), [transform], **how)


@command(
    "convert",
    _FILE,
    _written,
    option(
        "--input-format", type=click.Choice(NAMES),
        help="Format of TRANSFORM, where its ending and content do not say it.",
    ),
    stage_option,
    group=group,
)  # fmt: skip
def convert(transform: Path, input_format: str | None, stage: str, **how: Any) -> Reply:
    """Write a transform in another program's format.

    The ending of --out-file says it, or --format. Formats of FSL and FreeSurfer ask for --reference
    and --moving.
    """
    from ..transforms import Transform

    whole = Transform.read(transform, input_format, how["reference"], how["moving"])
    return _save(whole.stage(stage), [transform], **how)


@command(
    "jacobian",
    _FILE,
    out_file(help="Image to write."),
    reference_option,
    option("--log", is_flag=True, help="Write the natural logarithm; NaN where the map folds."),
    json_option,
    group=group,
)
def jacobian(transform: Path, out: Path, reference: Path | None, log: bool) -> Reply:
    """Write the Jacobian determinant of a transform as an image: above 1 where the moving image is
    larger.
    """
    import numpy as np

    from .. import images
    from ..images.sidecars import check_apart
    from ..transforms.transform import target_grid

    check_apart(out.parent, [out.name], inputs([transform], reference=reference))
    whole = load([transform])
    grid = target_grid(whole, reference)
    values = whole.jacobian(reference)
    facts = {
        "out": str(out),
        "min": float(values.min()),
        "max": float(values.max()),
        "njd_percent": float(100 * (values < 0).mean()),
    }
    if log:
        values = np.log(np.where(values > 0, values, np.nan)).astype(np.float32)
    images.write(out, images.Image.on_grid(values, grid))
    span = f"{facts['min']:.3f} to {facts['max']:.3f}"
    rows = [("determinant", span), ("folding (NJD)", f"{facts['njd_percent']:.4f} %")]
    return reply(facts, [str(out), *aligned(rows)])


@command("show", _FILE, reference_option, json_option, group=group)
def show(transform: Path, reference: Path | None) -> Reply:
    """Say what a transform's file holds: kind, parts, grid, displacements and folds.

    A file that cannot be used, such as one that is cut short, 2-D, singular or holds NaN, is an
    error with the reason.
    """
    from ..transforms import Transform
    from ..transforms.summary import rows

    whole = Transform.read(transform)
    if whole.grid is None and reference is None and not whole.is_linear:
        raise errors.InvalidArgumentError(
            f"{whole.name} holds no grid to measure it on; give the fixed image as reference"
        )
    facts = whole.summary(reference)
    return reply(facts, aligned([("file", str(transform)), *rows(facts)]))
