"""Pictures of planes: grey values, the outlines of labels, and the letters of the patient's sides.

It knows arrays and grids alone, so that images may draw themselves.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from .._grid import Grid
from .axes import Axes, plane_letters, plane_sizes, planes

Bytes = NDArray[np.uint8]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

GREYS = 64
FIXED, MOVING, LETTER, LINE = range(GREYS, GREYS + 4)
_COLORS = ((79, 179, 217), (240, 169, 74), (232, 211, 107), (40, 46, 50))
_PALETTE = [v for n in range(GREYS) for v in 3 * (n * 255 // (GREYS - 1),)] + [*sum(_COLORS, ())]
_GAP = 2  # pixels between planes
_LETTERED = 80  # pixels that a plane with letters has at least


def png(indices: Bytes) -> bytes:
    """Return a picture of palette indices as a PNG file."""
    picture = Image.fromarray(indices)
    picture.putpalette(_PALETTE)
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=4)
    return file.getvalue()


def stretched(image: np.ndarray, height: int, width: int) -> NDArray[np.float32]:
    """Return an image at another size: linear between pixels, their mean where it is small."""
    drawn = Image.fromarray(np.ascontiguousarray(image, np.float32))
    return np.asarray(drawn.resize((width, height), Image.Resampling.BILINEAR))


def borders(labels: np.ndarray) -> NDArray[np.bool_]:
    """Return where a label ends: pixels whose right or lower neighbour has another one."""
    ends = np.zeros(labels.shape, bool)
    ends[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    ends[:-1] |= labels[:-1] != labels[1:]
    return ends


@functools.cache
def _font() -> Font:
    return ImageFont.load_default(18)


def sheet(
    rows: Sequence[Sequence[np.ndarray]], outlines: Sequence[Sequence[tuple[np.ndarray, int]]],
    sizes_mm: Sequence[tuple[float, float]], letters: Sequence[tuple[str, str, str, str]],
    width: int,
) -> Bytes:  # fmt: skip
    """Return rows of planes in one picture.

    Parameters
    ----------
    rows : sequence of sequence of array
        Grey values 0 to 1 of every plane; rows of the same planes.
    outlines : sequence of sequence of (array, color)
        For each plane of each row, row by row, the label images to be outlined.
    sizes_mm : sequence of (height, width)
        Of the planes.
    letters : sequence of (left, right, top, bottom)
        Of the planes.
    width : int
        Of the picture in pixels; a high one is drawn narrower.
    """
    scale = (width - _GAP * (len(sizes_mm) - 1)) / sum(w for _, w in sizes_mm)
    scale = min(scale, 1.1 * width / (max(h for h, _ in sizes_mm) * len(rows)))
    cells = [(max(2, round(h * scale)), max(2, round(w * scale))) for h, w in sizes_mm]
    tall = max(h for h, _ in cells)
    picture = Image.new(
        "L", (sum(w for _, w in cells) + _GAP * (len(cells) - 1), (tall + _GAP) * len(rows) - _GAP)
    )
    paint = ImageDraw.Draw(picture)
    paint.fontmode = "1"  # a letter has one color
    lined = iter(outlines)
    for r, row in enumerate(rows):
        left = 0
        for plane, (h, w), names in zip(row, cells, letters):
            top = r * (tall + _GAP) + (tall - h) // 2
            cell = (np.clip(stretched(plane, h, w), 0, 1) * (GREYS - 1) + 0.5).astype(np.uint8)
            for labels, color in next(lined, ()):
                drawn = Image.fromarray(np.ascontiguousarray(labels, np.uint8))
                large = drawn.resize((w, h), Image.Resampling.NEAREST)
                cell[borders(np.asarray(large))] = color
            picture.paste(Image.fromarray(cell), (left, top))
            if min(h, w) > _LETTERED:
                places = ((3, h / 2, "lm"), (w - 3, h / 2, "rm"), (w / 2, 3, "mt"),
                          (w / 2, h - 3, "mb"))  # fmt: skip
                for name, (x, y, anchor) in zip(names, places):
                    paint.text((left + x, top + y), name, LETTER, _font(), anchor)
            left += w + _GAP
        if r:
            end = r * (tall + _GAP) - 1
            paint.rectangle((0, end - _GAP + 1, picture.width, end), LINE)
    return np.asarray(picture)


def three_planes(
    volume: np.ndarray, grid: Grid, width: int = 420, low: float = 0.0, high: float = 1.0
) -> bytes:
    """Return the middle planes of a volume (z, y, x), black to white by low to high, as PNG."""
    axes = Axes(grid)
    turned = axes.turn(volume)
    middle = [n // 2 for n in turned.shape[::-1]]
    spacing = [grid.spacing[column] for column in axes.columns]
    sizes = plane_sizes([n * s for n, s in zip(turned.shape[::-1], spacing)])
    grey = [
        (plane.astype(np.float32) - low) / max(high - low, 1e-12)
        for plane in planes(turned, middle)
    ]
    return png(sheet([grey], [[], [], []], sizes, plane_letters(axes.letters()), width))
