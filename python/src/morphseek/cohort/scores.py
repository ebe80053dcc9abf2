"""The scores of an evaluation, and its tables."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _files
from .._engine import core
from .._tables import csv_text, data_frame
from ..scoring.labels import LabelScore
from ..verdict import counts
from .listing import INDEX, write_listing

if TYPE_CHECKING:
    from ..report import CohortRow
else:  # typing.get_type_hints asks for the name; the pages' module loads when one is written
    CohortRow = Any

_MEANS = (
    "dice_before",
    "dice_after",
    "dice_check",
    "dice_inverse",
    "hd95_after",
    "volume_error_percent",
    "volume_bias_percent",
    "error_mm",
    "njd_percent",
    "sdlogj",
    "seconds",
    "cpu_seconds",
)
#: What an evaluation leaves in a folder, beside its index and its pages.
FILES = ("results.json", "results.csv")
PAGES = "pair-[0-9][0-9][0-9][0-9]*.html"


@dataclasses.dataclass
class PairScore:
    """One pair of an evaluation; ``error`` says why there are no scores.

    Examples
    --------
    >>> cohort.PairScore("a", "b", dice_after=0.8).error
    ''
    """

    fixed: str
    moving: str
    labels: list[LabelScore] = dataclasses.field(default_factory=list)
    dice_before: float = math.nan
    dice_after: float = math.nan
    hd95_after: float = math.nan
    dice_check: float | None = None
    dice_inverse: float | None = None
    volume_error_percent: float = math.nan
    """Mean over the labels, of absolute values; ``volume_bias_percent``: with their signs."""
    volume_bias_percent: float = math.nan
    verdict: str = ""
    """good, check, failed, or unknown; empty where nothing was registered."""
    error_mm: float = math.nan
    """The verdict's estimate."""
    njd_percent: float = math.nan
    sdlogj: float = math.nan
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    cached: bool = False
    """The registration was done before; ``seconds`` are what it took then, and no part of the
    means.
    """
    error: str = ""
    exit_code: int = 0
    page: str = ""
    """The pair's page, in the folder of pages; empty where none was written."""
    traceback: str = ""
    """Of a defect; empty for errors that :mod:`morphseek.errors` explains."""

    def __str__(self) -> str:
        dice = (
            f"Dice {self.dice_before:.3f} -> {self.dice_after:.3f}"
            if self.labels
            else "no label in common"
        )
        return f"{self.fixed} <- {self.moving}  " + (
            self.error
            or f"verdict {self.verdict}  {dice}  NJD {self.njd_percent:.4f} %  {self.seconds:.1f} s"
        )


@dataclasses.dataclass(repr=False)
class Evaluation:
    """The scores of many pairs.

    Attributes
    ----------
    pairs : list of PairScore
    names : dict
        Label number to name.
    options : dict
        Of the registrations.
    wilcoxon : dict, optional
        Two-sided signed-rank test of the pairs' mean Dice against another run.

    Examples
    --------
    >>> found = cohort.Evaluation([cohort.PairScore("a", "b", dice_after=0.8)], {}, {})
    >>> found.pairs[0].dice_after
    0.8
    """

    pairs: list[PairScore]
    names: dict[int, str]
    options: dict[str, Any]
    wilcoxon: dict[str, Any] | None = None

    def summary(self) -> dict[str, Any]:
        """Return means over the pairs that were scored, the worst pair, and the counts;
        ``unscored`` are those without a common label.

        Examples
        --------
        >>> cohort.Evaluation([cohort.PairScore("a", "b")], {}, {}).summary()["pairs"]
        1
        """
        scored = [p for p in self.pairs if not p.error]

        def mean(name: str) -> float | None:
            counted = [p for p in scored if not (p.cached and name in ("seconds", "cpu_seconds"))]
            values = [
                v
                for v in (getattr(p, name) for p in counted)
                if v is not None and not math.isnan(v)
            ]
            return float(np.mean(values)) if values else None

        by_label: dict[int, list[float]] = {}
        for pair in scored:
            for score in pair.labels:
                by_label.setdefault(score.label, []).append(score.dice_after)
        with_dice = [p for p in scored if not math.isnan(p.dice_after)]
        worst = min(with_dice, key=lambda p: p.dice_after, default=None)
        return {
            "pairs": len(self.pairs),
            "failed": len(self.pairs) - len(scored),
            "unscored": len(scored) - len(with_dice),
            "cached": sum(p.cached for p in scored),
            "verdict": counts(p.verdict for p in self.pairs if p.verdict),
            **{name: mean(name) for name in _MEANS},
            "worst": (
                None
                if worst is None
                else {"fixed": worst.fixed, "moving": worst.moving, "dice_after": worst.dice_after}
            ),
            "dice_by_label": {label: float(np.mean(v)) for label, v in sorted(by_label.items())},
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, NaN as None.

        Examples
        --------
        >>> sorted(cohort.Evaluation([cohort.PairScore("a", "b")], {}, {}).to_dict())
        ['names', 'options', 'pairs', 'summary', 'wilcoxon']
        """
        content = {
            "summary": self.summary(),
            "wilcoxon": self.wilcoxon,
            "options": self.options,
            "names": self.names,
            "pairs": [dataclasses.asdict(p) for p in self.pairs],
        }
        return json.loads(json.dumps(content), parse_constant=lambda _: None)

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the columns and the rows of results.csv."""
        columns = [
            "fixed",
            "moving",
            "label",
            "name",
            "dice_before",
            "dice_after",
            "hd95_before",
            "hd95_after",
            "volume_error_percent",
            "is_cut",
            "verdict",
            "error_mm",
            "njd_percent",
            "seconds",
            "error",
        ]
        rows = []
        for pair in self.pairs:
            row = {
                "fixed": pair.fixed,
                "moving": pair.moving,
                "verdict": pair.verdict,
                "error_mm": pair.error_mm,
                "njd_percent": pair.njd_percent,
                "seconds": pair.seconds,
                "error": pair.error,
            }
            scores: Sequence[LabelScore | None] = pair.labels or [None]
            for score in scores:
                of_label = (
                    {}
                    if score is None
                    else {**dataclasses.asdict(score), "name": self.names.get(score.label, "")}
                )
                rows.append({**row, **of_label})
        return columns, rows

    def to_dataframe(self) -> Any:
        """Return a row a pair and label as a pandas DataFrame: the columns of results.csv.

        Examples
        --------
        >>> scores = cohort.Evaluation([cohort.PairScore("a", "b", dice_after=0.8)], {}, {})
        >>> scores.to_dataframe()[["fixed", "moving"]].values.tolist()
        [['a', 'b']]
        """
        return data_frame(self._table()[1])

    def __repr__(self) -> str:
        dice = [pair.dice_after for pair in self.pairs if not math.isnan(pair.dice_after)]
        mean = f", Dice {sum(dice) / len(dice):.3f}" if dice else ""
        return f"Evaluation({len(self.pairs)} pairs, {len(dice)} scored{mean})"

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the files of :meth:`save` into an existing folder.

        Examples
        --------
        >>> os.mkdir("scores")
        >>> cohort.Evaluation([cohort.PairScore("a", "b")], {}, {}).write("scores")
        >>> sorted(os.listdir("scores"))
        ['index.html', 'results.csv', 'results.json']
        """
        folder = Path(folder)
        _files.write_text(folder / FILES[1], csv_text(*self._table()))
        self._write_index(folder)
        pages = [pair.page for pair in self.pairs if pair.page and (folder / pair.page).is_file()]
        write_listing(folder / FILES[0], self.to_dict(), (FILES[1], INDEX, *pages))

    def _write_index(self, folder: Path) -> None:
        from ..report import write_index

        write_index(folder / INDEX, self._rows(), title="Evaluation", version=core.version())

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdicts, and the pairs to look at first."""
        from ..report.cards import pairs

        return pairs("Evaluation", self._rows())

    def _rows(self) -> list[CohortRow]:
        from ..report import CohortRow

        return [
            CohortRow(
                f"{pair.moving} onto {pair.fixed}",
                verdict=pair.verdict,
                error_mm=pair.error_mm,
                dice_before=pair.dice_before,
                dice_after=pair.dice_after,
                njd_percent=pair.njd_percent,
                seconds=pair.seconds,
                said=pair.error,
                page=pair.page,
                failed=bool(pair.error),
            )
            for pair in self.pairs
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write results.json (everything), results.csv (one row a pair and label) and index.html
        (a table of the pairs): all of them or, on an error, none.

        Examples
        --------
        >>> cohort.Evaluation([cohort.PairScore("a", "b")], {}, {}).save("scores")
        >>> sorted(os.listdir("scores"))
        ['index.html', 'results.csv', 'results.json']
        """
        with _files.output_folder(folder, (*FILES, INDEX, PAGES), FILES[0]) as temporary:
            self.write(temporary)
