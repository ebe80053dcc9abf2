"""The log of a run: one line per iteration in log.jsonl, and TensorBoard."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from torch import Tensor

from ..._shared import locked, output_error, parse, without_nan, write_text

NAME = "log.jsonl"


class RunLog:
    """The log files, which a run's first process writes. They are one run's: its folder is locked
    until they are closed.
    """

    def __init__(self, out: Path, iteration: int):
        self._open = contextlib.ExitStack()
        self._open.enter_context(locked(out, 0.0))
        _forget_after(out, iteration)
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(out / "tensorboard"), purge_step=iteration + 1)
        self._lines = open(out / NAME, "a", encoding="utf-8")
        self._open.callback(self._writer.close)
        self._open.callback(self._lines.close)

    def write(
        self, iteration: int, updates: int, seconds: float, logs: dict[str, float], rate: float
    ) -> None:
        """Log an iteration; every tenth one and validations also go to TensorBoard."""
        row = {"iteration": iteration, "updates": updates, "seconds": round(seconds, 3)}
        row |= without_nan({k: round(v, 6) for k, v in logs.items()})
        try:
            self._lines.write(json.dumps(row, allow_nan=False) + "\n")
            self._lines.flush()
        except OSError as error:
            raise output_error(error, self._lines.name) from None
        if iteration % 10 == 0 or "val_njd_percent" in logs:
            for k, v in logs.items():
                self._writer.add_scalar(k, v, iteration)
            self._writer.add_scalar("learning_rate", rate, iteration)

    def picture(self, image: Tensor, iteration: int) -> None:
        """Write the slices of :func:`.validate.picture` to TensorBoard."""
        self._writer.add_image("fixed moving warped |f-m| |f-w|", image, iteration)

    def close(self) -> None:
        self._open.close()


def _forget_after(out: Path, iteration: int) -> None:
    """Drop the lines of iterations that will be repeated, or are a killed run's."""
    if (out / NAME).exists():
        lines = (out / NAME).read_text(encoding="utf-8").splitlines()
        rest = [
            line for line in lines if line.endswith("}") and parse(line)["iteration"] <= iteration
        ]
        write_text(out / NAME, "".join(line + "\n" for line in rest))


def histories(
    run: str | Path, keys: tuple[str, ...] = ("sigma", "mu_abs", "kl", "soft_dice", "loss")
) -> dict[str, list[float]]:
    """Return columns of a run's ``log.jsonl``, and ``iteration``."""
    rows = [parse(line) for line in (Path(run) / NAME).read_text(encoding="utf-8").splitlines()]
    # Values that were not finite are null in the file.
    return {
        k: [r[k] for r in rows if all(r.get(x) is not None for x in keys)]
        for k in ("iteration", *keys)
    }
