"""Untrusted transform files: each is read correctly or refused with a message that names it, and
the process survives.
"""

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from SimpleITK import _SimpleITK  # reads classes that SimpleITK has none for

import morphseek
from helpers import by_itk, invalid, unreadable
from morphseek import errors
from morphseek.transforms import h5

POINTS = np.random.default_rng(0).uniform(0, 3, (20, 3))
AFFINE = sitk.AffineTransform((1, 0.1, 0, 0, 1, 0.2, 0, 0, 1.1), (1, 2, 3), (4, 5, 6))
EULER = sitk.Euler3DTransform((1, 2, 3), 0.1, 0.2, 0.3, (1, 1, 1))


def field() -> sitk.Transform:
    vectors = np.random.default_rng(1).normal(size=(5, 4, 3, 3))
    return sitk.DisplacementFieldTransform(sitk.GetImageFromArray(vectors, isVector=True))


def spline(order: int = 3) -> sitk.Transform:
    image = sitk.Image(8, 8, 8, sitk.sitkFloat32)
    made = sitk.BSplineTransformInitializer(image, [3, 4, 5], order)
    count = len(made.GetParameters())
    made.SetParameters(np.random.default_rng(2).normal(size=count).tolist())
    return made


SOUND = {
    "affine": lambda: AFFINE,
    "euler": lambda: EULER,
    "field": field,
    "spline": spline,
    "spline of order 2": lambda: spline(2),
    "twelve": lambda: sitk.CompositeTransform([AFFINE, EULER] * 6),
    "scale": lambda: sitk.ScaleTransform(3, (1, 2, 3)),
    "similarity": lambda: sitk.Similarity3DTransform(1.2, (0, 1, 0), 0.2, (1, 0, 0), (3, 3, 3)),
    "composite": lambda: sitk.CompositeTransform([AFFINE, field(), EULER]),
}


@pytest.mark.parametrize("ending", ["h5", "tfm", "mat"])
@pytest.mark.parametrize("name", SOUND)
def test_what_simpleitk_wrote_is_the_same_map(name: str, ending: str, tmp_path: Path):
    if ending == "mat" and name in ("field", "composite", "twelve", "spline of order 2"):
        pytest.skip("ITK writes none")
    path = tmp_path / f"t.{ending}"
    sitk.WriteTransform(SOUND[name](), str(path))
    want = by_itk(sitk.ReadTransform(str(path)), POINTS)
    np.testing.assert_array_equal(morphseek.Transform.read(path).transform_points(POINTS), want)


AFFINES = ("MatrixOffsetTransformBase", "FixedCenterOfRotationAffineTransform",
           "ScalableAffineTransform")  # fmt: skip
LINEAR = {  # ITK's classes: parameters and fixed parameters
    **dict.fromkeys(AFFINES, ("1.01 .01 0 0 .99 .02 0 0 1.0 1 1.5 -2", "1 2 3")),
    "CenteredAffineTransform": ("1 .1 0 0 1 0 0 0 1 1 2 3 4 5 6", "1 2 3"),
    "CenteredEuler3DTransform": (".1 .1 .1 1 2 3 4 5 6", "0 0 0 0"),
    "ComposeScaleSkewVersor3DTransform": (".1 .1 .1 1 2 3 1.1 1 .9 .01 .02 0", "1 2 3"),
    "QuaternionRigidTransform": (".1 0 0 .995 1 2 3", "1 2 3"),
    "ScaleLogarithmicTransform": (".1 .2 .3", "1 2 3"),
    "IdentityTransform": ("", ""),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_every_linear_class(kind: str, tmp_path: Path):
    """Alone and behind a field, as an object and in files of every kind."""
    numbers, fixed = LINEAR[kind]
    text = TEXT.replace("AffineTransform", kind).replace("1 0 0 0 1 0 0 0 1 1 2 3", numbers)
    path = tmp_path / "t.tfm"
    path.write_text(text.replace("FixedParameters: 0 0 0", f"FixedParameters: {fixed}"))
    alone = _SimpleITK.ReadTransform(str(path))
    behind = sitk.CompositeTransform([field()])
    behind.AddTransform(alone)
    for itk in (alone, behind):
        want = by_itk(itk, POINTS)
        ours = morphseek.Transform.of(itk)
        there = ours.inverse().transform_points(want)
        saved = [ours.save(tmp_path / f"o.{ending}")[0] for ending in ("h5", "tfm")]
        made = [ours, *map(morphseek.Transform.read, saved)]
        if itk is alone:
            made.append(morphseek.Transform.read(path))
            if kind != "MatrixOffsetTransformBase":  # SimpleITK writes it as an empty composite
                for ending in ("h5", "mat"):
                    _SimpleITK.WriteTransform(itk, str(tmp_path / f"i.{ending}"))
                    made.append(morphseek.Transform.read(tmp_path / f"i.{ending}"))
            np.testing.assert_allclose(there, POINTS, atol=1e-9)
        for transform in made:
            np.testing.assert_allclose(transform.transform_points(POINTS), want, atol=1e-6)
    assert morphseek.Transform.of(alone).is_linear and not morphseek.Transform.of(behind).is_linear


WRITTEN = {  # what editors and other systems make of a text
    "a mark": lambda text: ("\ufeff" + text).encode(),
    "Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "an old Mac": lambda text: text.replace("\n", "\r").encode(),
    "no last end": lambda text: text.rstrip("\n").encode(),
    "all of these": lambda text: ("\ufeff" + text.rstrip("\n").replace("\n", "\r\n")).encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "Latin-1": lambda text: text.replace("#Transform 0", "# M\xfcller").encode("latin-1"),
}


@pytest.mark.parametrize("name", ["t.tfm", "T.TFM", "t.txt"])
@pytest.mark.parametrize("kind", ["AffineTransform", "QuaternionRigidTransform"])
@pytest.mark.parametrize("how", WRITTEN)
def test_a_text_of_another_system(how: str, kind: str, name: str, tmp_path: Path):
    numbers = LINEAR.get(kind, ("1 0 0 0 1 0 0 0 1 1 2 3", ""))[0]
    text = TEXT.replace("AffineTransform", kind).replace("1 0 0 0 1 0 0 0 1 1 2 3", numbers)
    (tmp_path / "plain.tfm").write_text(text)
    itk = sitk.ReadTransform(str(tmp_path / "plain.tfm"))
    (tmp_path / name).write_bytes(WRITTEN[how](text))
    found = morphseek.Transform.read(tmp_path / name).transform_points(POINTS)
    np.testing.assert_allclose(found, by_itk(itk, POINTS), atol=1e-9)


def test_an_ending_in_capitals(tmp_path: Path):
    for ending in ("h5", "mat"):
        sitk.WriteTransform(EULER, str(tmp_path / f"t.{ending}"))
        path = (tmp_path / f"t.{ending}").rename(tmp_path / f"T.{ending.upper()}")
        found = morphseek.Transform.read(path).transform_points(POINTS)
        np.testing.assert_allclose(found, by_itk(EULER, POINTS), atol=1e-9)


@pytest.mark.parametrize("kind", ["MatrixOffsetTransformBase", "AffineTransform"])
def test_two_dimensions_are_refused(kind: str, tmp_path: Path):
    path = tmp_path / "flat.tfm"
    path.write_text(
        f"#Insight Transform File V1.0\n#Transform 0\nTransform: {kind}_double_2_2\n"
        "Parameters: 1 0 0 1 1 2\nFixedParameters: 0 0\n"
    )
    flat = _SimpleITK.ReadTransform(str(path))
    for given in (flat, sitk.CompositeTransform([flat])):
        invalid("2-D; images here are 3-D", morphseek.Transform.of, given)
    unreadable(r"flat\.tfm.*2-D; images here are 3-D", morphseek.Transform.read, path)


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
    with pytest.raises(errors.InputUnreadableError, match=f"t.{ending}") as caught:
        morphseek.Transform.read(path)
    message = str(caught.value)
    assert "0x" not in message and "morphseek-" not in message
    assert len(message) < 600 + len(str(path))


def made(path: Path) -> bytes:
    vectors = np.random.default_rng(1).normal(size=(5, 4, 3, 3)).astype(np.float32)
    fixed = np.array([3, 4, 5, 0, 0, 0, 1, 1, 1, *np.eye(3).ravel()], dtype=np.float64)
    parts = [
        h5.Part("AffineTransform", np.zeros(3), np.array([*np.eye(3).ravel(), 1, 2, 3])),
        h5.Part("DisplacementFieldTransform", fixed, vectors.reshape(-1)),
    ]
    h5.write(path, parts)
    return path.read_bytes()


def test_every_flip_in_a_transform_of_ours_is_found(tmp_path: Path):
    path = tmp_path / "t.h5"
    data = made(path)
    mapped = by_itk(sitk.ReadTransform(str(path)), POINTS)  # ITK does not see the index
    place = data.index(np.random.default_rng(1).normal(size=1).astype("<f4").tobytes())
    index = data.index(b'{"parts"')
    for at in (*range(place, place + 180 * 4, 41), *range(index, len(data) - 20, 41)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        unreadable(r"t\.h5.*match their checksum", morphseek.Transform.read, path)
    for sound in (data, data[:index]):  # as another program writes it anew
        path.write_bytes(sound)
        own = morphseek.Transform.read(path).transform_points(POINTS)
        np.testing.assert_array_equal(own, mapped)


@pytest.mark.parametrize("indexed", [False, True])
def test_no_flip_in_the_structure_ends_the_process(indexed: bool, tmp_path: Path):
    path = tmp_path / "t.h5"
    data = made(path)
    data = data if indexed else data[: data.index(b'{"parts"')]
    for at in [*range(0, 96, 7), *range(len(data) - 2000, len(data), 211)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])
        try:
            morphseek.Transform.read(path)
        except errors.InputUnreadableError as error:
            assert "t.h5" in str(error)
