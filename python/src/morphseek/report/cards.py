"""Cards in HTML that show images, transforms and the results of studies in a notebook.

It knows plain data, arrays and grids alone, so that all of them may show themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .._grid import Grid
from .._percentiles import percentiles
from .axes import Axes
from .index import IndexRow, summary
from .picture import three_planes
from .render import render

_MOST_ROWS = 10


def image(array: np.ndarray, grid: Grid, name: str, doubts: Sequence[str]) -> str:
    """Return the card of an image: where it lies, its intensities and its middle planes."""
    axes = Axes(grid)
    values = array[np.isfinite(array)]
    low, dark, bright, high = percentiles(values, (0, 0.5, 99.5, 100)) if values.size else [0.0] * 4
    shown = np.nan_to_num(array, nan=low, posinf=high, neginf=low)
    return render(
        "card_image.html.j2", name="" if name == "image" else name, image=described(array, grid),
        low=low, high=high, tilt=axes.tilt(), doubts=doubts,
        letters=[f"{a} to {b}" for a, b in axes.letters()],
        picture=three_planes(shown, grid, low=dark, high=bright) if array.size else b"",
    )  # fmt: skip


def described(array: np.ndarray, grid: Grid) -> dict[str, Any]:
    """Return what a page says of an image in words."""
    return {"size": grid.size, "spacing": grid.spacing, "type": array.dtype.name}


def transform(facts: Mapping[str, Any], grids: Iterable[tuple[str, Grid | None]]) -> str:
    """Return the card of a transform: its parts, and the grids that it knows, by name."""
    known = [(name, grid.size) for name, grid in grids if grid is not None]
    return render("card_transform.html.j2", **facts, grids=known)


def pairs(title: str, rows: Iterable[IndexRow]) -> str:
    """Return the card of many pairs: their verdicts, and the pairs to look at first."""
    return render("card_pairs.html.j2", title=title, **summary(rows, _MOST_ROWS))


def result(
    kind: str, facts: Mapping[str, Any], array: np.ndarray | None = None, grid: Grid | None = None
) -> str:
    """Return the card of a study's result, with an array's middle planes; it may have NaN."""
    picture = None
    if array is not None and grid is not None:
        values = array[np.isfinite(array)]
        low, high = percentiles(values, (0.5, 99.5)) if values.size else (0.0, 0.0)
        picture = three_planes(np.nan_to_num(array, nan=low), grid, low=low, high=high)
    return render(f"card_{kind}.html.j2", most=_MOST_ROWS, picture=picture, **facts)
