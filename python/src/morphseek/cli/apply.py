"""morphseek apply"""

from __future__ import annotations

import json
from pathlib import Path

import click

from .. import errors
from .._plain import plain
from ._app import app, reported
from .options import PATH, json_option, out_folder
from .transforms import inputs, loaded, reference_option, stage_option

_TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]


@app.command()
@click.option(
    "--transform", "-t", "transforms", type=PATH, required=True, multiple=True,
    help="Transform, fixed to moving: transform.h5 of a registration, or a file of ITK, ANTs,"
    " Slicer, FreeSurfer or elastix; FILE@inverse is its inverse, FILE@greedy says the format."
    " Several in the order in which a point of the reference goes through them, as for"
    " antsApplyTransforms.",
)  # fmt: skip
@click.option("--inverse", is_flag=True, help="Use the inverse of all that --transform says.")
@stage_option
@click.option(
    "--input", "-i", "image", type=PATH, required=True,
    help="Image or label map in the moving space, with time frames or without, or an RT structure"
    " set (.dcm), which is drawn anew on the slices of --reference. Or points (.csv,"
    " .fcsv, .mrk.json), a surface (.vtk, .vtp, .stl, .ply, .gii) or tracts (.tck, .trk): these"
    " go the opposite way, from the fixed to the moving space.",
)  # fmt: skip
@reference_option
@out_folder(required=True, help="File to write.")
@click.option(
    "--interpolation", type=click.Choice(["linear", "cubic", "sinc", "nearest", "label"]),
    default="linear",
    help="nearest for label maps, or label, which leaves no staircase.",
)  # fmt: skip
@click.option(
    "--background", "--fill", type=float, metavar="VALUE", show_default=False,
    help="Value outside the image: by default its minimum; 0 for labels and with --modulate.",
)  # fmt: skip
@click.option(
    "--dtype", type=click.Choice(_TYPES), show_default=False,
    help="Type of the voxels: by default the input's. Integers are rounded and clamped.",
)  # fmt: skip
@click.option(
    "--modulate", is_flag=True,
    help="Multiply by the Jacobian determinant, so that sums over regions stay.",
)  # fmt: skip
@click.option(
    "--memory", type=click.FloatRange(1), metavar="MB", show_default=False,
    help="Work block by block within about so much memory, from an uncompressed .nii, .nrrd or .mha"
    " to a .nii, .nii.gz or .nrrd. By default so where the images would not fit, within 1024.",
)  # fmt: skip
@json_option
def apply(
    transforms: tuple[Path, ...],
    inverse: bool,
    stage: str,
    image: Path,
    reference: Path | None,
    out: Path,
    interpolation: str,
    background: float | None,
    dtype: str | None,
    modulate: bool,
    memory: float | None,
    as_json: bool,
) -> None:
    """Carry an image, a label map, an RT structure set, points, a surface or tracts across by
    transforms.
    """
    with reported(as_json) as notes:
        from .. import images

        images.check_apart(
            out.parent, [out.name], inputs(transforms, input=image, reference=reference)
        )
        transform = loaded(transforms, inverse, stage)
        from ..transforms import blocks, carried, structures

        said: dict[str, object] = {"out": str(out)}
        has_structures = structures.is_structure_set(image)
        if has_structures or carried.is_geometry(image):
            if modulate or dtype or background is not None or interpolation != "linear":
                raise errors.InvalidArgumentError(
                    f"input: {image} has points and no voxels; leave out --interpolation,"
                    " --background, --dtype and --modulate"
                )
        if has_structures:
            brought = structures.carry(image, out, transform, reference)
            said.update(brought._asdict())
            if brought.outside and not as_json:
                names = ", ".join(brought.outside)
                click.echo(plain(f"outside the reference, so left empty: {names}"), err=True)
        elif carried.is_geometry(image):
            said["points"] = carried.carry(image, out, transform, reference)
        elif memory is not None or blocks.needs_blocks(image, out, transform, reference):
            blocks.apply_by_blocks(
                transform,
                image,
                out,
                reference,
                interpolation=interpolation,
                background=background,
                dtype=dtype,
                modulate=modulate,
                memory=(memory or 1024) * 2**20,
            )
        else:
            made = transform.apply(
                image,
                reference,
                interpolation=interpolation,
                background=background,
                dtype=dtype,
                modulate=modulate,
            )
            images.write(out, made)
        if notes:
            said["warnings"] = notes
        print(json.dumps(said) if as_json else plain(str(out)))
