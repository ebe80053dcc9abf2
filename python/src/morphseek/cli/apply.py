"""morphseek apply"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import errors
from ._command import command
from .options import MAPS, PATH, json_option, option, out_file, reference_option, stage_option
from .output import Reply, reply
from .transform import inputs, load

_TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]

_PLAIN = {"interpolation": "linear", "background": None, "dtype": None, "modulate": False}


@command(
    "apply",
    option(
        "--transform", "-t", "transforms", type=PATH, required=True, multiple=True,
        help="Transform, fixed to moving: transform.h5 of a registration, or a file of ITK, ANTs,"
        " Slicer, FreeSurfer or elastix; FILE@inverse is its inverse, FILE@greedy says the format."
        " Several in the order in which a point of the reference goes through them, as for"
        " antsApplyTransforms.",
    ),
    option("--inverse", is_flag=True, help="Use the inverse of all that --transform says."),
    stage_option,
    option(
        "--input", "-i", "image", type=PATH, required=True,
        help="Image or label map in the moving space, with time frames or without, or an RT"
        " structure set (.dcm), which is drawn anew on the slices of --reference. Or points (.csv,"
        " .fcsv, .mrk.json), a surface (.vtk, .vtp, .stl, .ply, .gii) or tracts (.tck, .trk): these"
        " go the opposite way, from the fixed to the moving space.",
    ),
    reference_option,
    out_file(help="File to write."),
    option(
        "--interpolation", type=click.Choice(MAPS), default="linear",
        help="nearest for label maps, or label, which leaves no staircase.",
    ),
    option(
        "--background", type=float, metavar="VALUE",
        help="Value outside the image: by default its minimum, which is air in CT, too, where 0"
        " would be water; 0 for labels and with --modulate.",
    ),
    option(
        "--dtype", type=click.Choice(_TYPES),
        help="Type of the voxels: by default the input's. Integers are rounded and clamped.",
    ),
    option(
        "--modulate", is_flag=True,
        help="Multiply by the Jacobian determinant, so that sums over regions stay.",
    ),
    option(
        "--memory", type=click.FloatRange(1), metavar="MB",
        help="Work block by block within about so much memory, from an uncompressed .nii, .nrrd or"
        " .mha to a .nii, .nii.gz or .nrrd. By default so where the images would not fit, within"
        " 1024 at most.",
    ),
    json_option,
)  # fmt: skip
def apply(
    transforms: tuple[Path, ...], inverse: bool, stage: str, image: Path, reference: Path | None,
    out: Path, memory: float | None, **how: Any,
) -> Reply:  # fmt: skip
    """Carry an image, a label map, an RT structure set, points, a surface or tracts across by
    transforms.
    """
    import SimpleITK as sitk

    from .. import images
    from ..images.image import tell
    from ..images.sidecars import check_apart

    check_apart(out.parent, [out.name], inputs(transforms, input=image, reference=reference))
    transform = load(transforms, inverse, stage)
    from ..transforms import blocks, carried, structures

    facts: dict[str, Any] = {"out": str(out)}
    has_structures = structures.is_structure_set(image)
    has_points = has_structures or carried.is_geometry(image)
    if has_points and how != _PLAIN:
        raise errors.InvalidArgumentError(
            f"input: {image} has points and no voxels; leave out --interpolation, --background,"
            " --dtype and --modulate"
        )
    if has_structures:
        facts |= structures.carry(image, out, transform, reference)._asdict()
    elif has_points:
        facts["points"] = carried.carry(image, out, transform, reference)
    elif memory is not None or blocks.needs_blocks(image, out, transform, reference):
        blocks.apply_by_blocks(
            transform, image, out, reference,
            memory=memory * 2**20 if memory else min(2.0**30, blocks.room()), **how,
        )  # fmt: skip
    else:
        moved = transform.apply(image, reference, **how)
        images.write(out, moved)
        voxels = sitk.GetArrayViewFromImage(moved)
        if voxels.min() == voxels.max():
            text = f"{out} is the same everywhere: nothing that {image} shows lies on its grid;"
            tell([f"{text} check that the input is of the moving space"])
    outside = facts.get("outside")
    text = f"outside the reference, so left empty: {', '.join(outside or ())}"
    return reply(facts, [str(out)], alerts=[(text, None)] if outside else [])
