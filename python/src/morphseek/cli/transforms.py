"""What the commands that work with transforms share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .._formats import NAMES
from .options import PATH

if TYPE_CHECKING:
    from ..transforms import Transform

reference_option = click.option(
    "--reference", "-r", type=PATH,
    help="Image whose grid the output gets: the fixed one. Where it is left out, the transform's"
    " own, if it holds one.",
)  # fmt: skip
moving_option = click.option(
    "--moving", type=PATH, help="The moving image, for formats that count from its corner."
)
to_option = click.option(
    "--to", "to", type=click.Choice(NAMES),
    help="Format to write; by default the ending of --out says it.",
)  # fmt: skip
stage_option = click.option(
    "--stage", type=click.Choice(["initial", "final"]), default="final",
    help="initial: of a transform that bends, the rigid or affine part alone, where it stands"
    " apart. final: all of it.",
)  # fmt: skip


def loaded(paths: Sequence[Path], inverse: bool = False, stage: str = "final") -> Transform:
    """Return the transform of files in the order in which a point of the fixed image goes through
    them.
    """
    from .. import errors
    from ..transforms import Transform

    whole = Transform.read(paths[0])
    if stage != "final":
        if len(paths) > 1:
            raise errors.InvalidArgumentError(
                f"--stage {stage} is of one transform, and {len(paths)} are given; write each"
                " one's with morphseek convert first"
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
