"""morphseek demo"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ._command import command
from .options import common_options, option, out_folder
from .output import Reply, say, summary_reply

if TYPE_CHECKING:
    from ..result import Registration


@command(
    "demo",
    out_folder(default="morphseek-demo", required=False),
    option(
        "--size", type=click.IntRange(32, 256), default=96,
        help="Voxels of the fixed image along each axis.",
    ),
    common_options("full"),
)  # fmt: skip
def demo(out: Path, size: int, progress: bool, **how: Any) -> Reply:
    """Register a made-up pair with a known answer: an MR-like and a CT-like torso, different in
    pose, size, grid and shape.
    """
    from .. import phantom
    from ..studies.pair import register_into

    started = time.perf_counter()
    pair = phantom.make_pair(size)
    if progress:
        seconds = time.perf_counter() - started
        text = f"made fixed {pair.fixed!r}, moving {pair.moving!r} in {seconds:.1f} s"
        say(text, to_errors=True)  # no result

    def error_to_truth(result: Registration) -> dict[str, Any]:
        truth = pair.errors(result)
        errors = {f"tre_{when}_mm": truth[when]["mean_mm"] for when in ("before", "after")}
        return {**errors, "truth": truth}

    summary = register_into(
        out, pair.fixed, pair.moving, fixed_labels=pair.fixed_labels,
        moving_labels=pair.moving_labels, label_names=phantom.LABELS, extra=error_to_truth,
        title="the demonstration pair: a CT-like torso onto an MR-like one", progress=progress,
        **how,
    )  # fmt: skip
    return summary_reply(summary, out)
