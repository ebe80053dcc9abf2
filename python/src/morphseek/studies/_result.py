"""Tables of studies' results: one base class, and the values of their rows."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import _files
from .._grid import Grid
from .._json import understood, without_nan
from .._tables import csv_text, data_frame

if TYPE_CHECKING:
    from typing_extensions import Self


class Shown:
    """A result that a notebook shows as a card."""

    _card: ClassVar[str]
    """The template of the card."""

    def to_dict(self) -> dict[str, Any]:
        """Return the facts of the card."""
        raise NotImplementedError

    def _planes(self) -> tuple[np.ndarray, Grid] | tuple[()]:
        """Return the array whose middle planes are shown, and its grid."""
        return ()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from ..report.cards import result

        return result(self._card, self.to_dict(), *self._planes())


class Tabled(Shown):
    """A result that is a table, too."""

    def _table(self) -> tuple[Sequence[str], Iterable[Mapping[str, Any]]]:
        """Return the columns and the rows."""
        raise NotImplementedError

    def _cells(self) -> Iterator[dict[str, Any]]:
        """Give the rows with each list of words in one cell."""
        columns, rows = self._table()
        for row in rows:
            values = ((name, row[name]) for name in columns)
            yield {k: " | ".join(v) if isinstance(v, list) else v for k, v in values}

    def _facts(self) -> dict[str, Any]:
        """Return the result as plain data, which may have NaN."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return everything but images, maps and transforms as plain data, NaN as None.

        Examples
        --------
        >>> len(template.to_dict()["rows"])
        2
        """
        return without_nan(self._facts())

    def to_dataframe(self) -> Any:
        """Return the table as a pandas DataFrame.

        Examples
        --------
        >>> len(template.to_dataframe())  # a row an image
        2
        """
        return data_frame(self._cells())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table of :meth:`to_dataframe` as CSV.

        Examples
        --------
        >>> template.to_csv("rows.csv")
        >>> Path("rows.csv").read_text()[:29]
        'id,image,verdict,reasons,move'
        """
        _files.write_text(path, csv_text(self._table()[0], self._cells()))


class Saved(Shown):
    """A result with files in a folder of its own, which its class lists."""

    _outputs: ClassVar[Sequence[str]]
    """Patterns of the files; the last one lists the others."""

    def _write(self, folder: Path) -> None:
        """Write the files into an empty folder."""
        raise NotImplementedError

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result's files to a folder: all of them or, on an error, none.

        Examples
        --------
        >>> template.save("out")
        >>> os.path.exists("out/template.nii.gz")
        True
        """
        with _files.output_folder(folder, self._outputs, self._outputs[-1]) as temporary:
            self._write(temporary)


class Readable(Saved):
    """A result that can be read from its folder again."""

    @classmethod
    def _read(cls, folder: Path, content: Mapping[str, Any]) -> Self:
        """Return the result of a folder, of which its last file has this content."""
        raise NotImplementedError

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self:
        """Read a result from its folder, without pictures.

        Raises
        ------
        InputUnreadableError
            There is none, or one of its files is not as it was written.

        Examples
        --------
        >>> len(morphseek.Template.read("template").rows)
        2
        """
        path = Path(folder) / cls._outputs[-1]
        content = _files.read_seal(path, cls.__name__.lower())
        with understood(f"{path} is not a {cls.__name__.lower()}'s"):
            return cls._read(Path(folder), content)


def folder_for(
    out: str | os.PathLike[str] | None, outputs: Sequence[str]
) -> contextlib.AbstractContextManager[Path | None]:
    """Give the folder to write a result's files to, None without ``out``. One that cannot be
    written to, or another call's, is refused before the work.
    """
    if out is None:
        return contextlib.nullcontext()
    return _files.output_folder(out, outputs, outputs[-1])


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None where none is."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(known) if known else None


def mean_dice(dice: Mapping[int, float] | None) -> float | None:
    """Return the mean over the labels; None where there is none."""
    return mean((dice or {}).values())
