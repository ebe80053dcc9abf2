"""morphseek apply"""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from ._app import app, reported
from .options import Json


class _Interpolation(str, enum.Enum):
    linear = "linear"
    nearest = "nearest"


@app.command()
def apply(
    transform: Annotated[
        Path,
        typer.Option(
            help="Transform, fixed to moving: transform.h5 of a registration, or any .h5 or .tfm.",
            show_default=False,
        ),
    ],
    image: Annotated[
        Path,
        typer.Option(
            "--input", "-i", help="Image or label map in the moving space.", show_default=False
        ),
    ],
    reference: Annotated[
        Path,
        typer.Option(
            "--reference",
            "-r",
            help="Image whose grid the output gets: the fixed one.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.", show_default=False)],
    interpolation: Annotated[
        _Interpolation, typer.Option(help="nearest for label maps.")
    ] = _Interpolation.linear,
    as_json: Json = False,
) -> None:
    """Resample an image or a label map by a transform."""
    with reported(as_json):
        from .. import images, transforms

        images.check_apart(
            out.parent, [out.name], {"transform": transform, "input": image, "reference": reference}
        )
        loaded = transforms.read(transform)
        source, target = images.read(image, "input"), images.read(reference, "reference")
        nearest = interpolation is _Interpolation.nearest
        images.write(out, transforms.resample(source, target, loaded, nearest))
        print(json.dumps({"out": str(out)}) if as_json else out)
