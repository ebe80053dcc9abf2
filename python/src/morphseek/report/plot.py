"""A figure for papers, by Matplotlib: the one place that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import images
from .._features import needing
from .axes import PLANES, plane_letters, planes
from .inputs import Registration
from .views import Scene

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = float(np.log(4))  # of the volume change, either way


def figure(
    result: Registration, fixed: images.ImageLike, moving: images.ImageLike, width: float = 7.2
) -> Figure:
    """Return fixed, before, after and the log-Jacobian, in three planes."""
    with needing("plot", "plot"):
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    scene = Scene(result, fixed, moving)
    at, letters = scene.middle(), plane_letters(scene.axes.letters())
    sizes = scene.sizes_mm()
    extents = [(0.0, w, h, 0.0) for h, w in sizes]
    tall = max(h for h, _ in sizes) / sum(w for _, w in sizes)
    drawn = Figure(figsize=(width, 4 * width * tall + 0.3), dpi=200, layout="constrained")
    grid = drawn.add_gridspec(4, 3, width_ratios=[w for _, w in sizes])
    colors = LinearSegmentedColormap.from_list(
        "volume", ["#8fd3f4", "#2b6cb0", "#f4f4f4", "#b3452c", "#fbc08d"]
    ).with_extremes(bad="#ff2bd6")
    changes = planes(scene.cropped(result.transform.jacobian()), at)
    for row, name in enumerate(("fixed", "before", "after")):
        low, high = scene.windows["fixed" if name == "fixed" else "moving"]
        for plane, shown in enumerate(scene.slices(name, at)):
            ax = _axes(drawn.add_subplot(grid[row, plane]), letters[plane])
            ax.imshow(shown, cmap="gray", vmin=low, vmax=high, extent=extents[plane])
            ax.set_title(PLANES[plane] if row == 0 else "", fontsize=9)
            ax.set_ylabel(name if plane == 0 else "")
    last = []
    for plane, shown in enumerate(changes):
        ax = _axes(drawn.add_subplot(grid[3, plane]), letters[plane])
        folds = np.ma.masked_where(shown <= 0, np.log(np.maximum(shown, 1e-3)))
        painted = ax.imshow(folds, cmap=colors, vmin=-_MOST, vmax=_MOST, extent=extents[plane])
        ax.set_ylabel("volume change" if plane == 0 else "")
        last.append(ax)
    bar = drawn.colorbar(painted, ax=last, shrink=0.8, ticks=[-_MOST, 0, _MOST])
    bar.ax.set_yticklabels(["\u00d70.25", "\u00d71", "\u00d74"], fontsize=7)
    return drawn


def _axes(ax: Axes, letters: tuple[str, str, str, str]) -> Axes:
    """Return axes without ticks, with the four letters."""
    ax.set_xticks([])
    ax.set_yticks([])
    for text, (x, y) in zip(letters, ((0.03, 0.5), (0.97, 0.5), (0.5, 0.95), (0.5, 0.05))):
        ax.text(
            x, y, text, color="#e8d36b", fontsize=7, ha="center", va="center",
            transform=ax.transAxes,
        )  # fmt: skip
    return ax
