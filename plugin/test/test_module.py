"""Tests of the command-line module as a program: its XML, files and failures, and its agreement
with the Python package.

Run by ctest with the environment variable MORPHSEEK_REGISTRATION, the executable's path.
"""

import contextlib
import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import nibabel
import numpy as np
import psutil
import pytest
import SimpleITK as sitk

import morphseek
from morphseek import phantom
from morphseek._engine import core

EXECUTABLE = os.environ["MORPHSEEK_REGISTRATION"]
HERE = Path(__file__).parent
SIDES = ("fixed", "moving")


def run(*arguments, **kwargs):
    return subprocess.run(
        [EXECUTABLE, *map(str, arguments)], capture_output=True, text=True, timeout=300, **kwargs
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Files of a small pair: oblique, anisotropic, of two contrasts, with labels."""
    folder = tmp_path_factory.mktemp("pair")
    made = phantom.make_pair(size=32)
    for name in ("fixed", "moving", "moving_labels"):
        sitk.WriteImage(getattr(made, name).to_sitk(), str(folder / f"{name}.nii.gz"))
    return folder


@pytest.fixture(scope="module")
def images(pair):
    """The two files to be registered."""
    return pair / "fixed.nii.gz", pair / "moving.nii.gz"


QUICK = "--model none --initial com --search off --refine 2 --threads 2".split()
QUICK_IN_PYTHON = {"model": "none", "initial": "com", "search": False, "refine": 2, "threads": 2}


def register(images, *more, how=None, **flags):
    """Run the module with QUICK and with further flags, whose names are written with _; `how` is
    for the process.
    """
    words = ((f"--{flag.replace('_', '-')}", value) for flag, value in flags.items())
    return run(*images, *QUICK, *more, *(word for pair in words for word in pair), **(how or {}))


def test_xml_opens_in_ctk_cli_and_holds_the_engines_options(caplog):
    from ctk_cli import CLIModule

    module = CLIModule(EXECUTABLE)
    assert not caplog.records  # ctk-cli logs what is missing
    assert module.version == core.version()
    arguments, options, outputs = module.classifyParameters()
    assert [a.name for a in arguments] == ["fixedVolume", "movingVolume"]
    assert [o.name for o in outputs] == [
        "foldingPercentage",
        "verdict",
        "verdictReasons",
        "estimatedError",
    ]
    flags = {o.longflag: o for o in options}
    for option in core.option_table():
        parameter = flags["--" + option["name"].replace("_", "-")]
        assert parameter.description == option["help"]
        assert parameter.default == (
            parameter.parseValue(str(option["default"])) if option["default"] != "" else None
        )
        if "number" in option:  # an enumeration would refuse the number
            assert parameter.typ == "string"
            continue
        assert (parameter.elements or None) == option.get("choices")
        if "min" in option:
            assert float(parameter.constraints.minimum) == option["min"]
        if "max" in option:
            assert float(parameter.constraints.maximum) == option["max"]


def test_every_flag_in_the_xml_is_taken(pair):
    from ctk_cli import CLIModule

    for parameter in CLIModule(EXECUTABLE).classifyParameters()[1]:
        done = run("/no/fixed", "/no/moving", parameter.longflag)
        assert done.returncode == 2 and f"{parameter.longflag} needs a value" in done.stderr


def test_nothing_to_write_is_wrong_usage(images):
    done = register(images)
    assert done.returncode == 2 and "--output-volume" in done.stderr


@pytest.fixture(scope="module")
def outputs(pair, images, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    done = register(
        images,
        moving_labels=pair / "moving_labels.nii.gz",
        output_volume=out / "warped.mhd",
        output_transform=out / "transform.h5",
        output_labels=out / "labels.nii.gz",
        report=out / "report.json",
        returnparameterfile=out / "parameters",
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_tells_its_progress(outputs):
    _, text = outputs
    assert re.match(
        r"<filter-start>\n <filter-name>MorphSeekRegistration</filter-name>\n"
        r" <filter-comment>.+</filter-comment>\n</filter-start>\n",
        text,
    )
    fractions = [float(f) for f in re.findall(r"<filter-progress>(.+)</filter-progress>", text)]
    assert fractions == sorted(fractions) and fractions[-1] == 1 and len(fractions) > 3
    assert re.search(
        r"<filter-end>\n <filter-name>MorphSeekRegistration</filter-name>\n"
        r" <filter-time>[\d.e-]+</filter-time>\n</filter-end>\n$",
        text,
    )


def test_writes_what_python_computes(pair, images, outputs):
    out, _ = outputs
    files = "labels.nii.gz parameters report.json transform.h5 warped.mhd warped.zraw"
    assert {p.name for p in out.iterdir()} == set(files.split())
    fixed, moving = (sitk.ReadImage(str(path)) for path in images)
    result = morphseek.register(*images, **QUICK_IN_PYTHON)
    transform = sitk.DisplacementFieldTransform(sitk.ReadTransform(str(out / "transform.h5")))
    ours = sitk.GetArrayFromImage(transform.GetDisplacementField())
    assert np.abs(result.displacement_mm()).max() > 5
    # the fixed grid's axes are those of space
    assert np.abs((ours - result.displacement_mm()) / fixed.GetSpacing()).max() < 1e-4

    low = float(sitk.GetArrayViewFromImage(moving).min())
    expected = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, transform, sitk.sitkLinear, low))
    warped = sitk.GetArrayFromImage(sitk.ReadImage(str(out / "warped.mhd")))
    assert np.abs(warped - expected).max() < 0.05  # of some 1000
    labels = sitk.ReadImage(str(out / "labels.nii.gz"))
    assert labels.GetPixelID() == sitk.ReadImage(str(pair / "moving_labels.nii.gz")).GetPixelID()
    by_python = result.apply(pair / "moving_labels.nii.gz", interpolation="nearest")
    assert np.mean(sitk.GetArrayFromImage(labels) == sitk.GetArrayFromImage(by_python)) > 0.9999
    report = json.loads((out / "report.json").read_text())
    assert report["njd_percent"] == result.metrics["njd_percent"]
    verdict = report["verdict"]
    assert (out / "parameters").read_text() == "".join(
        f"{line}\n"
        for line in (
            f"foldingPercentage = {report['njd_percent']:.6f}",
            f"verdict = {verdict['grade']}",
            f"verdictReasons = {' '.join(verdict['reasons'])}",
            f"estimatedError = {verdict['error_mm']:.6f}",
        )
    )


def set_slope(path, slope):
    """Give a NIfTI a slope, by which its stored numbers are multiplied."""
    data = bytearray(path.read_bytes())
    data[112:120] = struct.pack("<ff", slope, 0)  # scl_slope, scl_inter
    path.write_bytes(data)


def write_labels(pair, path, one, two, dtype, slope=None):
    """Write the moving labels with two values, one on either side of the middle."""
    moving = sitk.ReadImage(str(pair / "moving_labels.nii.gz"))
    array = sitk.GetArrayFromImage(moving)
    values = np.zeros(array.shape, dtype)
    values[: len(values) // 2], values[len(values) // 2 :] = one, two
    image = sitk.GetImageFromArray(values)
    image.CopyInformation(moving)
    sitk.WriteImage(image, str(path))
    if slope is not None:
        set_slope(path, slope)


def test_labels_keep_their_values(pair, images, tmp_path):
    """Whatever their type is, they are written in one that holds them."""
    out = tmp_path / "out.nii.gz"
    for one, two, dtype, slope, written in (
        (1, 200, np.uint8, None, sitk.sitkUInt8),
        (-3, 3, np.int16, None, sitk.sitkInt16),
        (1, 65535, np.uint16, None, sitk.sitkUInt16),
        (-7, 2**31 - 1, np.int32, None, sitk.sitkInt32),
        (2 * 10**9, 4 * 10**9, np.uint32, None, sitk.sitkUInt32),
        (1, 2, np.int64, None, sitk.sitkInt32),
        (-3 * 10**9, 2**53 - 1, np.int64, None, sitk.sitkInt64),
        (1, 2, np.float32, None, sitk.sitkInt32),
        (-1, 4 * 10**9, np.float64, None, sitk.sitkInt64),
        (1, 2, np.int16, 3, sitk.sitkInt32),
    ):
        labels = tmp_path / "labels.nii"
        write_labels(pair, labels, one, two, dtype, slope)
        done = register(images, refine=0, moving_labels=labels, output_labels=out)
        assert done.returncode == 0, (dtype, done.stderr)
        image = sitk.ReadImage(str(out))
        assert image.GetPixelID() == written, (one, two, dtype)
        scale = slope or 1
        values = set(np.unique(sitk.GetArrayFromImage(image)).tolist())
        wanted = {one * scale, two * scale}
        assert wanted <= values <= {0, *wanted}, (one, two, dtype, values)


def test_what_is_no_label_is_refused(pair, images, tmp_path):
    out = tmp_path / "out.nii.gz"
    for one, two, dtype, slope, words in (
        (0.4, 0.8, np.float32, None, "has the value 0.4; labels must be whole numbers"),
        (0.999999, 2, np.float64, None, "has the value 0.999999; labels must be whole numbers"),
        (1, 1.9999999, np.float32, None, "has the value 1.9999999; labels must be whole numbers"),
        (1, 2, np.int16, 0.5, "has the value 0.5; labels must be whole numbers"),
        (1, np.nan, np.float32, None, "has the value nan; labels must be whole numbers"),
        (1, -np.inf, np.float64, None, "has the value -inf; labels must be whole numbers"),
        (1, 2**53 + 1, np.int64, None, "has a value of about 9007199254740992; labels must be"),
        (1, 2**64 - 1, np.uint64, None, "labels must be smaller than 2^53"),
        (1, 2**23 + 1, np.int32, 2, "labels scaled in their file must be smaller than 2^24"),
    ):
        # ITK reads zeros where a NIfTI is NaN or infinite
        labels = tmp_path / ("labels.nii" if slope else "labels.nrrd")
        write_labels(pair, labels, one, two, dtype, slope)
        done = register(images, moving_labels=labels, output_labels=out)
        assert done.returncode == 3 and words in done.stderr, (one, two, dtype, done)
        assert f"moving labels: {labels} has" in done.stderr
        assert not out.exists()


def test_uncertainty_is_what_python_computes(images, tmp_path):
    done = register(images, search="on", output_uncertainty=tmp_path / "sd.nrrd")
    assert done.returncode == 0, done.stderr
    written = sitk.ReadImage(str(tmp_path / "sd.nrrd"))
    options = {**QUICK_IN_PYTHON, "search": True, "uncertainty": True}
    result = morphseek.register(*images, **options)
    assert written.GetSize() == sitk.ReadImage(str(images[0])).GetSize()
    np.testing.assert_allclose(sitk.GetArrayFromImage(written), result.uncertainty, atol=1e-3)


def test_masks_and_an_initial_transform_as_in_python(images, tmp_path):
    for name, path in zip(SIDES, images):
        image = sitk.ReadImage(str(path))
        sitk.WriteImage(sitk.OtsuThreshold(image, 0, 1), str(tmp_path / f"{name}.nrrd"))
    sitk.WriteTransform(
        sitk.Euler3DTransform((0, 0, -40), 0.02, -0.03, 0.1, (-14, 19, -22)),
        str(tmp_path / "start.tfm"),
    )
    given = {
        "initial": "none",
        "initial_transform": tmp_path / "start.tfm",
        "fixed_mask": tmp_path / "fixed.nrrd",
        "moving_mask": tmp_path / "moving.nrrd",
    }
    done = register(images, **given, output_transform=tmp_path / "field.nrrd")
    assert done.returncode == 0, done.stderr
    result = morphseek.register(*images, **{**QUICK_IN_PYTHON, **given})
    field = sitk.ReadImage(str(tmp_path / "field.nrrd"))
    apart = sitk.GetArrayFromImage(field) - result.displacement_mm()
    assert np.abs(apart / field.GetSpacing()).max() < 1e-4
    assert np.abs(result.displacement_mm()).max() > 20


def test_a_mask_is_where_its_file_is_not_zero(images, tmp_path):
    """Whatever the file's type is: probabilities and labels beyond 255 count, too."""
    fields = []
    for name, pixel, value in (
        ("mask", sitk.sitkUInt8, 1),
        ("probability", sitk.sitkFloat32, 0.25),
        ("label", sitk.sitkUInt16, 256),
    ):
        masks = {f"{side}_mask": tmp_path / f"{side}-{name}.nrrd" for side in SIDES}
        for image, mask in zip(images, masks.values()):
            inside = sitk.OtsuThreshold(sitk.ReadImage(str(image)), 0, 1)
            sitk.WriteImage(sitk.Cast(inside, pixel) * value, str(mask))
        field = tmp_path / f"{name}-field.nrrd"
        done = register(images, **masks, output_transform=field)
        assert done.returncode == 0, (name, done.stderr)
        fields.append(sitk.GetArrayFromImage(sitk.ReadImage(str(field))))
    np.testing.assert_allclose(fields[1], fields[0], atol=1e-4)
    np.testing.assert_allclose(fields[2], fields[0], atol=1e-4)


def test_an_initial_transform_is_one_or_a_composite(images, tmp_path):
    centre, angles, shift = (0, 0, -40), (0.02, -0.03, 0.1), (-14, 19, -22)
    rotation, translation = (
        sitk.Euler3DTransform(centre, *angles),
        sitk.TranslationTransform(3, shift),
    )
    sitk.WriteTransform(sitk.Euler3DTransform(centre, *angles, shift), str(tmp_path / "one.tfm"))
    composite = sitk.CompositeTransform([translation, rotation])  # the last is applied first
    fields = []
    for name in ("one.tfm", "composite.tfm", "composite.h5"):
        if name != "one.tfm":
            sitk.WriteTransform(composite, str(tmp_path / name))
        field = tmp_path / f"{name}.nrrd"
        given = {"initial": "none", "refine": 0, "initial_transform": tmp_path / name}
        done = register(images, **given, output_transform=field)
        assert done.returncode == 0, (name, done.stderr)
        fields.append(sitk.GetArrayFromImage(sitk.ReadImage(str(field))))
    np.testing.assert_allclose(fields[1], fields[0], atol=1e-3)
    np.testing.assert_allclose(fields[2], fields[0], atol=1e-3)

    one = "Transform: TranslationTransform_double_3_3\nParameters: {} 0 0\nFixedParameters:\n"
    several = tmp_path / "several.tfm"
    several.write_text(
        f"#Insight Transform File V1.0\n#Transform 0\n{one.format(0)}#Transform 1\n{one.format(5)}"
    )
    done = register(images, initial_transform=several, report=tmp_path / "report.json")
    assert done.returncode == 3 and "holds 2 transforms; give one, or a composite" in done.stderr
    assert not (tmp_path / "report.json").exists()

    fsl, elastix = tmp_path / "fsl.mat", tmp_path / "TransformParameters.0.txt"
    fsl.write_text("1 0 0 3\n0 1 0 0\n0 0 1 0\n0 0 0 1\n")
    elastix.write_text('(Transform "EulerTransform")\n(TransformParameters 0 0 0 3 0 0)\n')
    for path in (fsl, elastix, images[0], tmp_path / "one.tfm.nrrd"):
        done = register(images, initial_transform=path, report=tmp_path / "r.json")
        assert done.returncode == 3 and f"initial transform: {path} cannot be read: " in done.stderr
        assert "`morphseek transform convert` makes" in done.stderr
        assert len(done.stderr.splitlines()) == 1 and "bad_alloc" not in done.stderr


def test_no_output_takes_the_place_of_another_file(pair, tmp_path):
    for name in ("fixed.nii.gz", "moving.nii.gz", "moving_labels.nii.gz"):
        (tmp_path / name).write_bytes((pair / name).read_bytes())
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "slice.dcm").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.nii.gz")}
    labels = ("--moving-labels", "moving_labels.nii.gz", "--output-labels")
    two = ("fixed.nii.gz", "moving.nii.gz")
    for words, arguments in (
        (
            "--output-volume moving.nii.gz would overwrite the moving image",
            (*two, "--output-volume", "moving.nii.gz"),
        ),
        ("overwrite the fixed image", (*two, "--output-volume", "link/fixed.nii.gz")),
        (
            "overwrite the fixed image",
            ("series", "moving.nii.gz", "--output-volume", "series/slice.dcm"),
        ),
        ("overwrite --moving-labels", (*two, *labels, tmp_path / "moving_labels.nii.gz")),
        ("overwrite --output-volume", (*two, "--output-volume", "out.nrrd", *labels, "./out.nrrd")),
        (
            "overwrite --output-transform",
            (*two, "--output-transform", "new.nrrd", "--report", "series/../new.nrrd"),
        ),
    ):
        done = register(arguments, how={"cwd": tmp_path})
        assert done.returncode == 2 and words in done.stderr, (arguments, done)
        assert "give another path" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.glob("*.nii.gz")} == before
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {path.name for path in before} | {"series", "link"}

    # One file may be two inputs; new files may be written into an input's folder.
    new = {"fixed_mask": two[0], "report": "series/report.json"}
    done = register((two[0], two[0]), **new, how={"cwd": tmp_path})
    assert done.returncode == 0, done.stderr


def test_no_output_takes_the_place_of_a_part_of_another_file(pair, tmp_path):
    """The other file may be the header or the voxels of an input or of another output."""
    moving = sitk.ReadImage(str(pair / "moving.nii.gz"))
    for name in ("a.hdr", "b.mhd", "c.nhdr"):
        sitk.WriteImage(moving, str(tmp_path / name))
    size = " ".join(map(str, moving.GetSize()))
    slices = sitk.GetArrayFromImage(sitk.Cast(moving, sitk.sitkFloat32))
    for k, piece in enumerate(slices, 1):
        (tmp_path / f"s{k:02}.raw").write_bytes(piece.tobytes())
    start = (
        f"ObjectType = Image\nNDims = 3\nDimSize = {size}\nElementType ="
        " MET_FLOAT\nElementDataFile = "
    )
    (tmp_path / "numbered.mhd").write_text(f"{start}s%02d.raw 1 {len(slices)} 1\n")
    (tmp_path / "listed.mha").write_text(
        start + "LIST\n" + "".join(f"s{k:02}.raw\n" for k in range(1, len(slices) + 1))
    )
    (tmp_path / "named.nrrd").write_text(
        f"NRRD0004\ntype: float\ndimension: 3\nsizes: {size}\nencoding: raw\nendian: little\ndata"
        " file: ./all.zraw\n\n"
    )
    (tmp_path / "all.zraw").write_bytes(slices.tobytes())
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    fixed = pair / "fixed.nii.gz"
    labels = ("--moving-labels", pair / "moving_labels.nii.gz", "--output-labels")
    for words, arguments in (
        (
            "--output-volume a.img would overwrite a part of the moving image a.hdr",
            (fixed, "a.hdr", "--output-volume", "a.img"),
        ),
        (
            "--output-volume a.hdr would overwrite a part of the fixed image a.img",
            ("a.img", fixed, "--output-volume", "a.hdr"),
        ),
        (
            "--report b.raw would overwrite a part of the moving image b.mhd",
            (fixed, "b.mhd", "--report", "b.raw"),
        ),
        (
            "--report c.raw would overwrite a part of --fixed-mask c.nhdr",
            (fixed, "b.mhd", "--fixed-mask", "c.nhdr", "--report", "c.raw"),
        ),
        (
            "--report s03.raw would overwrite a part of the moving image numbered.mhd",
            (fixed, "numbered.mhd", "--report", "s03.raw"),
        ),
        (
            "--report s03.raw would overwrite a part of the moving image listed.mha",
            (fixed, "listed.mha", "--report", "s03.raw"),
        ),
        (
            (
                "--output-volume all.mhd, which is written with all.zraw, would overwrite a part of"
                " the moving image named.nrrd"
            ),
            (fixed, "named.nrrd", "--output-volume", "all.mhd"),
        ),
        (
            "--output-volume x.hdr, which is written with x.img, would overwrite --output-labels",
            (fixed, "b.mhd", "--output-volume", "x.hdr", *labels, "x.img"),
        ),
        (
            "--output-volume x.mhd, which is written with x.zraw, would overwrite --report",
            (fixed, "b.mhd", "--output-volume", "x.mhd", "--report", "x.zraw"),
        ),
        (
            "--output-labels ./x.img.gz, which is written with x.hdr.gz, would overwrite --report",
            (fixed, "b.mhd", *labels, "./x.img.gz", "--report", "x.hdr.gz"),
        ),
    ):
        done = register(arguments, how={"cwd": tmp_path})
        said = f"{words}; give another path" in done.stderr
        assert done.returncode == 2 and said, (arguments, done)
        assert "filter-start" not in done.stdout
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before, arguments

    new = {"output_volume": "x.hdr", "report": "c.json"}
    done = register((fixed, "numbered.mhd"), *labels, "y.img", **new, how={"cwd": tmp_path})
    assert done.returncode == 0, done.stderr
    made = {path.name for path in set(tmp_path.iterdir()) - set(before)}
    assert made == {"x.hdr", "x.img", "y.hdr", "y.img", "c.json"}


def test_what_cannot_be_written_fails_before_the_registration(pair, images, tmp_path):
    out = tmp_path / "out"
    (out / "folder").mkdir(parents=True)
    left = {"folder"}
    if hasattr(os, "mkfifo"):
        os.mkfifo(out / "pipe")
        left.add("pipe")
    labels = ("--moving-labels", pair / "moving_labels.nii.gz", "--output-labels")
    cases = [
        ("is a folder", ("--report", out / "folder")),
        ("is a folder", ("--report", f"{out / 'new'}/")),
        ("no image format", ("--output-volume", out / "warped.foo")),
        ("no image format", ("--output-uncertainty", out / "sd")),
        ("no image format", (*labels, out / "labels.foo")),
        ("no image format", ("--output-transform", out / "field.foo")),
        ("cannot be written", ("--output-transform", out / "field.png")),
        ("small letters alone; give .h5", ("--output-transform", out / "field.H5")),
        ("holds no volume", (*labels, out / "labels.png")),
    ]
    if "pipe" in left:
        cases.append(("no regular file", ("--returnparameterfile", out / "pipe")))
    for words, arguments in cases:
        done = register(images, "--output-volume", out / "warped.nii.gz", *arguments)
        assert done.returncode == 6 and words in done.stderr, (arguments, done)
        assert "cannot be written" in done.stderr
        assert "filter-start" not in done.stdout, arguments
        assert {path.name for path in out.iterdir()} == left, arguments


def write_dicom(folder, volume, position):
    """Write a series whose slice k lies at position(k)."""
    folder.mkdir()
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    for k in range(volume.GetDepth()):
        piece = sitk.Cast(volume[:, :, k], sitk.sitkInt16)
        for tag, value in {
            "0008|0060": "CT",
            "0020|000e": "1.2.826.0.1.3680043.2.1125.4.2",
            "0020|0037": "1\\0\\0\\0\\1\\0",
            "0020|0013": str(k),
            "0020|0032": "\\".join(f"{v:g}" for v in position(k)),
        }.items():
            piece.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"{k:03}.dcm"))
        writer.Execute(piece)
    return folder


def test_damaged_inputs_are_refused_as_by_python(pair, tmp_path):
    """ITK would silently read files that are cut short, and series that are no straight, even
    stack.
    """
    moving = sitk.ReadImage(str(pair / "moving.nii.gz"))
    whole = write_dicom(tmp_path / "whole", moving, lambda k: (0, 0, 2 * k))
    gap = write_dicom(tmp_path / "gap", moving, lambda k: (0, 0, 2 * k))
    (gap / "010.dcm").unlink()
    tilted = write_dicom(tmp_path / "tilted", moving, lambda k: (0, 0.5 * k, 2 * k))
    heap = write_dicom(tmp_path / "heap", moving, lambda k: (0, 0, 5))
    cut, pair_cut = tmp_path / "cut.nii", tmp_path / "cut.hdr"
    for path, data in ((cut, cut), (pair_cut, pair_cut.with_suffix(".img"))):
        sitk.WriteImage(moving, str(path))
        os.truncate(data, data.stat().st_size // 2)
    out = tmp_path / "out.nii.gz"
    for source, words in (
        (gap, r"mm apart(, most between 009.dcm and 011.dcm)?; complete the series"),
        (tilted, "no straight stack"),
        (heap, "all at one position"),
        (cut, "is cut short"),
        (pair_cut, "is cut short"),
    ):
        with pytest.raises(morphseek.errors.InputUnreadableError, match=words):
            morphseek.images.read(source)
        done = run("--output-volume", out, *QUICK, source, pair / "moving.nii.gz")
        assert done.returncode == 3 and re.search(words, done.stderr), (source, done)
        assert not out.exists(), source
    done = run("--output-volume", out, *QUICK, whole, pair / "moving.nii.gz")
    assert done.returncode == 0 and out.exists(), done.stderr


def test_whole_files_with_a_slope_are_no_short_ones(pair, tmp_path):
    """ITK reports their numbers as float, which has more bytes than those in the file."""
    moving = sitk.Cast(sitk.ReadImage(str(pair / "moving.nii.gz")), sitk.sitkInt16)
    for name in ("moving.nii", "moving.hdr"):
        path = tmp_path / name
        sitk.WriteImage(moving, str(path))
        set_slope(path, 2)
        done = register((pair / "fixed.nii.gz", path), report=tmp_path / "report.json")
        assert done.returncode == 0, (name, done.stderr)
        os.truncate(path if name == "moving.nii" else path.with_suffix(".img"), 60000)
        done = register((pair / "fixed.nii.gz", path), report=tmp_path / "report.json")
        assert done.returncode == 3 and "is cut short: 60000 of " in done.stderr, (name, done)


@pytest.mark.parametrize("name", ["a.hdr", "a.img"])
def test_analyze_which_itk_lays_otherwise_is_refused(pair, tmp_path, name):
    voxels = np.arange(8 * 9 * 10, dtype=np.int16).reshape(8, 9, 10)
    nibabel.Spm99AnalyzeImage(voxels, np.diag([2, 2, 2, 1])).to_filename(tmp_path / "a.img")
    out = tmp_path / "out.nii.gz"
    done = run("--output-volume", out, *QUICK, pair / "fixed.nii.gz", tmp_path / name)
    assert done.returncode == 3 and "is a file of Analyze" in done.stderr, done.stderr


def write_doubtful(path, image, sform_code):
    """Write a NIfTI whose qform lies 5 mm from its sform: ITK takes a sform of code 1."""
    sitk.WriteImage(image, str(path))
    data = bytearray(path.read_bytes())
    data[252:256] = struct.pack("<hh", 1, sform_code)
    x, y = struct.unpack("<ff", data[268:276])  # qoffset
    data[268:276] = struct.pack("<ff", x + 3, y - 4)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("0", "fixed"),
        ("1", "moving"),
        ("--fixed-mask", "fixed mask"),
        ("--moving-mask", "moving mask"),
        ("--moving-labels", "moving labels"),
        ("--rigid", "rigid regions"),
    ],
)
def test_a_doubt_about_any_file_reaches_the_verdict(pair, tmp_path, role, name):
    side = "fixed" if role in ("0", "--fixed-mask", "--rigid") else "moving"
    image = sitk.ReadImage(str(pair / f"{side}.nii.gz"))
    if role.startswith("--"):
        image = sitk.Cast(image > np.median(sitk.GetArrayFromImage(image)), sitk.sitkUInt8)
    sound, doubtful = (
        tmp_path / "sound.nii",
        write_doubtful(tmp_path / "two\nlines.nii", image, 1),
    )
    sitk.WriteImage(image, str(sound))
    told = {}
    for path in (sound, doubtful):
        images = [path if role == str(i) else pair / f"{n}.nii.gz" for i, n in enumerate(SIDES)]
        more = [role, path] if role.startswith("--") else []
        if role == "--moving-labels":
            more += ["--output-labels", tmp_path / "labels.nii.gz"]
        report, parameters = tmp_path / "report.json", tmp_path / "parameters"
        done = register(images, *more, report=report, returnparameterfile=parameters)
        assert done.returncode == 0, done.stderr
        told[path] = json.loads(report.read_text()), parameters.read_text()
    doubt = (
        f"{name}: {doubtful}: its sform and its qform say two places, up to 5 mm apart;"
        " the sform is taken."
    )
    (before, _), (after, parameters) = told.values()
    assert after["warnings"] == [*before["warnings"], doubt]
    assert after["verdict"]["reasons"] == [*before["verdict"]["reasons"], doubt]
    assert before["verdict"]["grade"] == "good" and after["verdict"]["grade"] == "check"
    assert "verdict = check\n" in parameters and doubt.replace("\n", " ") in parameters


def test_doubts_are_of_the_files_header(pair, tmp_path):
    """ITK's place is the one of two that its reader took; formats that keep fields of a NIfTI
    whose image was moved since say nothing.
    """
    moving = sitk.ReadImage(str(pair / "moving.nii.gz"))
    taken = write_doubtful(tmp_path / "taken.nii", moving, 2)
    kept = sitk.ReadImage(str(taken))
    kept.SetOrigin([x + 1 for x in moving.GetOrigin()])
    sitk.WriteImage(kept, str(tmp_path / "kept.nrrd"))
    assert "srow_x" in (tmp_path / "kept.nrrd").read_bytes()[:9999].decode("latin-1")
    for path, doubts in (
        (taken, ["its sform and its qform say two places, up to 5 mm apart; the qform is taken."]),
        (tmp_path / "kept.nrrd", []),
    ):
        done = register((pair / "fixed.nii.gz", path), report=tmp_path / "report.json")
        assert done.returncode == 0, done.stderr
        warnings = json.loads((tmp_path / "report.json").read_text())["warnings"]
        assert [w for w in warnings if "two places" in w] == [
            f"moving: {path}: {d}" for d in doubts
        ]


def test_failures_have_their_exit_codes_and_leave_nothing(pair, tmp_path):
    fixed, moving = pair / "fixed.nii.gz", pair / "moving.nii.gz"
    flat, thin, broken = (tmp_path / "flat.nrrd", tmp_path / "flat.png", tmp_path / "broken.nii.gz")
    sitk.WriteImage(sitk.Image(8, 8, 8, sitk.sitkInt16), str(flat))
    sitk.WriteImage(sitk.Image(8, 8, sitk.sitkUInt8), str(thin))
    broken.write_bytes(moving.read_bytes()[:2000])
    far = tmp_path / "far.tfm"
    sitk.WriteTransform(sitk.TranslationTransform(3, (9999, 0, 0)), str(far))
    out = tmp_path / "out"
    out.mkdir()
    for code, words, arguments in (
        (2, "tau", (fixed, moving, "--tau", "-1")),
        (2, "or a number of mm in [0.1, 100]", (fixed, moving, "--smoothness", "stiff")),
        (2, "not a number", (fixed, moving, "--steps", "two")),
        (2, "give two images", (fixed,)),
        (2, "belong together", (fixed, moving, "--moving-labels", moving)),
        (3, "does not exist", (fixed, tmp_path / "none.nii")),
        (3, "constant", (fixed, flat)),
        (3, "two dimensions", (thin, moving)),
        (3, "cannot be read", (fixed, broken)),
        (3, "do not overlap", (fixed, moving, "--initial", "none", "--initial-transform", far)),
        (3, "fixed mask", (fixed, moving, "--fixed-mask", moving)),
        (4, "no model", (fixed, moving, "--model", "no-such-model")),
        (6, "cannot be written", (fixed, moving, "--report", tmp_path / "nowhere" / "r.json")),
    ):
        done = run("--output-volume", out / "warped.nii.gz", *arguments)
        assert done.returncode == code and words in done.stderr, (arguments, done)
        assert not list(out.iterdir()), arguments


def end_by(number, out, arguments, *, line=None, opened=None, delay=0.0):
    """Signal a run after a line of its output, when it has a file open (or its child has), or after
    a while.

    Return the exit code, the seconds from the signal to the end, and what it wrote to standard
    error.
    """
    with subprocess.Popen(
        [EXECUTABLE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while line is not None and line not in process.stdout.readline():
            pass
        while opened is not None and process.poll() is None:
            with contextlib.suppress(psutil.Error):  # the child may just have ended
                own = psutil.Process(process.pid)
                if any(
                    str(opened) == f.path for p in (own, *own.children()) for f in p.open_files()
                ):
                    break
        time.sleep(delay)
        started = time.monotonic()
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        seconds = time.monotonic() - started
    assert not list(out.glob(".*")), "a folder with voxels stays"
    return process.returncode, seconds, said


@pytest.fixture(scope="module")
def long_to_read(tmp_path_factory):
    """A compressed file of 400 MB, which takes seconds to read."""
    path = tmp_path_factory.mktemp("long") / "zeros.mha"
    sitk.WriteImage(sitk.Image(1024, 1024, 400, sitk.sitkUInt8), str(path), useCompression=True)
    return path


@pytest.fixture(scope="module")
def long_to_write(tmp_path_factory):
    """A file of noise, which takes long to compress."""
    path = tmp_path_factory.mktemp("noise") / "noise.nrrd"
    noise = np.random.default_rng(1).normal(size=(96, 256, 256)).astype(np.float32)
    sitk.WriteImage(sitk.GetImageFromArray(noise), str(path))
    return path


PHASES = ("reading", "reading labels", "registering", "writing")


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_every_phase(pair, long_to_read, long_to_write, tmp_path, phase, name):
    fixed, more, when = pair / "fixed.nii.gz", list(QUICK), {"opened": long_to_read}
    if phase == "reading":
        fixed = long_to_read
    elif phase == "reading labels":
        more += ["--moving-labels", long_to_read, "--output-labels", tmp_path / "labels.nii.gz"]
    elif phase == "registering":
        more, when = [*QUICK[:-4], "--refine", "1000"], {"line": "progress"}
    else:
        fixed, when = long_to_write, {"line": "filter-end"}
        more += ["--initial", "none", "--refine", "0"]
    number = getattr(signal, name)
    code, seconds, said = end_by(
        number,
        tmp_path,
        [fixed, fixed if phase == "writing" else pair / "moving.nii.gz", *more]
        + ["--output-volume", tmp_path / "warped.nrrd"]
        + ["--output-transform", tmp_path / "transform.h5"],
        **when,
    )
    assert code == 128 + number and "cancelled" in said, said
    assert seconds < limit(2) and not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_a_signal_at_any_time_leaves_all_or_nothing(pair, tmp_path):
    ends = set()
    for k in range(24):
        out = tmp_path / str(k)
        out.mkdir()
        arguments = [pair / "fixed.nii.gz", pair / "moving.nii.gz", *QUICK]
        arguments += ["--output-volume", out / "warped.mhd", "--report", out / "report.json"]
        code, seconds, said = end_by(signal.SIGTERM, out, arguments, delay=0.015 * k)
        there = {path.name for path in out.iterdir()}
        whole = {"warped.mhd", "warped.zraw", "report.json"}
        assert (code, there) in [(143, set()), (-15, set()), (0, whole)], (k, said)
        assert seconds < limit(2)
        ends.add(code)
    assert ends >= {143}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_what_is_under_way_is_for_its_owner_alone(pair, tmp_path):
    """Temporary files of a killed run are private; finished outputs have the umask's mode."""
    names = {"--output-volume": "warped.nrrd", "--output-transform": "transform.h5"}
    outputs = [text for flag, name in names.items() for text in (flag, tmp_path / name)]
    images = (pair / "fixed.nii.gz", pair / "moving.nii.gz")
    with subprocess.Popen(
        [EXECUTABLE, *map(str, (*images, *QUICK[:-4], "--refine", "1000", *outputs))],
        stdout=subprocess.PIPE,
        text=True,
        umask=0o022,
    ) as process:
        for line in process.stdout:
            if "progress" in line:
                break
        staging = list(tmp_path.iterdir())
        assert staging and all(path.name.startswith(".morphseek-") for path in staging)
        assert {path.stat().st_mode & 0o777 for path in staging} == {0o700}
        process.kill()
    assert sorted(tmp_path.iterdir()) == sorted(staging)
    assert run(*images, *QUICK, *outputs, umask=0o022).returncode == 0
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in names.values()} == {0o644}


def test_needs_no_python(tmp_path):
    """Registers two brains, if their files are present, with nothing on PATH."""
    data = Path(os.environ.get("MORPHSEEK_DATA", HERE.parents[2] / "shared" / "data")) / "brain"
    if not data.is_dir():
        pytest.skip(f"no brain pair: {data} is not there (MORPHSEEK_DATA)")
    fixed, moving = json.loads((data / "split.json").read_text())["pairs"]["test"][0]
    images = [data / "images" / f"{name}.nii.gz" for name in (fixed, moving)]
    written = {"output_transform": tmp_path / "t.h5", "report": tmp_path / "r.json"}
    done = register(images, preset="fast", initial="affine", refine=0, **written, how={"env": {}})
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["similarity_after"] > report["similarity_before"]


class TestNipype:
    @pytest.fixture(autouse=True)
    def on_path(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", f"{Path(EXECUTABLE).parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.chdir(tmp_path)

    def test_runs(self, pair):
        from morphseek.hosts.nipype import MorphSeekRegistration

        node = MorphSeekRegistration(
            fixed=str(pair / "fixed.nii.gz"),
            moving=str(pair / "moving.nii.gz"),
            moving_labels=str(pair / "moving_labels.nii.gz"),
            model="none",
            initial="com",
            search="off",
            refine=0,
        )
        outputs = node.run().outputs
        for path in (outputs.warped, outputs.transform, outputs.report, outputs.warped_labels):
            assert Path(path).is_file()
        assert json.loads(Path(outputs.report).read_text())["verdict"] == {
            "grade": outputs.verdict,
            "reasons": outputs.reasons,
            "error_mm": outputs.estimated_error,
        }
        assert (
            sitk.ReadImage(outputs.warped).GetSize()
            == sitk.ReadImage(str(pair / "fixed.nii.gz")).GetSize()
        )

    def test_travels_to_workers(self, pair):
        from morphseek.hosts.nipype import MorphSeekRegistration

        node = MorphSeekRegistration(
            fixed=str(pair / "fixed.nii.gz"),
            moving=str(pair / "moving.nii.gz"),
            refine=3,
            preset="fast",
        )
        assert pickle.loads(pickle.dumps(node)).cmdline == node.cmdline

    @pytest.mark.parametrize(
        "given, flag", [("low", "--smoothness low"), (2.5, "--smoothness 2.5")]
    )
    def test_smoothness_in_words_and_in_mm(self, given, flag, pair):
        from morphseek.hosts.nipype import MorphSeekRegistration

        node = MorphSeekRegistration(
            fixed=str(pair / "fixed.nii.gz"), moving=str(pair / "moving.nii.gz"), smoothness=given
        )
        assert flag in node.cmdline
        for wrong in ("stiff", 200.0):
            with pytest.raises(Exception, match="smoothness"):
                node.inputs.smoothness = wrong

    @pytest.mark.skipif(
        "MORPHSEEK_LONG_TESTS" not in os.environ,
        reason="takes minutes on a busy machine: set MORPHSEEK_LONG_TESTS",
    )
    def test_example_registers_a_cohort(self, pair, tmp_path):
        """20 pairs, 2 processes."""
        cohort = tmp_path / "moving"
        cohort.mkdir()
        moving = sitk.ReadImage(str(pair / "moving.nii.gz"))
        for i in range(20):
            shifted = sitk.Image(moving)
            shifted.SetOrigin([moving.GetOrigin()[0] + i, *moving.GetOrigin()[1:]])
            sitk.WriteImage(shifted, str(cohort / f"subject{i:02}.nii.gz"))
        example = HERE.parent / "examples" / "cohort.py"
        options = ("model=none", "initial=com", "search=off", "refine=0")
        subprocess.run(
            [sys.executable, example, pair / "fixed.nii.gz", cohort, tmp_path / "out", *options],
            check=True,
            capture_output=True,
            timeout=300,
        )
        transforms = sorted((tmp_path / "out").rglob("subject*_transform.h5"))
        assert len(transforms) == 20
        shifts = [
            sitk.ReadTransform(str(t)).TransformPoint((0.0, 0.0, 0.0))[0]
            for t in (transforms[0], transforms[19])
        ]
        assert shifts[1] - shifts[0] == pytest.approx(19, abs=0.5)


sys.path[:0] = [str(HERE.parents[1] / "python" / "tests" / place) for place in ("attack", ".")]
import image_cases  # noqa: E402  (Python's tests read the same files)
import test_dicom_images as dicom  # noqa: E402

from pace import limit  # noqa: E402


@pytest.mark.parametrize("name", image_cases.SOUND)
def test_a_sound_file_is_read(pair, tmp_path, name):
    (tmp_path / name).write_bytes(image_cases.SOUND[name])
    done = register([tmp_path / name] * 2, report=tmp_path / "report.json")
    assert "cannot be read" not in done.stderr and done.returncode == 0, done.stderr


BY_ITK = {
    *(f"{what}.mha" for what in ("many", "no-dims", "late", "sizes", "matrix")),
    *(f"{what}.nii" for what in ("endless", "nowhere")),
    *(f"{what}.nrrd" for what in ("magic", "dims", "swapped", "space", "sizes", "size", "type")),
    *(f"{what}.nrrd" for what in ("endian", "directions", "kinds", "field")),
}
"""What ITK's readers refuse in their own words, or end their process over."""


@pytest.mark.parametrize("name", image_cases.UNSOUND)
def test_an_unsound_file_is_refused(pair, tmp_path, name):
    data, words = image_cases.UNSOUND[name]
    (tmp_path / name).write_bytes(data)
    done = register((pair / "fixed.nii.gz", tmp_path / name), report=tmp_path / "report.json")
    assert done.returncode == 3 and f"moving: {tmp_path / name}" in done.stderr, done.stderr
    assert name in BY_ITK or words in done.stderr, done.stderr
    assert done.stderr.count("MorphSeekRegistration: ") == 1, "a library printed, too"


@pytest.mark.parametrize("suffix", ["gipl", "gipl.gz", "mrc", "vtk", "img.gz", "nhdr"])
def test_what_itk_fills_with_zeros_is_refused(pair, tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    moving = sitk.ReadImage(str(pair / "moving.nii.gz"))
    sitk.WriteImage(moving, str(path), useCompression=suffix.endswith(("gz", "nhdr")))
    flags = {"initial": "none", "report": tmp_path / "report.json"}
    assert register((path, path), **flags).returncode == 0
    voxels = path.with_name("a.raw.gz") if suffix == "nhdr" else path
    os.truncate(voxels, voxels.stat().st_size * 3 // 4)
    done = register((path, path), **flags)
    assert done.returncode == 3 and "cut short" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["plain.mha", "plain.nrrd"])
def test_a_missing_spacing_is_a_doubt(tmp_path, name):
    data = image_cases.SOUND[name]
    for line in (
        b"ElementSpacing = 1 1 2.5\n",
        b"space: left-posterior-superior\n",
        b"space directions: (1,0,0) (0,1,0) (0,0,2.5)\n",
        b"space origin: (1,2,3)\n",
    ):
        data = data.replace(line, b"")
    path, report = tmp_path / name, tmp_path / "report.json"
    path.write_bytes(data)
    doubts = morphseek.images.read(path, "moving").doubts
    assert len(doubts) == 1 and "how large its voxels are; 1 mm is taken" in doubts[0]
    assert register((path, path), report=report).returncode == 0
    assert doubts[0] in json.loads(report.read_text())["warnings"]


def try_dicom(path, report):
    written = {"report": report, "output_volume": report.with_name("warped.nrrd")}
    return register((path, path), initial="none", refine=0, **written)


UNLIKE = "localizer,size,far,gap,two,a slice,a palette,floats,JPEG,a table".split(",")
"""What is refused in fewer words than by Python."""


@pytest.mark.parametrize("what", dicom.FILES)
def test_dicom_folders_are_refused_as_by_python(tmp_path, what):
    slices, change, words = dicom.FILES[what]
    folder = dicom.write_folder(tmp_path / "files", slices, change)
    done = try_dicom(folder, tmp_path / "report.json")
    assert done.returncode == 3 and "moving: " in done.stderr and str(folder) in done.stderr
    assert any(each in what for each in UNLIKE) or re.search(words, done.stderr), done.stderr
    assert "; " in done.stderr and "QUXMANN" not in done.stderr


@pytest.mark.parametrize(
    "what, words",
    [
        ("MONOCHROME1", "is of MONOCHROME1, which"),
        ("the highest 12 bits", "in other bits than the lowest"),
        ("a table", "has a modality LUT"),
    ],
)
def test_what_gdcm_reads_otherwise_is_refused(tmp_path, what, words):
    folder = dicom.write_folder(tmp_path / "files", dicom.stack(), dicom.KINDS[what])
    for path in (folder, folder / "000.dcm"):
        done = try_dicom(path, tmp_path / "report.json")
        assert done.returncode == 3 and words in done.stderr, done.stderr


@pytest.mark.parametrize("what", dicom.FRAMES)
def test_dicom_frames_are_refused(tmp_path, what):
    (tmp_path / "folder").mkdir()
    path = dicom.write_frames(tmp_path / "folder" / "all.dcm", *dicom.FRAMES[what][:2])
    for given in (path, tmp_path / "folder"):
        done = try_dicom(given, tmp_path / "report.json")
        assert done.returncode == 3 and str(given) in done.stderr, done.stderr
    # sound ones, too: their places are in sequences
    for count in (1, dicom.N):
        dicom.write_frames(path, dicom.stack()[:count])
        done = try_dicom(path, tmp_path / "report.json")
        assert done.returncode == 3 and f"has {count} frames, whose places" in done.stderr


def test_dicom_that_is_cut_short_or_twice_is_refused(tmp_path):
    folder = dicom.write_folder(tmp_path / "files", dicom.stack())
    copy, last = folder / "copy.dcm", folder / "008.dcm"
    copy.write_bytes(last.read_bytes())
    done = try_dicom(folder, tmp_path / "report.json")
    assert done.returncode == 3 and "remove the copies" in done.stderr, done.stderr
    copy.unlink()
    last.write_bytes(last.read_bytes()[:-20])
    for given in (folder, last):
        done = try_dicom(given, tmp_path / "report.json")
        assert done.returncode == 3 and f"{last} cannot be read as DICOM: it is cut" in done.stderr


@pytest.mark.parametrize("axes", dicom.AXES)
@pytest.mark.parametrize("order", dicom.ORDERS)
def test_sound_dicom_lies_where_its_headers_say(tmp_path, axes, order):
    slices = [dicom.stack(dicom.AXES[axes])[k] for k in dicom.ORDERS[order]]
    folder = dicom.write_folder(tmp_path / "files", slices, SpacingBetweenSlices=1.0)
    done = try_dicom(folder, tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    warped = morphseek.images.read(tmp_path / "warped.nrrd")
    read = warped.like(np.rint(warped.array))  # it was resampled onto itself
    assert np.abs(read.array - warped.array).max() < 0.01
    dicom.check(read, slices)
    (doubt,) = morphseek.images.read(folder, "moving").doubts
    assert doubt in json.loads((tmp_path / "report.json").read_text())["warnings"]


@pytest.mark.parametrize("what", dicom.PICTURES)
def test_a_dicom_picture_alone_is_read_as_by_python(tmp_path, what):
    sop_class, modality, elements, spacing, doubt = dicom.PICTURES[what]
    made = dicom.blank(sop_class, dicom.VOXELS[0])
    made.Modality = modality
    for key, value in elements.items():
        setattr(made, key, value)
    path = tmp_path / "one.dcm"
    made.save_as(path, enforce_file_format=True)
    done = try_dicom(path, tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    assert sitk.ReadImage(str(tmp_path / "warped.nrrd")).GetSpacing()[:2] == pytest.approx(spacing)
    warnings = json.loads((tmp_path / "report.json").read_text())["warnings"]
    expected = morphseek.images.read(path, "moving").doubts
    assert len(expected) == bool(doubt) and set(expected) <= set(warnings)


@pytest.mark.parametrize(
    "flag", ["0", "1", "--moving-labels", "--fixed-mask", "--initial-transform"]
)
def test_a_pipe_is_refused(pair, tmp_path, flag):
    pipe = tmp_path / "pipe.mha"
    os.mkfifo(pipe)
    images = [pipe if flag == str(i) else pair / "fixed.nii.gz" for i in range(2)]
    more = [flag, pipe] if flag.startswith("--") else []
    more += ["--output-labels", tmp_path / "labels.mha"] if flag == "--moving-labels" else []
    done = register(images, *more, report=tmp_path / "report.json")
    assert done.returncode == 3 and f"{pipe} is a pipe" in done.stderr


def test_no_damaged_file_does_harm():
    import mutants

    assert mutants.run_module(60, EXECUTABLE) == []
