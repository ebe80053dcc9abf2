"""The progress bar of a run."""

from __future__ import annotations

import time


class Bar:
    """Shows progress, iterations per second and time left by rich; silent if not wanted."""

    def __init__(self, total: int, done: int, shown: bool):
        self.shown = shown
        if shown:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self.first, self.start = done, time.monotonic()

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                refresh_per_second=2,
            )
            self.task = self.bar.add_task("training", total=total, completed=done)

    def __enter__(self) -> None:
        if self.shown:
            self.bar.start()

    def __exit__(self, *error: object) -> None:
        if self.shown:
            self.bar.stop()

    def update(self, iteration: int, logs: dict[str, float], val: dict[str, float]) -> None:
        if self.shown:
            rate = (iteration - self.first) / max(time.monotonic() - self.start, 1e-9)
            text = f"{rate:.2f} iterations/s  loss {logs['loss']:.4f}"
            if "val_segmentation_dice" in val:
                text += f"  val segmentation Dice {100 * val['val_segmentation_dice']:.2f}"
            elif val:
                dice = f"  val Dice {100 * val['val_dice']:.2f}" if "val_dice" in val else "  val"
                text += f"{dice}  NJD {val['val_njd_percent']:.3f} %"
            self.bar.update(self.task, completed=iteration, description=text)
