"""The log of a run: one line per iteration in log.jsonl, and TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor

from ... import _files
from ..._json import without_nan

NAME = "log.jsonl"


class RunLog:
    """The log files, which a run's first process writes."""

    def __init__(self, out: Path, visit: int):
        if visit == 0:
            # Left by a run that was killed before its first checkpoint and now starts again.
            for name in (NAME, "best.pt"):
                (out / name).unlink(missing_ok=True)
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(out / "tensorboard"), purge_step=visit + 1)
        self._lines = open(out / NAME, "a")

    def write(
        self, visit: int, updates: int, seconds: float, logs: dict[str, float], rate: float
    ) -> None:
        """Log an iteration; every tenth one and validations also go to TensorBoard."""
        row = {"visit": visit, "updates": updates, "seconds": round(seconds, 3)}
        row |= without_nan({k: round(v, 6) for k, v in logs.items()})
        self._lines.write(json.dumps(row, allow_nan=False) + "\n")
        self._lines.flush()
        if visit % 10 == 0 or "val_njd_percent" in logs:
            for k, v in logs.items():
                self._writer.add_scalar(k, v, visit)
            self._writer.add_scalar("learning_rate", rate, visit)

    def picture(self, image: Tensor, visit: int) -> None:
        """Write the slices of :func:`.validate.picture` to TensorBoard."""
        self._writer.add_image("fixed moving warped |f-m| |f-w|", image, visit)

    def close(self) -> None:
        self._writer.close()
        self._lines.close()


def forget_after(out: Path, visit: int) -> None:
    """Drop the lines of iterations that will be repeated."""
    if (out / NAME).exists():
        lines = (out / NAME).read_text().splitlines()
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["visit"] <= visit]
        _files.write_text(out / NAME, "".join(line + "\n" for line in kept))


def histories(
    run: str | Path, keys: tuple[str, ...] = ("sigma", "mu_abs", "kl", "soft_dice", "loss")
) -> dict[str, list[float]]:
    """Return columns of a run's ``log.jsonl``, and ``visit``, the iteration."""
    rows = [json.loads(line) for line in (Path(run) / NAME).read_text().splitlines()]
    # Values that were not finite are null in the file.
    return {
        k: [r[k] for r in rows if all(r.get(x) is not None for x in keys)] for k in ("visit", *keys)
    }
