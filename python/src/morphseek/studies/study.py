"""Studies: the rows of many registrations, their tables and their index."""

from __future__ import annotations

import collections
import copy
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .. import _files, _manifest, errors
from .._engine import core
from .._json import MOST_RESULT_BYTES, Plain, object_in, read as read_json, understood, without_nan
from .._tables import csv_text
from .._typed import COMMAND
from ..scoring.statistics import signed_rank
from ..verdict import counts, tally
from ._result import Tabled, mean
from .outliers import outliers
from .runner import FINISHED, PATIENCE, Ending, Job, Meter, run_jobs

SEAL = "pair.json"  # of a finished pair
#: What a study leaves in its folder; the first one lists the others.
TABLES = ("summary.json", "summary.csv", "labels.csv", "index.html")

#: In what pairs are compared to find outliers: what it is called, and where it is.
_COMPARED = {
    "estimated error, mm": "error_mm",
    "scale": "scale",
    "SD of log J": "sdlogj",
    "mean displacement, mm": "displacement_mm",
}
_MEANS = (
    "error_mm", "dice_before", "dice_after", "dice_inverse", "dice_check", "hd95_after",
    "volume_error_percent", "volume_bias_percent", "tre_before_mm", "tre_after_mm", "njd_percent",
    "sdlogj", "seconds", "cpu_seconds",
)  # fmt: skip
_OF_LABELS = (
    "id", "fixed", "moving", "label", "name", "dice_before", "dice_after", "hd95_before",
    "hd95_after", "volume_error_percent", "is_cut", "verdict", "error_mm",
)  # fmt: skip


@dataclasses.dataclass(slots=True, repr=False)
class PairRow(Plain):
    """One pair of a study: a row of summary.csv. None: unknown.

    Examples
    --------
    >>> studies.PairRow("sub-01", "a.nii.gz", "b.nii.gz")
    PairRow(sub-01: pending)
    """

    id: str
    fixed: str
    moving: str
    status: str = "pending"
    """done, skipped (it was finished before), failed, or pending (the study was stopped)."""
    verdict: str = ""
    """good, check, failed, or unknown; empty where nothing was registered."""
    error_mm: float | None = None
    """The verdict's estimate."""
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Of the verdict."""
    dice_before: float | None = None
    """Mean over the labels, as all of these."""
    dice_after: float | None = None
    dice_inverse: float | None = None
    """In the moving image's space, by the inverse transform."""
    dice_check: float | None = None
    """By SimpleITK alone, from the transform as it is written to a file."""
    hd95_after: float | None = None
    """95th percentile of the distances between the labels' surfaces, mm."""
    volume_error_percent: float | None = None
    """Mean of absolute values; ``volume_bias_percent``: with their signs."""
    volume_bias_percent: float | None = None
    tre_before_mm: float | None = None
    tre_after_mm: float | None = None
    """Mean error at landmarks."""
    njd_percent: float | None = None
    """Voxels where the map folds."""
    sdlogj: float | None = None
    """Standard deviation of the logarithm of the Jacobian determinant."""
    seconds: float | None = None
    cpu_seconds: float | None = None
    """Of the registration alone, of the whole process: of all pairs that run at a time."""
    cached: bool = False
    """The result came from the cache; ``seconds`` are what it took then, and no part of means."""
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
    displacement_mm: float | None = None
    """Mean length."""
    unlike: list[str] = dataclasses.field(default_factory=list)
    """In what the pair is unlike the others, in words, with the robust z-score."""
    labels: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """:class:`morphseek.scoring.LabelScore` of each label, with its name."""

    def __str__(self) -> str:
        if self.error:
            return f"{self.id}: {self.error}: {self.message}"
        parts = [f"{self.id}: {self.status}"]
        if self.njd_percent is not None:
            parts.append(f"verdict {self.verdict}")
            if self.dice_after is not None:
                parts.append(f"Dice {self.dice_before:.3f} -> {self.dice_after:.3f}")
            parts += [f"NJD {self.njd_percent:.4f} %", f"{self.seconds:.1f} s"]
        return "  ".join(parts)


_FIELDS = tuple(field.name for field in dataclasses.fields(PairRow))


class Rows(Tabled):
    """The rows of jobs: their tables, and what other calls finished in the same folder."""

    _empty: ClassVar[Any]
    """A row of which nothing is known."""
    _seal: ClassVar[str]
    """Of a job."""
    _tables: ClassVar[Sequence[str]]
    """The files of the tables; the first one has everything and lists the others."""
    rows: list[Any]
    earlier: Sequence[Any] = ()
    """Finished rows of earlier calls in the same folder, which its files list, too."""

    @property
    def exit_code(self) -> int:
        """The first failure's, or 0."""
        return next((row.exit_code for row in self.rows if row.status == "failed"), 0)

    def _do(
        self, jobs: Iterable[Job], folder: Path, meter: Meter, *, keep: Iterable[str] = (),
        **how: Any,
    ) -> None:  # fmt: skip
        """Do jobs and put the end of each into the row of its id, all but the fields to ``keep``;
        then, whatever happened, save the tables. ``how`` goes to :func:`run_jobs`.
        """
        rows, places = self.rows, {row.id: place for place, row in enumerate(self.rows)}

        def end(ending: Ending) -> None:
            row = rows[places[ending.id]]
            row = ended(row, ending, **{name: getattr(row, name) for name in keep})
            rows[places[ending.id]] = row
            if ending.status != "pending":
                meter.ended(ending.id, str(row))
            meter.check()

        try:
            with meter:
                run_jobs(jobs, ended=end, meter=meter, **how)
        finally:
            self.save(folder)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the tables: all of them or, on an error, none. What earlier calls finished there
        keeps its rows.

        Examples
        --------
        >>> studies.Study([studies.PairRow("sub-01", "a.nii.gz", "b.nii.gz")]).save("study")
        >>> sorted(os.listdir("study"))
        ['index.html', 'summary.csv', 'summary.json']
        """
        folder = Path(folder)
        first = self._tables[0]
        with _files.output_folder(folder, self._tables, first, patience=PATIENCE) as temporary:
            self.earlier = self._others(folder)
            whole = copy.copy(self)
            whole.rows = [*self.rows, *self.earlier]
            whole._write(temporary, folder)
            listed = {path.name: _manifest.entry(path) for path in sorted(temporary.iterdir())}
            head = json.dumps(without_nan({**whole._head(), _manifest.KEY: listed}))[:-1]
            rows = ",\n".join(json.dumps(row.to_dict()) for row in whole.rows)
            _files.write_text(temporary / first, f'{head}, "rows": [\n{rows}\n]}}\n')

    def _write(self, temporary: Path, folder: Path) -> None:
        """Write all tables but the first, which will lie in a folder."""
        raise NotImplementedError

    def _head(self) -> dict[str, Any]:
        """Return all facts but the rows."""
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        return {**self._head(), "rows": [row.to_dict() for row in self.rows]}

    def _others(self, folder: Path) -> list[Any]:
        """Return the rows of the finished jobs in a folder that are not of this call."""
        rows = []
        for id in sorted(set(os.listdir(folder)).difference(row.id for row in self.rows)):
            told = object_in(folder / id / self._seal).get("row")
            known = {"id": id, "status": FINISHED[0], **told} if isinstance(told, dict) else {}
            if known and (row := row_of(self._empty, known)):
                rows.append(row)
        return rows


class Study(Rows):
    """Many registrations: a row a pair, in the list's order.

    Its folder has summary.csv, labels.csv (a row a pair and label, where there are labels),
    summary.json (everything) and index.html.

    Attributes
    ----------
    rows : list of PairRow
    options : dict
        Of the registrations.
    earlier : list of PairRow
        Finished pairs of earlier calls in the same folder: its files list them, too.

    Examples
    --------
    >>> study = studies.Study([studies.PairRow("sub-01", "a.nii.gz", "b.nii.gz")])
    >>> study.rows[0].id
    'sub-01'
    """

    _empty = PairRow("", "", "")
    _seal = SEAL
    _tables = TABLES
    rows: list[PairRow]

    def __init__(self, rows: Iterable[PairRow], options: Mapping[str, Any] | None = None) -> None:
        self.rows = list(rows)
        self.options = dict(options or {})

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> Study:
        """Read a study from its folder, or from its summary.json.

        Raises
        ------
        InputUnreadableError
            There is none, or it is damaged.

        Examples
        --------
        >>> studies.Study([studies.PairRow("sub-01", "a", "b")]).save("study")
        >>> studies.Study.read("study").rows[0].id
        'sub-01'
        """
        path = Path(folder) / TABLES[0] if Path(folder).is_dir() else Path(folder)
        _files.settle(path.parent)
        content = read_json(path, "study", MOST_RESULT_BYTES)
        with understood(f"study: {path} is no study's summary.json"):
            rows = [row for known in content["rows"] if (row := row_of(Study._empty, known))]
            if len(rows) < len(content["rows"]):
                raise TypeError("a row")
            return Study(rows, content["options"])

    def _mark_outliers(self) -> None:
        """Say of each pair in what it is unlike the others."""
        values: dict[str, list[float | None]] = {
            name: [getattr(row, field) for row in self.rows] for name, field in _COMPARED.items()
        }
        for measure in sorted({row.measure for row in self.rows if row.measure}):
            values[measure] = [r.similarity if r.measure == measure else None for r in self.rows]
        for row, unlike in zip(self.rows, outliers(values, ratios=["scale"])):
            row.unlike = unlike

    def merge(self, other: Study) -> Study:
        """Return a study with the rows of both; of a pair in both, the other's row.

        Raises
        ------
        InvalidArgumentError
            An id is of other images there.

        Examples
        --------
        >>> one = studies.Study([studies.PairRow("sub-01", "a", "b")])
        >>> two = studies.Study([studies.PairRow("sub-02", "a", "c")])
        >>> [row.id for row in one.merge(two).rows]
        ['sub-01', 'sub-02']
        """
        rows = {row.id: row for row in self.rows}
        for row in other.rows:
            own = rows.get(row.id, row)
            if (own.fixed, own.moving) != (row.fixed, row.moving):
                raise errors.InvalidArgumentError(
                    f"merge: the id {row.id} is of {own.moving} onto {own.fixed} in one study and"
                    f" of {row.moving} onto {row.fixed} in the other; give each pair an id of its"
                    " own"
                )
            rows[row.id] = row
        return Study(rows.values(), {**self.options, **other.options})

    def summary(self) -> dict[str, Any]:
        """Return how many pairs have which status, how many of the finished ones have which
        verdict, how many are unlike the others, and the means over them.

        Examples
        --------
        >>> studies.Study([studies.PairRow("sub-01", "a", "b")]).summary()["pending"]
        1
        """
        states = collections.Counter(row.status for row in self.rows)
        summary: dict[str, Any] = {
            "pairs": len(self.rows),
            **{state: states[state] for state in (*FINISHED, "failed", "pending")},
            "failed_percent": 100 * states["failed"] / max(1, len(self.rows)),
            "verdict": counts(row.verdict for row in self.rows if row.verdict),
            "outliers": sum(bool(row.unlike) for row in self.rows),
            "cached": sum(row.cached for row in self.rows),
        }
        for name in _MEANS:
            is_time = name in ("seconds", "cpu_seconds")
            rows = (row for row in self.rows if not (row.cached and is_time))
            summary[name] = mean(getattr(row, name) for row in rows)
        return summary

    def _head(self) -> dict[str, Any]:
        return {"summary": self.summary(), "version": core.version(), "options": self.options}

    def label_rows(self) -> Iterator[dict[str, Any]]:
        """Give a row a pair and label, those of labels.csv.

        Examples
        --------
        >>> labels = [{"label": 1, "dice_after": 0.9}]
        >>> study = studies.Study([studies.PairRow("sub-01", "a", "b", labels=labels)])
        >>> [row["dice_after"] for row in study.label_rows()]
        [0.9]
        """
        for row in self.rows:
            for score in row.labels:
                whole = {**row.to_dict(), **score}
                yield {name: whole.get(name) for name in _OF_LABELS}

    def _table(self) -> tuple[Sequence[str], Iterator[dict[str, Any]]]:
        names = [name for name in _FIELDS if name != "labels"]
        return names, ({name: getattr(row, name) for name in names} for row in self.rows)

    def __repr__(self) -> str:
        states = tally(collections.Counter(row.status for row in self.rows))
        grades = tally(collections.Counter(row.verdict for row in self.rows if row.verdict))
        return f"Study({len(self.rows)} pairs: {states}{'; ' if grades else ''}{grades})"

    def _write(self, temporary: Path, folder: Path) -> None:
        from ..report import write_index

        self._mark_outliers()
        self.to_csv(temporary / "summary.csv")
        if any(row.labels for row in self.rows):
            _files.write_text(temporary / "labels.csv", csv_text(_OF_LABELS, self.label_rows()))
        write_index(
            temporary / TABLES[-1], self._index(has_pages=True), command=COMMAND.get(),
            version=core.version(), pages=folder,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdicts, and the pairs to look at first."""
        from ..report.cards import pairs

        return pairs("Registrations", self._index())

    def _index(self, has_pages: bool = False) -> list[Any]:
        """Return the index's rows, with the places of their pages or without."""
        from ..report import IndexRow

        return [
            IndexRow(
                row.id, row.fixed, row.moving, row.verdict, row.error_mm, row.dice_before,
                row.dice_after, tre_mm=row.tre_after_mm, njd_percent=row.njd_percent,
                seconds=row.seconds, remark=row.message or " ".join(row.reasons) or row.status,
                page=f"{row.id}/report.html" if has_pages else "",
                failed=row.status not in FINISHED, unlike=tuple(row.unlike),
            )
            for row in self.rows
        ]  # fmt: skip


def compare(
    study: Study, other: Study | str | os.PathLike[str], measure: str = "dice_after"
) -> dict[str, Any]:
    """Compare two studies of the same pairs: the two-sided Wilcoxon signed-rank test.

    Parameters
    ----------
    study, other : Study, or path of one
        Pairs are matched by their fixed and moving image; where a study has these two more than
        once, by the id, too.
    measure : str
        A column of numbers.

    Returns
    -------
    dict
        pairs, mean_difference (study - other), p_value, better (how many are larger) and worse.

    Raises
    ------
    InvalidArgumentError
        No pair has the measure in both.

    Examples
    --------
    >>> one, two = (studies.Study([studies.PairRow("p", "a", "b", dice_after=d)]) for d in (0.8,
    ...                                                                                    0.7))
    >>> round(morphseek.compare(one, two)["mean_difference"], 3)
    0.1
    """
    others = other if isinstance(other, Study) else Study.read(other)
    if measure not in _FIELDS:
        raise errors.InvalidArgumentError(
            f"measure is {measure!r}; it must be a column of numbers, such as {', '.join(_MEANS)}"
        )
    ours, theirs = _values(study.rows, measure), _values(others.rows, measure)
    test = signed_rank([ours[pair] - theirs[pair] for pair in ours if pair in theirs])
    if test is None:
        raise _incomparable(study.rows, others.rows, measure)
    return test


def check_comparable(pairs: Sequence[Any], other: Study) -> None:
    """Refuse pairs of read_pairs of which, once they are registered, none has its Dice in another
    study, too.
    """
    known = {(fixed, moving) for fixed, moving, _ in _values(other.rows, "dice_after")}
    scored = [p.files for p in pairs if {"fixed_labels", "moving_labels"} <= p.files.keys()]
    if not any((files["fixed"], files["moving"]) in known for files in scored):
        raise _incomparable(pairs, other.rows, "dice_after")


def _values(rows: Sequence[PairRow], measure: str) -> dict[tuple[str, str, str], float]:
    times = collections.Counter((row.fixed, row.moving) for row in rows)
    known = {}
    for row in rows:
        id = row.id if times[row.fixed, row.moving] > 1 else ""  # with another mask, say
        value = getattr(row, measure)
        if type(value) in (int, float) and math.isfinite(value):
            known[row.fixed, row.moving, id] = float(value)
    return known


def _incomparable(ours: Sequence[Any], theirs: Sequence[Any], measure: str) -> Exception:
    return errors.InvalidArgumentError(
        f"compare: no pair of the {len(ours)} here and the {len(theirs)} there has {measure} in"
        " both; pairs are matched by the paths of fixed and moving"
    )


def ended(row: Any, ending: Ending, **more: Any) -> Any:
    """Return a row whose job ended."""
    outcome = {name: getattr(ending, name) for name in ("status", "error", "message", "exit_code")}
    return dataclasses.replace(row, **outcome, **{**ending.row, **more})


def row_of(plain: Any, row: Mapping[str, Any]) -> Any:
    """Return a row with what a file says of it; None where a cell is of another type."""
    names = [field.name for field in dataclasses.fields(plain)]
    known = {name: row[name] for name in names if name in row}
    if not all(_fits(name, value, getattr(plain, name)) for name, value in known.items()):
        return None
    return dataclasses.replace(plain, **known)


def _fits(name: str, value: Any, plain: Any) -> bool:
    """Whether the cell of a file has the type of an attribute; None is a number."""
    if plain is None or type(plain) in (int, float):
        is_number = value is None or isinstance(value, (int, float))
        return is_number and not isinstance(value, bool)
    if not isinstance(plain, list):
        return isinstance(value, type(plain))
    item = dict if name == "labels" else str
    return isinstance(value, list) and all(isinstance(each, item) for each in value)
