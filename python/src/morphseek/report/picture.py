"""Small pictures without a drawing library: numpy paints, zlib writes the PNG."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from . import pack

Bytes = NDArray[np.uint8]

GREYS = 64
FIXED, MOVING, LETTER, LINE = range(GREYS, GREYS + 4)
COLORS = {
    FIXED: (79, 179, 217),
    MOVING: (240, 169, 74),
    LETTER: (232, 211, 107),
    LINE: (40, 46, 50),
}

# 5 x 7 dots, one number a row
_GLYPHS = {
    "A": (14, 17, 17, 31, 17, 17, 17),
    "I": (14, 4, 4, 4, 4, 4, 14),
    "L": (16, 16, 16, 16, 16, 16, 31),
    "P": (30, 17, 17, 30, 16, 16, 16),
    "R": (30, 17, 17, 30, 20, 18, 17),
    "S": (15, 16, 16, 14, 1, 1, 30),
}


def png(indices: Bytes) -> bytes:
    """Return a picture of palette indices as a PNG file."""
    height, width = indices.shape
    grey = np.arange(GREYS) * 255 // (GREYS - 1)
    palette = [(v, v, v) for v in grey.tolist()] + [COLORS[i] for i in sorted(COLORS)]
    rows = np.full((height, width + 1), 2, np.uint8)  # the first byte: differences to the row above
    rows[0, 1:] = indices[0]
    np.subtract(indices[1:], indices[:-1], out=rows[1:, 1:])
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", bytes(v for color in palette for v in color)),
            (b"IDAT", pack.deflated(rows.tobytes())),
            (b"IEND", b""),
        )
    )


def data_url(file: bytes) -> str:
    """Return a PNG file as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(file).decode()


def stretched(image: np.ndarray, height: int, width: int) -> NDArray[np.float32]:
    """Return an image at another size: linear between pixels, their mean where it is small."""
    image = image.astype(np.float32)
    for axis, size in ((0, height), (1, width)):
        while image.shape[axis] >= 2 * size:
            ends = [slice(None), slice(None)]
            ends[axis] = slice(0, image.shape[axis] // 2 * 2)
            even = np.moveaxis(image[tuple(ends)], axis, 0)
            image = np.moveaxis((even[::2] + even[1::2]) / 2, 0, axis)
        low, high, share = _between(image.shape[axis], size)
        share = share[:, None] if axis == 0 else share
        image = image.take(low, axis) * (1 - share) + image.take(high, axis) * share
    return image.astype(np.float32, copy=False)


def _between(count: int, size: int) -> tuple[np.ndarray, np.ndarray, NDArray[np.float32]]:
    place = np.clip((np.arange(size) + 0.5) * count / size - 0.5, 0, count - 1)
    low = place.astype(np.intp)
    return low, np.minimum(low + 1, count - 1), (place - low).astype(np.float32)


def nearest(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return a label image at another size."""
    rows, columns = (
        ((np.arange(size) + 0.5) * count / size).astype(np.intp)
        for size, count in ((height, image.shape[0]), (width, image.shape[1]))
    )
    picked: np.ndarray = image[rows[:, None], columns]
    return picked


def borders(labels: np.ndarray) -> NDArray[np.bool_]:
    """Return where a label ends: pixels whose right or lower neighbour has another one."""
    found = np.zeros(labels.shape, bool)
    found[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    found[:-1] |= labels[:-1] != labels[1:]
    return found


def write_letters(picture: Bytes, letters: str, x: int, y: int, size: int = 2) -> None:
    """Paint letters centred at a point, where they fit."""
    dots = np.zeros((7, 6 * len(letters) - 1), bool)
    for place, letter in enumerate(letters):
        for row, bits in enumerate(_GLYPHS[letter]):
            dots[row, 6 * place : 6 * place + 5] = [bits >> (4 - column) & 1 for column in range(5)]
    dots = dots.repeat(size, 0).repeat(size, 1)
    height, width = dots.shape
    top = min(max(y - height // 2, 0), picture.shape[0] - height)
    left = min(max(x - width // 2, 0), picture.shape[1] - width)
    if top >= 0 and left >= 0:
        picture[top : top + height, left : left + width][dots] = LETTER


def sheet(
    rows: Sequence[Sequence[np.ndarray]],
    outlines: Sequence[Sequence[tuple[np.ndarray, int]]],
    sizes_mm: Sequence[tuple[float, float]],
    letters: Sequence[tuple[str, str, str, str]],
    width: int,
) -> Bytes:
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
    scale = (width - 2 * (len(sizes_mm) - 1)) / sum(w for _, w in sizes_mm)
    height = max(h for h, _ in sizes_mm)
    scale = min(scale, 1.1 * width / (height * len(rows)))
    cells = [(max(2, round(h * scale)), max(2, round(w * scale))) for h, w in sizes_mm]
    tall = max(h for h, _ in cells)
    picture = np.zeros(
        (tall * len(rows) + 2 * (len(rows) - 1), sum(w for _, w in cells) + 2 * (len(cells) - 1)),
        np.uint8,
    )
    lined = iter(outlines)
    for r, planes in enumerate(rows):
        left, top = 0, r * (tall + 2)
        for plane, (h, w), names in zip(planes, cells, letters):
            y = top + (tall - h) // 2
            cell = picture[y : y + h, left : left + w]
            cell[:] = np.clip(stretched(plane, h, w), 0, 1) * (GREYS - 1) + 0.5
            for labels, color in next(lined, ()):
                cell[borders(nearest(labels, h, w))] = color
            if min(h, w) > 80:
                places = ((9, h // 2), (w - 9, h // 2), (w // 2, 11), (w // 2, h - 11))
                for name, (x, there) in zip(names, places):
                    write_letters(cell, name, x, there)
            left += w + 2
    for r in range(1, len(rows)):
        picture[r * (tall + 2) - 2 : r * (tall + 2)] = LINE
    return picture
