"""Untrusted transform files: each is read correctly or refused with a message that names it, and
the process survives.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from morphseek import errors
from morphseek.transforms import h5

POINTS = np.random.default_rng(0).uniform(0, 3, (20, 3))
AFFINE = sitk.AffineTransform((1, 0.1, 0, 0, 1, 0.2, 0, 0, 1.1), (1, 2, 3), (4, 5, 6))
EULER = sitk.Euler3DTransform((1, 2, 3), 0.1, 0.2, 0.3, (1, 1, 1))


def field() -> sitk.Transform:
    vectors = np.random.default_rng(1).normal(size=(5, 4, 3, 3))
    return sitk.DisplacementFieldTransform(sitk.GetImageFromArray(vectors, isVector=True))


def spline() -> sitk.Transform:
    made = sitk.BSplineTransformInitializer(sitk.Image(8, 8, 8, sitk.sitkFloat32), [3, 4, 5])
    count = len(made.GetParameters())
    made.SetParameters(np.random.default_rng(2).normal(size=count).tolist())
    return made


SOUND = {
    "affine": lambda: AFFINE,
    "euler": lambda: EULER,
    "field": field,
    "spline": spline,
    "scale": lambda: sitk.ScaleTransform(3, (1, 2, 3)),
    "similarity": lambda: sitk.Similarity3DTransform(1.2, (0, 1, 0), 0.2, (1, 0, 0), (3, 3, 3)),
    "composite": lambda: sitk.CompositeTransform([AFFINE, field(), EULER]),
}


@pytest.mark.parametrize("ending", ["h5", "tfm", "mat"])
@pytest.mark.parametrize("name", SOUND)
def test_what_simpleitk_wrote_is_the_same_map(name: str, ending: str, tmp_path: Path):
    if ending == "mat" and name in ("field", "composite"):
        pytest.skip("ITK writes none")
    path = tmp_path / f"t.{ending}"
    sitk.WriteTransform(SOUND[name](), str(path))
    itk = sitk.ReadTransform(str(path))
    want = [itk.TransformPoint(point) for point in POINTS.tolist()]
    np.testing.assert_array_equal(morphseek.read_transform(path).transform_points(POINTS), want)


TEXT = (
    "#Insight Transform File V1.0\n#Transform 0\nTransform: AffineTransform_double_3_3\n"
    "Parameters: 1 0 0 0 1 0 0 0 1 1 2 3\nFixedParameters: 0 0 0\n"
)
UNSOUND = {
    "fewer": TEXT.replace("1 2 3\n", "1\n"),
    "more": TEXT.replace("1 2 3\n", "1 2 3 4 5 6 7 8 9\n"),
    "no centre": TEXT.replace("FixedParameters: 0 0 0", "FixedParameters: 0"),
    "a long centre": TEXT.replace("FixedParameters: 0", "FixedParameters: " + "0 " * 500),
    "words": TEXT.replace("1 2 3\n", "1 2 abc\n"),
    "huge": TEXT.replace("AffineTransform", "A" * 100_000),
    "unknown": TEXT.replace("Affine", "Evil"),
    "flat": TEXT.replace("_3_3", "_2_2"),
    "bytes": TEXT.replace("Affine", "\xff\xfe"),
    "nothing": "",
    "a spline without grid": TEXT.replace("AffineTransform", "BSplineTransform"),
    "two": TEXT + "".join(TEXT.splitlines(keepends=True)[1:]),
}


@pytest.mark.parametrize("ending", ["tfm", "txt"])
@pytest.mark.parametrize("name", UNSOUND)
def test_an_unsound_text(name: str, ending: str, tmp_path: Path):
    path = tmp_path / f"t.{ending}"
    path.write_bytes(UNSOUND[name].encode("latin-1"))
    with pytest.raises(errors.InputUnreadableError, match=f"t.{ending}"):
        morphseek.read_transform(path)


def made(path: Path, sealed: bool = True) -> bytes:
    vectors = np.random.default_rng(1).normal(size=(5, 4, 3, 3)).astype(np.float32)
    fixed = np.array([3, 4, 5, 0, 0, 0, 1, 1, 1, *np.eye(3).ravel()], dtype=np.float64)
    parts = [
        h5.Part("AffineTransform", np.zeros(3), np.array([*np.eye(3).ravel(), 1, 2, 3])),
        h5.Part("DisplacementFieldTransform", fixed, vectors.reshape(-1)),
    ]
    h5.write(path, parts, sealed=sealed)
    return path.read_bytes()


def test_every_flip_in_a_sealed_transform_is_found(tmp_path: Path):
    path = tmp_path / "t.h5"
    data = made(path)
    want = sitk.ReadTransform(str(path))  # ITK ignores the checksum
    mapped = [want.TransformPoint(point) for point in POINTS.tolist()]
    place = data.index(np.random.default_rng(1).normal(size=1).astype("<f4").tobytes())
    for at in range(place, place + 180 * 4, 41):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        with pytest.raises(errors.InputUnreadableError, match=r"t\.h5.*match their checksum"):
            morphseek.read_transform(path)
    path.write_bytes(data)
    np.testing.assert_array_equal(morphseek.read_transform(path).transform_points(POINTS), mapped)


@pytest.mark.parametrize("sealed", [False, True])
def test_no_flip_in_the_structure_ends_the_process(sealed: bool, tmp_path: Path):
    path = tmp_path / "t.h5"
    data = made(path, sealed)
    for at in [*range(0, 96, 7), *range(len(data) - 2000, len(data), 211)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])
        try:
            morphseek.read_transform(path)
        except errors.InputUnreadableError as error:
            assert "t.h5" in str(error)
