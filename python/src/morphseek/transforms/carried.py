"""Files of points, surfaces and tracts under a transform.

Their points go from the fixed to the moving space: the opposite way to images.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from .. import errors, images
from .._features import needing
from .._files import readable, write_with
from .._grid import RAS, RAS_SIGNS, Grid
from ..images.formats import ending_of
from ..images.frames import Frames
from ..landmarks import Landmarks
from .transform import Transform

POINTS = (".mrk.json", ".fcsv", ".csv")
GIFTI = (".gii",)
MESHES = (".vtk", ".vtp", ".stl", ".ply")
TRACTS = (".tck", ".trk")
_FOREIGN = (Exception,)  # of a bad file: each library has its own, and some have none
#: How many numbers a vector or a tensor has, which would have to be rotated.
_TURNING = (3, 6, 9)
_SPACE = re.compile(rb"SPACE\s*=\s*(LPS|RAS)", re.I)


def is_geometry(path: str | os.PathLike[str]) -> bool:
    """Whether a file's ending is one of points, surfaces or tracts."""
    return ending_of(path, (*POINTS, *GIFTI, *MESHES, *TRACTS)) != ""


def carry(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    transform: Transform,
    reference: images.ImageLike | None = None,
) -> int:
    """Map the points of a file from fixed to moving space and write them; return how many. Points
    can go to a file of another ending, so can surfaces but those of ``.gii``, so can tracts; a
    ``.trk`` names ``reference``, the image of the space that they go to.
    """
    source, out = Path(source), Path(out)
    kinds = ((POINTS, _points), (GIFTI, _gifti), (MESHES, _mesh), (TRACTS, _tracts))
    endings, function = next(kind for kind in kinds if ending_of(source, kind[0]))
    with readable(source, "input"):
        if not ending_of(out, endings):
            raise errors.OutputUnwritableError(
                f"{out}: what {source.name} holds is written to {', '.join(endings)}; give the file"
                " such an ending"
            )
        return function(source, out, transform, reference)


def _points(source: Path, out: Path, transform: Transform, reference: Any) -> int:
    points = Landmarks.read(source, "input")
    if points.unplaced:
        errors._warn(
            f"{points.source}: points without a place were left out: {', '.join(points.unplaced)}"
        )
    Landmarks(transform.transform_points(points.points), points.names).write(out)
    return len(points)


def _checked(points: np.ndarray, path: Path) -> np.ndarray:
    if not len(points):
        raise errors.InputUnreadableError(f"input: {path} has no points")
    if not np.isfinite(points).all():
        raise errors.InputUnreadableError(f"input: {path} has points that are no numbers")
    return points


def _gifti(source: Path, out: Path, transform: Transform, reference: Any) -> int:
    with needing("surfaces", str(source)):
        import nibabel
    with readable(source, "input", _FOREIGN):
        surface: Any = nibabel.load(source)
        arrays = surface.get_arrays_from_intent("NIFTI_INTENT_POINTSET")
        if len(arrays) != 1:
            raise errors.InputUnreadableError(
                f"input: {source} has {len(arrays)} sets of points; give one surface"
            )
        pointset = arrays[0]
        shifted = [float(pointset.meta.get(f"VolGeomC_{axis}", 0)) for axis in "RAS"]
    if any(shifted):
        raise errors.InputUnreadableError(
            f"input: {source} counts from FreeSurfer's own centre {shifted}; write it anew with"
            " mris_convert --to-scanner"
        )
    points = _checked(np.asarray(pointset.data, dtype=np.float64), source)
    targets = transform.transform_points(points * RAS_SIGNS) * RAS_SIGNS
    pointset.data = targets.astype(pointset.data.dtype)
    surface.remove_gifti_data_array_by_intent("NIFTI_INTENT_VECTOR")
    write_with(lambda temporary: nibabel.save(surface, temporary), out)
    return len(points)


def _mesh(source: Path, out: Path, transform: Transform, reference: Any) -> int:
    with needing("surfaces", str(source)):
        from vtkmodules import vtkIOGeometry, vtkIOLegacy, vtkIOPLY, vtkIOXML
        from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
        from vtkmodules.vtkCommonCore import vtkPoints, vtkStringArray
    formats: dict[str, tuple[Any, str]] = {
        ".vtk": (vtkIOLegacy, "vtkPolyData"),
        ".vtp": (vtkIOXML, "vtkXMLPolyData"),
        ".stl": (vtkIOGeometry, "vtkSTL"),
        ".ply": (vtkIOPLY, "vtkPLY"),
    }
    module, name = formats[ending_of(source, MESHES)]
    reader = getattr(module, f"{name}Reader")()
    reader.SetFileName(str(source))
    reader.GlobalWarningDisplayOff()
    reader.Update()
    mesh = reader.GetOutput()
    count = mesh.GetNumberOfPoints()
    if not count:
        raise errors.InputUnreadableError(f"input: {source} has no points of a surface")
    # Slicer says the space in a comment, in a .vtp in a field, and takes LPS where there is none
    with open(source, "rb") as file:
        match = _SPACE.search(file.read(1024))
    space = match[1].decode() if match else ""
    if (told := mesh.GetFieldData().GetAbstractArray("SPACE")) is not None:
        space = str(told.GetValue(0))
        mesh.GetFieldData().RemoveArray("SPACE")
    signs = RAS_SIGNS if space.upper() == "RAS" else np.ones(3)
    points = _checked(vtk_to_numpy(mesh.GetPoints().GetData()).astype(np.float64), source)
    targets = transform.transform_points(points * signs)  # and in LPS from here on
    vertices = vtkPoints()
    vertices.SetData(numpy_to_vtk(targets, deep=True))
    mesh.SetPoints(vertices)
    for data in (mesh.GetPointData(), mesh.GetCellData()):
        for k in reversed(range(data.GetNumberOfArrays())):
            array = data.GetArray(k)  # None: of texts
            is_float = array is not None and array.GetDataTypeAsString() in ("float", "double")
            if (
                is_float
                and array.GetNumberOfComponents() in _TURNING
                and array != data.GetTCoords()
            ):
                data.RemoveArray(k)
    module, name = formats[ending_of(out, MESHES)]
    writer = getattr(module, f"{name}Writer")()
    note = "SPACE=LPS"
    if name == "vtkXMLPolyData":
        field = vtkStringArray()
        field.SetName("SPACE")
        field.InsertNextValue("LPS")
        mesh.GetFieldData().AddArray(field)
    if hasattr(writer, "SetHeader"):
        writer.SetHeader(f"MorphSeek. {note}")
    elif hasattr(writer, "AddComment"):
        writer.AddComment(note)
    if hasattr(writer, "SetFileTypeToBinary"):
        writer.SetFileTypeToBinary()
    writer.SetInputData(mesh)

    def put(temporary: Path) -> None:
        writer.SetFileName(str(temporary))
        if not writer.Write():
            raise OSError(None, "VTK does not say why")

    write_with(put, out)
    return count


def _tracts(source: Path, out: Path, transform: Transform, reference: Any) -> int:
    with needing("surfaces", str(source)):
        from nibabel import streamlines as library
    streamlines: Any = library
    with readable(source, "input", _FOREIGN):
        content = streamlines.load(source)
        tracts = [np.asarray(line, dtype=np.float64) for line in content.streamlines]  # RAS mm
    lengths = [len(line) for line in tracts]
    count = sum(lengths)
    if count:
        points = _checked(np.concatenate(tracts), source)
        targets = transform.transform_points(points * RAS_SIGNS) * RAS_SIGNS
        tracts = np.split(targets.astype(np.float32), np.cumsum(lengths)[:-1])
    more = {}
    if ending_of(out, (".trk",)):  # a .tck holds points alone
        kinds = ("data_per_streamline", "data_per_point")
        more = {kind: getattr(content.tractogram, kind) for kind in kinds}
    tractogram = streamlines.Tractogram(tracts, affine_to_rasmm=np.eye(4), **more)
    same = ending_of(source, TRACTS) == ending_of(out, TRACTS)
    header = dict(content.header.items()) if same else {}
    if ending_of(out, (".tck",)):
        file = streamlines.TckFile(tractogram, header)
    else:
        if reference is not None:
            header = _trk_header(header, next(iter(Frames(reference, "reference"))).grid)
        elif not same:
            raise errors.InvalidArgumentError(
                f"{out}: a .trk says on which image its tracts lie; give it as reference"
            )
        file = streamlines.TrkFile(tractogram, header)
    write_with(lambda temporary: file.save(str(temporary)), out)
    return count


def _trk_header(header: dict[str, Any], grid: Grid) -> dict[str, Any]:
    from nibabel import aff2axcodes

    to_ras = RAS @ grid.index_to_physical
    return header | {
        "voxel_to_rasmm": to_ras.astype(np.float32),
        "dimensions": np.array(grid.size, np.int16),
        "voxel_sizes": np.array(grid.spacing, np.float32),
        "voxel_order": "".join(aff2axcodes(to_ras)).encode(),
    }
