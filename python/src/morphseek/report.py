"""report.html: one self-contained page that shows what a registration did."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import io as bytesio
import itertools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _files, images as io
from .result import RegistrationResult
from .scoring import LabelScore, mean_dice
from .transforms import minimum, resample_identity
from .verdict import UNKNOWN, Verdict, explanation, millimetres, notes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BACKGROUND, _TEXT, _FIXED, _MOVING, _FOLD = "#14181b", "#c9d1d6", "#4fb3d9", "#f0a94a", "#ff2bd6"
_PLANES = ("axial", "coronal", "sagittal")
# Letters at the left, right, top and bottom of each plane: radiological convention, the patient's
# right on the viewer's left.
_LETTERS = {"axial": "RLAP", "coronal": "RLSI", "sagittal": "APSI"}


def write_report(
    path: str | os.PathLike[str],
    result: RegistrationResult,
    fixed: io.ImageLike,
    moving: io.ImageLike,
    *,
    fixed_labels: io.ImageLike | None = None,
    moving_labels: io.ImageLike | None = None,
    scores: Sequence[LabelScore] = (),
    label_names: dict[int, str] | None = None,
    command: str = "",
    title: str = "",
    truth: dict[str, Any] | None = None,
) -> None:
    """Write the page.

    Parameters
    ----------
    path : path
        Of the .html file.
    result : RegistrationResult
    fixed, moving : ImageLike
        What was registered.
    fixed_labels, moving_labels : ImageLike, optional
        Their outlines are drawn.
    scores : sequence of LabelScore
        From :func:`morphseek.scoring.score_labels`.
    label_names : dict, optional
        Label number to name.
    command : str
        What repeats the registration; empty where no command did it.
    title : str
        Which images, for the heading.
    truth : dict, optional
        Of a made-up pair the errors at points, from :meth:`morphseek.phantoms.PhantomPair.errors`.
    """
    import jinja2

    target, source = (
        _drawable(io.read(image, name)) for image, name in ((fixed, "fixed"), (moving, "moving"))
    )
    before = resample_identity(source, result.grid, "linear", minimum(source.array))
    views = _Views(result.grid, target, fixed_labels)
    images = {
        "fixed": views.take(target.array),
        "before": views.take(before),
        "after": views.take(_known(result.warped)),
    }
    outlines = None
    if fixed_labels is not None and moving_labels is not None:
        labels = io.read_on(moving_labels, result.moving_grid, "moving labels")
        outlines = [
            views.take(a)
            for a in (
                io.read(fixed_labels, "fixed labels").array,
                resample_identity(labels, result.grid, "nearest", 0.0),
                result.apply(labels, interpolation="nearest").array,
            )
        ]
    same = result.metrics["align"]["same_modality"]
    figures = [
        (
            "Fixed, moving and warped",
            "The moving image as it lay before, and resampled once by the transform found.",
            _three(views, images),
        ),
        *(
            [
                (
                    "Label outlines",
                    "Fixed labels in blue, moving labels in orange, on the fixed image.",
                    _outlines(views, images["fixed"], outlines),
                )
            ]
            if outlines
            else []
        ),
        (
            "Checkerboard",
            (
                "Fields of the fixed and the moving image in turn: structures should run on across"
                " the borders."
            ),
            _checkerboard(views, images),
        ),
        (
            (
                "Difference",
                "Moving minus fixed, each scaled to its own range: grey where they agree.",
                _difference(views, images),
            )
            if same
            else (
                "Edges",
                (
                    "Edges of the moving image, in orange, on the fixed image; the two contrasts"
                    " are too different to subtract."
                ),
                _edges(views, images),
            )
        ),
        (
            "Deformation",
            (
                "The grid shows the deformation behind the initial transform. Below, the logarithm"
                " of the total transform's Jacobian determinant: blue shrinks towards the moving"
                " image, orange grows, magenta marks folding."
            ),
            _deformation(views, result, images["after"]),
        ),
    ]
    if result.uncertainty is not None:
        how = result.metrics["uncertainty"]
        caption = "The standard deviation of the displacement in mm, "
        if how["source"] == "policy":
            caption += (
                f"over {how['samples']} samples of the network's policy: where the network itself"
                " wavers. It is no estimate of the error, which can be many times larger."
            )
        else:
            caption += (
                "from how well other displacements would have matched, up to three voxels of the"
                " search's grid away. Dark: the match is sharp. Bright: other displacements match"
                " about as well, so do not measure or set a target there without looking; that no"
                " other place looks alike does not prove that this one is right."
            )
        figures.append(
            (
                "Uncertainty",
                caption,
                _uncertainty(views, images["fixed"], views.take(result.uncertainty), how["p95_mm"]),
            )
        )
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("morphseek"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("report.html").render(
        title=title,
        date=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        metrics=result.metrics,
        verdict=_verdict(result.verdict),
        notes=notes(result.metrics),
        options=result.options,
        command=command,
        tiles=_tiles(result, scores, truth),
        truth=truth,
        figures=[(heading, caption, _png(figure)) for heading, caption, figure in figures],
        scores=[
            dataclasses.asdict(s) | {"name": (label_names or {}).get(s.label, str(s.label))}
            for s in scores
        ],
        table=_table(result, target, source),
        explanation=explanation(result.metrics),
        seconds={name: s for name, s in result.metrics["seconds"].items() if name != "total"},
    )
    _files.write_text(path, html)


def _verdict(verdict: Verdict | None) -> dict[str, Any]:
    """Return what the head of the page says."""
    return {
        "grade": verdict.grade if verdict else UNKNOWN,
        "meaning": (
            verdict.meaning if verdict else "the result is of a library that gave no verdict"
        ),
        "reasons": verdict.reasons if verdict else (),
        "error": f"Estimated mean error: {millimetres(verdict.error_mm)}." if verdict else "",
    }


def _tiles(
    result: RegistrationResult, scores: Sequence[LabelScore], truth: dict[str, Any] | None
) -> list[tuple[str, str, str]]:
    """Return the figures at the head: what, value, remark."""
    m = result.metrics
    tiles = []
    if truth:
        after, initial = truth["after"], truth["initial"]
        remark = (
            f"median {after['median_mm']:.1f}, 95 % below {after['p95_mm']:.1f}; by the initial"
            f" transform {initial['mean_mm']:.1f}"
        )
        tiles.append(("Mean error to the truth", f"{after['mean_mm']:.1f} mm", remark))
    if scores:
        tiles.append(
            ("Mean Dice", f"{mean_dice(scores):.3f}", f"before {mean_dice(scores, 'before'):.3f}")
        )
    tiles.append(
        (
            f"Similarity ({m['similarity']})",
            f"{m['similarity_after']:.3f}",
            f"before {m['similarity_before']:.3f}",
        )
    )
    tiles.append(
        (
            "Folding (NJD)",
            f"{m['njd_percent']:.3f} %",
            "none" if m["njd_percent"] == 0 else "of all voxels",
        )
    )
    tiles.append(
        (
            "Mean displacement",
            f"{m['displacement_mean_mm']:.1f} mm",
            f"largest {m['displacement_max_mm']:.1f} mm",
        )
    )
    if spread := m.get("uncertainty"):
        tiles.append(
            ("Uncertainty", f"{spread['mean_mm']:.1f} mm", f"95 % below {spread['p95_mm']:.1f} mm")
        )
    tiles.append(
        (
            "Time",
            f"{m['seconds']['total']:.1f} s",
            f"on {m['device']}, {m['threads']} threads"
            + (", from the cache" if m["cached"] else ""),
        )
    )
    return tiles


def _table(result: RegistrationResult, fixed: io.Image, moving: io.Image) -> list[tuple[str, str]]:
    m = result.metrics
    return [
        ("Fixed image", repr(fixed)[6:-1]),
        ("Moving image", repr(moving)[6:-1]),
        (
            "Similarity before / initial / after",
            (
                f"{m['similarity_before']:.4f} / {m['similarity_align']:.4f} /"
                f" {m['similarity_after']:.4f}"
            ),
        ),
        (
            "Initial transform",
            (
                f"{m['align']['method']}, confidence {m['align']['confidence']:.2f}, overlap"
                f" {100 * m['align']['overlap']:.0f} %"
            ),
        ),
        ("Modality", "same" if m["align"]["same_modality"] else "different"),
        (
            "Jacobian determinant",
            f"{m['jacobian_min']:.3f} to {m['jacobian_max']:.3f}, SDlogJ {m['sdlogj']:.4f}",
        ),
        ("Model", m["model"]),
        (
            "Network steps",
            (
                ", ".join(f"{s['reward']:.4f}" for s in m["steps"]) + " (reward)"
                if m["steps"]
                else "none"
            ),
        ),
        ("Refinement", _refinement(m["refine"])),
        ("Peak memory", f"{m['peak_bytes'] / 2**20:.0f} MiB"),
        ("MorphSeek", m["version"]),
    ]


def _refinement(refine: dict[str, Any]) -> str:
    levels = refine["levels"] or []
    return (
        "none"
        if not levels
        else f"{refine['similarity']}, "
        + ", ".join(
            f"{len(level['similarity'])} iterations at {level['spacing_mm']:.1f} mm"
            for level in levels
        )
    )


def _known(array: np.ndarray) -> np.ndarray:
    """Return the voxels with the least of them where there is no intensity: the engine's rule, NaN,
    infinite, or next to it.
    """
    if array.dtype.kind != "f":
        return array
    with np.errstate(invalid="ignore"):
        known = np.abs(array) <= 1e37
    return (
        array if known.all() else np.where(known, array, array[known].min() if known.any() else 0)
    )


def _drawable(image: io.Image) -> io.Image:
    return image.like(_known(image.array))


class _Views:
    """The three orthogonal slices of volumes on one grid, turned to the nearest anatomical axes."""

    def __init__(self, grid: np.ndarray, fixed: io.Image, labels: io.ImageLike | None):
        direction = grid[9:18].reshape(3, 3)
        # index axis that runs along x, y, z
        columns = max(
            itertools.permutations(range(3)),
            key=lambda order: sum(abs(direction[r, c]) for r, c in enumerate(order)),
        )
        self.order = [2 - columns[r] for r in (2, 1, 0)]  # array axes that run along z, y, x
        self.signs = [float(np.sign(direction[r, columns[r]])) for r in (2, 1, 0)]
        self.spacing = [float(grid[3 + columns[r]]) for r in (2, 1, 0)]
        self.sizes = [int(grid[columns[r]]) for r in (2, 1, 0)]
        inside = fixed.array > fixed.array.mean() if labels is None else io.read(labels).array != 0
        turned = self.turn(inside)
        self.center = [_median(turned, axis) for axis in range(3)]

    def turn(self, volume: np.ndarray) -> np.ndarray:
        """Return the volume with axes z, y, x running to S, P and L."""
        turned = volume.transpose(self.order)
        return turned[tuple(slice(None, None, -1 if s < 0 else 1) for s in self.signs)]

    def take(self, volume: np.ndarray) -> list[np.ndarray]:
        """Return the axial, coronal and sagittal slice, as they are shown."""
        turned = self.turn(volume)
        z, y, x = self.center
        return [
            np.ascontiguousarray(s, dtype=np.float32)
            for s in (turned[z], turned[::-1, y], turned[::-1, :, x])
        ]

    def axes(self, plane: int) -> tuple[int, int]:
        """Return which of z, y, x run down and across a plane."""
        return ((1, 2), (0, 2), (0, 1))[plane]

    def extent(self, plane: int) -> tuple[float, float, float, float]:
        """Return the plane's extent in mm from its first voxel's edge: left, right, bottom, top."""
        down, across = self.axes(plane)
        return (
            0.0,
            self.sizes[across] * self.spacing[across],
            self.sizes[down] * self.spacing[down],
            0.0,
        )


def _median(inside: np.ndarray, axis: int) -> int:
    """Return the index along an axis in the middle of the voxels that are true; of all where none
    is.
    """
    counts = np.cumsum(np.count_nonzero(inside, axis=tuple({0, 1, 2} - {axis})))
    return int(np.searchsorted(counts, (counts[-1] + 1) // 2)) if counts[-1] else len(counts) // 2


def _window(slices: list[np.ndarray]) -> tuple[float, float]:
    low, high = np.percentile(np.concatenate([s.ravel() for s in slices]), (0.5, 99.5))
    return float(low), float(high if high > low else low + 1)


def _scaled(slices: list[np.ndarray]) -> list[np.ndarray]:
    low, high = _window(slices)
    return [np.clip((s - low) / (high - low), 0, 1) for s in slices]


def _figure(views: _Views, rows: Sequence[str], draw: Callable[[Any, int, int], Any]) -> Figure:
    """Draw rows of three planes; draw(axes, row, plane) fills one."""
    from matplotlib.figure import Figure

    widths = [views.extent(p)[1] for p in range(3)]
    heights = [views.extent(p)[2] for p in range(3)]
    width = 11.0
    scale = width / sum(widths)
    # of a long volume the planes are drawn narrower
    row_height = min(max(heights) * scale, 1.5 * width)
    figure = Figure(
        figsize=(width + 0.35, (row_height + 0.12) * len(rows) + 0.3),
        facecolor=_BACKGROUND,
        dpi=100,
    )
    grid = figure.add_gridspec(
        len(rows),
        3,
        width_ratios=widths,
        left=0.035,
        right=0.995,
        top=1 - 0.3 / figure.get_figheight(),
        bottom=0.005,
        wspace=0.02,
        hspace=0.03,
    )
    for r, name in enumerate(rows):
        for p, plane in enumerate(_PLANES):
            axes = figure.add_subplot(grid[r, p])
            draw(axes, r, p)
            left, right, bottom, top = views.extent(p)
            axes.set(
                xlim=(left, right),
                ylim=(bottom, top),
                xticks=[],
                yticks=[],
                aspect="equal",
                facecolor="black",
            )
            for spine in axes.spines.values():
                spine.set_visible(False)
            places = (
                (0.02, 0.5, "left", "center"),
                (0.98, 0.5, "right", "center"),
                (0.5, 0.98, "center", "top"),
                (0.5, 0.02, "center", "bottom"),
            )
            for letter, (x, y, ha, va) in zip(_LETTERS[plane], places):
                axes.text(
                    x,
                    y,
                    letter,
                    transform=axes.transAxes,
                    ha=ha,
                    va=va,
                    color="#e8d36b",
                    fontsize=9,
                    fontweight="bold",
                )
            if r == 0:
                axes.set_title(plane, color=_TEXT, fontsize=10, pad=4)
            if p == 0:
                axes.set_ylabel(name, color=_TEXT, fontsize=10)
    return figure


def _show(axes: Any, views: _Views, plane: int, slice_: np.ndarray, **how: Any) -> Any:
    return axes.imshow(
        slice_, extent=views.extent(plane), **{"cmap": "gray", "interpolation": "bilinear", **how}
    )


def _three(views: _Views, images: dict[str, list[np.ndarray]]) -> Figure:
    keys = ("fixed", "before", "after")
    windows = {key: _window(images[key]) for key in keys}
    windows["before"] = windows["after"]

    def draw(axes: Any, row: int, plane: int) -> None:
        low, high = windows[keys[row]]
        _show(axes, views, plane, images[keys[row]][plane], vmin=low, vmax=high)

    return _figure(views, ("fixed", "moving", "warped"), draw)


def _outlines(views: _Views, fixed: list[np.ndarray], labels: list[list[np.ndarray]]) -> Figure:
    scaled = _scaled(fixed)

    def draw(axes: Any, row: int, plane: int) -> None:
        _show(axes, views, plane, scaled[plane], vmax=1.4)
        for slices, color in ((labels[0], _FIXED), (labels[1 + row], _MOVING)):
            for label in np.unique(slices[plane]):
                if label != 0:
                    _contour(axes, views, plane, slices[plane] == label, 0.5, color)

    return _figure(views, ("before", "after"), draw)


def _contour(
    axes: Any,
    views: _Views,
    plane: int,
    values: np.ndarray,
    level: float,
    color: str,
    width: float = 1.1,
) -> None:
    _, right, bottom, _ = views.extent(plane)
    rows, columns = values.shape
    x = (np.arange(columns) + 0.5) * right / columns
    y = (np.arange(rows) + 0.5) * bottom / rows
    if values.min() < level < values.max():
        axes.contour(x, y, values.astype(np.float32), [level], colors=color, linewidths=width)


def _checkerboard(views: _Views, images: dict[str, list[np.ndarray]]) -> Figure:
    fixed = _scaled(images["fixed"])
    moving = [_scaled(images["before"]), _scaled(images["after"])]
    side = min(max(views.extent(p)[1:3]) for p in range(3)) / 8  # mm

    def draw(axes: Any, row: int, plane: int) -> None:
        _, right, bottom, _ = views.extent(plane)
        rows, columns = fixed[plane].shape
        y, x = np.ogrid[:rows, :columns]
        odd = ((x * right / columns // side) + (y * bottom / rows // side)) % 2 == 1
        _show(axes, views, plane, np.where(odd, moving[row][plane], fixed[plane]), vmin=0, vmax=1)

    return _figure(views, ("before", "after"), draw)


def _difference(views: _Views, images: dict[str, list[np.ndarray]]) -> Figure:
    fixed = _scaled(images["fixed"])
    moving = [_scaled(images["before"]), _scaled(images["after"])]

    def draw(axes: Any, row: int, plane: int) -> None:
        _show(axes, views, plane, moving[row][plane] - fixed[plane], vmin=-0.8, vmax=0.8)

    return _figure(views, ("before", "after"), draw)


def _edges(views: _Views, images: dict[str, list[np.ndarray]]) -> Figure:
    from scipy.ndimage import gaussian_gradient_magnitude

    fixed = _scaled(images["fixed"])
    edges = [
        [gaussian_gradient_magnitude(s, 1.0) for s in _scaled(images[key])]
        for key in ("before", "after")
    ]
    levels = [float(np.percentile(np.concatenate([s.ravel() for s in e]), 82)) for e in edges]

    def draw(axes: Any, row: int, plane: int) -> None:
        _show(axes, views, plane, fixed[plane], vmax=1.2)
        overlay = np.zeros((*fixed[plane].shape, 4), np.float32)
        overlay[..., :3] = [int(_MOVING[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        overlay[..., 3] = 0.9 * np.clip(
            (edges[row][plane] - levels[row]) / max(levels[row], 1e-6), 0, 1
        )
        axes.imshow(overlay, extent=views.extent(plane), interpolation="bilinear")

    return _figure(views, ("before", "after"), draw)


def _deformation(views: _Views, result: RegistrationResult, warped: list[np.ndarray]) -> Figure:
    # The deformation behind the initial transform, in voxels: what is left of Phi after the linear
    # map that it begins with.
    matrix = io.index_to_physical(result.grid)
    # rows and columns in the arrays' order: z, y, x
    linear = (np.linalg.inv(matrix) @ np.linalg.inv(result.initial) @ matrix)[2::-1, [2, 1, 0, 3]]
    index = [
        views.take(np.broadcast_to(i, result.shape))
        for i in np.ogrid[tuple(slice(n) for n in result.shape)]
    ]
    displacement = [views.take(u) for u in result.displacement]

    def rest(axis: int, plane: int) -> np.ndarray:
        return (
            sum(linear[axis, a] * (index[a][plane] + displacement[a][plane]) for a in range(3))
            + linear[axis, 3]
            - index[axis][plane]
        )

    turned = [
        [views.signs[i] * rest(views.order[i], plane) for plane in range(3)] for i in range(3)
    ]
    jacobian = views.take(result.jacobian())
    log_jacobian = [np.log(np.maximum(j, 1e-3)) for j in jacobian]
    bound = max(
        0.3, float(np.percentile(np.abs(np.concatenate([j.ravel() for j in log_jacobian])), 99))
    )
    scaled = _scaled(warped)
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list(
        "jacobian", ["#8fd3f4", "#2b6cb0", "#1b2024", "#b3452c", "#fbc08d"]
    ).with_extremes(bad=_FOLD)

    def draw(axes: Any, row: int, plane: int) -> None:
        if row == 1:
            shown = np.ma.masked_where(jacobian[plane] <= 0, log_jacobian[plane])
            image = axes.imshow(
                shown,
                extent=views.extent(plane),
                cmap=colors,
                vmin=-bound,
                vmax=bound,
                interpolation="nearest",
            )
            if plane == 2:
                _bar(axes, image)
            return
        _show(axes, views, plane, scaled[plane], vmax=1.5)
        down, across = views.axes(plane)
        # coronal and sagittal planes are shown upside down: S at the top
        flip = -1 if plane > 0 else 1
        u_down = flip * turned[down][plane] * views.spacing[down]
        u_across = turned[across][plane] * views.spacing[across]
        rows, columns = u_down.shape
        grid_y, grid_x = np.meshgrid(
            (np.arange(rows) + 0.5) * views.spacing[down],
            (np.arange(columns) + 0.5) * views.spacing[across],
            indexing="ij",
        )
        step_y, step_x = (
            max(1, round(9.0 * max(views.extent(0)[1:3]) / 300 / views.spacing[a]))
            for a in (down, across)
        )
        gx, gy = grid_x + u_across, grid_y + u_down
        nodes = np.stack((gx, gy), axis=-1)
        lines = [*nodes[::step_y], *nodes[:, ::step_x].swapaxes(0, 1)]
        # one, since hundreds of lines take long
        axes.add_collection(
            LineCollection(lines, colors=_FIXED, linewidths=0.6, alpha=0.9), autolim=False
        )

    return _figure(views, ("grid on warped", "log Jacobian"), draw)


def _bar(axes: Any, image: Any) -> Any:
    """Add a colour bar inside the axes, at the upper right."""
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((0.9, 0.62, 0.025, 0.33)))
    bar.ax.tick_params(
        colors=_TEXT, labelsize=7, left=True, right=False, labelleft=True, labelright=False
    )
    bar.outline.set_visible(False)
    return bar


def _uncertainty(
    views: _Views, fixed: list[np.ndarray], spread: list[np.ndarray], p95: float
) -> Figure:
    scaled = _scaled(fixed)

    def draw(axes: Any, row: int, plane: int) -> None:
        _show(axes, views, plane, scaled[plane], vmax=1.2)
        visible = 0.7 * np.clip(scaled[plane] / 0.15, 0, 1)  # in the air it says nothing
        image = _show(
            axes,
            views,
            plane,
            spread[plane],
            cmap="inferno",
            alpha=visible,
            vmin=0,
            vmax=max(1.2 * p95, 1e-3),
        )
        if plane == 2:
            bar = _bar(axes, image)
            bar.set_alpha(1)
            bar.ax.set_title("mm", color=_TEXT, fontsize=7, pad=3)

    return _figure(views, ("uncertainty",), draw)


def _png(figure: Figure) -> str:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image  # matplotlib's own writer of PNG

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    buffer = bytesio.BytesIO()
    # Opaque, and nearly as small as by the defaults in less than half the time.
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(
        buffer, "png", compress_level=3
    )
    return base64.b64encode(buffer.getvalue()).decode()
