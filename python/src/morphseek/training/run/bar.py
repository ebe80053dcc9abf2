"""The progress bar of a run."""

from __future__ import annotations

import time

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Bar(Progress):
    """Shows progress, iterations per second and time left; nothing if not wanted."""

    def __init__(self, total: int, done: int, shown: bool):
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            refresh_per_second=2,
            disable=not shown,
        )
        self._first, self._start = done, time.monotonic()
        self._run = self.add_task("training", total=total, completed=done)

    def show(self, iteration: int, logs: dict[str, float], val: dict[str, float]) -> None:
        """Show an iteration, with the scores of the last validation."""
        rate = (iteration - self._first) / max(time.monotonic() - self._start, 1e-9)
        text = f"{rate:.2f} iterations/s  loss {logs['loss']:.4f}"
        if "val_segmentation_dice" in val:
            text += f"  val segmentation Dice {100 * val['val_segmentation_dice']:.2f}"
        elif val:
            dice = f"  val Dice {100 * val['val_dice']:.2f}" if "val_dice" in val else "  val"
            text += f"{dice}  NJD {val['val_njd_percent']:.3f} %"
        self.update(self._run, completed=iteration, description=text)
