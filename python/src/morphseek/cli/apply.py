"""morphseek apply"""

from __future__ import annotations

import json
from pathlib import Path

import click

from .._plain import plain
from ._app import app, reported
from .options import PATH, json_option, out_folder


@app.command()
@click.option(
    "--transform", type=PATH, required=True,
    help="Transform, fixed to moving: transform.h5 of a registration, or any .h5 or .tfm.",
)  # fmt: skip
@click.option(
    "--input", "-i", "image", type=PATH, required=True,
    help="Image or label map in the moving space.",
)  # fmt: skip
@click.option(
    "--reference", "-r", type=PATH, required=True,
    help="Image whose grid the output gets: the fixed one.",
)  # fmt: skip
@out_folder(required=True, help="File to write.")
@click.option(
    "--interpolation", type=click.Choice(["linear", "nearest"]), default="linear",
    help="nearest for label maps.",
)  # fmt: skip
@json_option
def apply(
    transform: Path, image: Path, reference: Path, out: Path, interpolation: str, as_json: bool
) -> None:
    """Resample an image or a label map by a transform."""
    with reported(as_json):
        from .. import images, transforms

        images.check_apart(
            out.parent, [out.name], {"transform": transform, "input": image, "reference": reference}
        )
        loaded = transforms.read_transform(transform)
        source = images.read(image, "input")
        images.write(out, loaded.apply(source, reference, interpolation))
        print(json.dumps({"out": str(out)}) if as_json else plain(str(out)))
