"""Outcomes of many pairs, and their tables."""

from __future__ import annotations

import collections
import dataclasses
import os
import statistics
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _files, errors
from .._engine import core
from .._json import MOST_RESULT_BYTES, read as read_json
from .._plain import why_no_name
from .._tables import csv_text, data_frame
from ..verdict import counts, tally
from .listing import FINISHED, INDEX, fits, write_listing
from .unlike import outliers

if TYPE_CHECKING:
    from ..report import CohortRow
else:  # typing.get_type_hints asks for the name; the pages' module loads when one is written
    CohortRow = Any

SUMMARIES = ("summary.csv", "summary.json")


#: In what pairs are compared to find outliers: what it is called, and where it is.
_COMPARED = {
    "estimated error, mm": "error_mm",
    "scale": "scale",
    "SD of log J": "sdlogj",
    "mean displacement, mm": "displacement_mm",
}
_LISTS = ("reasons", "warnings", "unlike")


@dataclasses.dataclass
class Outcome:
    """The outcome of a pair: a row of summary.csv.

    Examples
    --------
    >>> cohort.Outcome("sub-01", "a.nii.gz", "b.nii.gz").status
    'pending'
    """

    id: str
    fixed: str
    moving: str
    status: str = "pending"
    """done, skipped (it was finished before), failed, or pending (the batch was stopped)."""
    verdict: str = ""
    """good, check, failed, or unknown; empty where nothing was registered."""
    error_mm: float | None = None
    """The verdict's estimate."""
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Of the verdict."""
    dice_before: float | None = None
    dice_after: float | None = None
    tre_before_mm: float | None = None
    tre_after_mm: float | None = None
    """Mean error at landmarks."""
    njd_percent: float | None = None
    seconds: float | None = None
    model: str = ""
    device: str = ""
    warnings: list[str] = dataclasses.field(default_factory=list)
    error: str = ""
    """The exception's class."""
    message: str = ""
    exit_code: int = 0
    measure: str = ""
    """The measure that ``similarity`` is of."""
    similarity: float | None = None
    """Of the result."""
    scale: float | None = None
    """By which factor the linear part changes lengths, from fixed to moving."""
    sdlogj: float | None = None
    """Standard deviation of the logarithm of the Jacobian determinant."""
    displacement_mm: float | None = None
    """Mean length."""
    unlike: list[str] = dataclasses.field(default_factory=list)
    """In what the pair is unlike the others of its batch: :func:`morphseek.cohort.outliers`."""

    def __str__(self) -> str:
        if self.error:
            return f"{self.id}: {self.error}: {self.message}"
        dice = (
            ""
            if self.dice_after is None
            else f"Dice {self.dice_before:.3f} -> {self.dice_after:.3f}  "
        )
        return f"{self.id}: {self.status}" + (
            ""
            if self.njd_percent is None
            else f"  verdict {self.verdict}  {dice}NJD {self.njd_percent:.4f} % "
            f" {self.seconds:.1f} s"
        )


@dataclasses.dataclass(repr=False)
class Cohort:
    """The outcomes of a list of pairs, in its order. The methods but ``write`` tell of these alone.

    Examples
    --------
    >>> found = cohort.Cohort([cohort.Outcome("sub-01", "a.nii.gz", "b.nii.gz")], {})
    >>> found.pairs[0].id
    'sub-01'
    """

    pairs: list[Outcome]
    options: dict[str, Any]
    earlier: list[Outcome] = dataclasses.field(default_factory=list, init=False, repr=False)
    """Finished pairs of earlier calls in the same folder, which its tables list, too."""

    @property
    def exit_code(self) -> int:
        """The first failure's, or 0."""
        return next((p.exit_code for p in self.pairs if p.status == "failed"), 0)

    def mark_outliers(self) -> None:
        """Say of each pair in what it is unlike the others.

        Examples
        --------
        >>> cohort.Cohort([cohort.Outcome("sub-01", "a.nii.gz", "b.nii.gz")], {}).mark_outliers()
        """
        values: dict[str, list[float | None]] = {
            name: [getattr(p, field) for p in self.pairs] for name, field in _COMPARED.items()
        }
        for measure in sorted({p.measure for p in self.pairs if p.measure}):
            values[measure] = [p.similarity if p.measure == measure else None for p in self.pairs]
        for pair, unlike in zip(self.pairs, outliers(values, ratios=["scale"])):
            pair.unlike = unlike

    def summary(self) -> dict[str, Any]:
        """Return how many pairs have which status, how many of the finished ones have which
        verdict, how many are unlike the others, and the means over them.

        Examples
        --------
        >>> cohort.Cohort([cohort.Outcome("sub-01", "a", "b")], {}).summary()["pending"]
        1
        """
        states = [p.status for p in self.pairs]
        found: dict[str, Any] = {
            "pairs": len(states),
            **{state: states.count(state) for state in ("done", "skipped", "failed", "pending")},
            "verdict": counts(p.verdict for p in self.pairs if p.verdict),
            "outliers": sum(bool(p.unlike) for p in self.pairs),
        }
        means = {}
        for name in (
            "error_mm",
            "dice_before",
            "dice_after",
            "tre_before_mm",
            "tre_after_mm",
            "njd_percent",
            "seconds",
        ):
            values = [getattr(p, name) for p in self.pairs if getattr(p, name) is not None]
            means[name] = statistics.fmean(values) if values else None
        return found | means

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data.

        Examples
        --------
        >>> sorted(cohort.Cohort([cohort.Outcome("sub-01", "a", "b")], {}).to_dict())
        ['options', 'pairs', 'summary', 'version']
        """
        return {
            "summary": self.summary(),
            "version": core.version(),
            "options": self.options,
            "pairs": [dataclasses.asdict(p) for p in self.pairs],
        }

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the columns and the rows of summary.csv."""
        columns = [field.name for field in dataclasses.fields(Outcome)]
        rows = map(dataclasses.asdict, self.pairs)
        return columns, [
            {**row, **{name: " | ".join(row[name]) for name in _LISTS}} for row in rows
        ]

    def to_dataframe(self) -> Any:
        """Return a row a pair as a pandas DataFrame: the columns of summary.csv.

        Examples
        --------
        >>> study = cohort.Cohort([cohort.Outcome("sub-01", "a.nii.gz", "b.nii.gz")], {})
        >>> study.to_dataframe()["id"].tolist()
        ['sub-01']
        """
        return data_frame(self._table()[1])

    def __repr__(self) -> str:
        states = tally(collections.Counter(pair.status for pair in self.pairs))
        grades = tally(collections.Counter(p.verdict for p in self.pairs if p.verdict))
        return f"Cohort({len(self.pairs)} pairs: {states}{'; ' if grades else ''}{grades})"

    def write(self, folder: str | os.PathLike[str], command: str = "") -> None:
        """Write summary.csv (one row a pair), summary.json (everything) and index.html (a table
        that opens the pairs' pages; the command that repeats the batch is on it) into an existing
        folder: all of them or, on an error, none. Pairs of earlier calls, which lie there finished,
        keep their rows.

        Examples
        --------
        >>> os.mkdir("study")
        >>> cohort.Cohort([cohort.Outcome("sub-01", "a.nii.gz", "b.nii.gz")], {}).write("study")
        >>> sorted(os.listdir("study"))
        ['index.html', 'summary.csv', 'summary.json']
        """
        folder = Path(folder)
        self.earlier = _earlier(folder, {pair.id for pair in self.pairs})
        whole = Cohort([*self.pairs, *self.earlier], self.options)
        whole.mark_outliers()
        with _files.together(folder, (*SUMMARIES, INDEX), SUMMARIES[1]) as temporary:
            whole._write(temporary, folder, command)

    def _write(self, temporary: Path, folder: Path, command: str) -> None:
        _files.write_text(temporary / SUMMARIES[0], csv_text(*self._table()))
        self._write_index(temporary / INDEX, folder, command)
        write_listing(temporary / SUMMARIES[1], self.to_dict(), (SUMMARIES[0], INDEX))

    def _write_index(self, path: Path, folder: Path, command: str) -> None:
        from ..report import write_index

        rows = self._rows(folder)
        write_index(path, rows, command=command, version=core.version(), pages=folder)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdicts, and the pairs to look at first."""
        from ..report.cards import pairs

        return pairs("Registrations", self._rows())

    def _rows(self, folder: Path | None = None) -> list[CohortRow]:
        """Return the index's rows, with the pages that lie in a folder."""
        from ..report import CohortRow

        rows = []
        for pair in self.pairs:
            page = f"{pair.id}/report.html"
            rows.append(
                CohortRow(
                    pair.id,
                    pair.fixed,
                    pair.moving,
                    pair.verdict,
                    pair.error_mm,
                    pair.dice_before,
                    pair.dice_after,
                    tre_mm=pair.tre_after_mm,
                    njd_percent=pair.njd_percent,
                    seconds=pair.seconds,
                    said=pair.message or " ".join(pair.reasons) or pair.status,
                    page=page if folder and (folder / page).is_file() else "",
                    failed=pair.status in ("failed", "pending"),
                    unlike=tuple(pair.unlike),
                )
            )
        return rows


def _earlier(folder: Path, now: Collection[str]) -> list[Outcome]:
    """Return the finished pairs that the summary in a folder lists, but for those of this call and
    those whose folders are gone. A summary that is damaged lists none.
    """
    try:
        rows = read_json(folder / SUMMARIES[1], "batch", MOST_RESULT_BYTES)["pairs"]
        found = [outcome for row in rows if (outcome := _outcome(row)) is not None]
    except (errors.InputUnreadableError, KeyError, TypeError, AttributeError):
        return []
    return [
        pair
        for pair in found
        if pair.id not in now and not why_no_name(pair.id)
        and pair.status in ("done", "skipped") and (folder / pair.id / FINISHED).is_file()
    ]  # fmt: skip


def _outcome(row: dict[str, Any]) -> Outcome | None:
    """Return a row of summary.json; None where one of its cells is of another type."""
    plain = Outcome("", "", "")
    known = {
        field.name: row[field.name] for field in dataclasses.fields(plain) if field.name in row
    }
    if not fits(known, plain):
        return None
    words = [word for name in _LISTS for word in known.get(name, [])]
    return Outcome(**known) if all(isinstance(word, str) for word in words) else None
