"""Echo-planar images with opposite phase encodings, made from a known body and a known field."""

import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from click.testing import CliRunner

import morphseek
from helpers import Command, refused
from morphseek import errors, images, phantom
from morphseek.cli import app


def shown(body: np.ndarray, shift: np.ndarray, axis: int) -> np.ndarray:
    """Return the image in which x is shifted to x + shift(x); squeezed tissue is brighter."""
    lines = np.moveaxis(body, axis, -1).reshape(-1, body.shape[axis]).astype(np.float64)
    moved = np.moveaxis(shift, axis, -1).reshape(lines.shape)
    n = lines.shape[1]
    x, fine = np.arange(n), np.linspace(-8, n + 7, 16 * n)
    out = np.empty_like(lines)
    for row, line, d in zip(out, lines, moved):
        y = fine + np.interp(fine, x, d)
        row[:] = np.interp(x, y, np.interp(fine, x, line) / np.gradient(y, fine))
    reshaped = out.reshape(*np.moveaxis(body, axis, -1).shape)
    return np.moveaxis(reshaped, -1, axis).astype(np.float32)


@pytest.fixture(scope="module")
def scan() -> dict[str, np.ndarray]:
    pair = phantom.make_pair(size=64, seed=3)
    body = np.asarray(pair.fixed.array, np.float64)
    body = body - body.min()
    z, y, x = np.indices(body.shape) / 63
    shift = 4.5 * np.exp(-14 * ((x - 0.45) ** 2 + (y - 0.4) ** 2 + (z - 0.5) ** 2))
    shift -= 2.0 * np.exp(-20 * ((x - 0.6) ** 2 + (y - 0.7) ** 2 + (z - 0.4) ** 2))
    noise = np.random.default_rng(1).normal(0, 0.02 * np.percentile(body, 99), (2, *body.shape))
    first, second = (shown(body, s * shift, 1) + n for s, n in zip((1, -1), noise))
    tissue = body > 0.2 * np.percentile(body, 99)
    return {"body": body, "shift": shift, "first": first, "second": second, "tissue": tissue}


def test_the_field_is_found(scan: dict[str, np.ndarray]):
    first, second = (scan[name].astype(np.float32) for name in ("first", "second"))
    found = morphseek.correct_epi(first, second, phase_encoding="j", readout_time=0.05)
    tissue, shift = scan["tissue"], scan["shift"]
    off = np.abs(found.shift.array - shift)[tissue]
    assert np.median(off) < 0.1 and np.percentile(off, 95) < 0.3, np.percentile(off, [50, 95])
    assert found.fieldmap is not None
    np.testing.assert_allclose(found.fieldmap.array, found.shift.array / 0.05, rtol=1e-5)
    wrong, before = (
        np.abs(a - scan["body"])[tissue].mean() for a in (found.mean.array, 0.5 * (first + second))
    )
    assert wrong < 0.5 * before
    # A plain registration along the axis ignores the brightness, so its error is larger.
    plain = morphseek.register(first, second, along="j", initial="none", model="none")
    other = np.abs(-0.5 * plain.displacement()[1] - shift)[tissue]
    assert np.percentile(off, 95) < 0.75 * np.percentile(other, 95)
    # The transform also corrects another image with the same encoding.
    transform = found.transform()
    assert not transform.displacement()[0].any() and not transform.displacement()[2].any()
    np.testing.assert_allclose(transform.displacement()[1], found.shift.array)
    # With the images swapped, the shift changes its sign but the field in Hz does not.
    turned = morphseek.correct_epi(second, first, phase_encoding="j-", readout_time=0.05)
    assert turned.fieldmap is not None
    np.testing.assert_allclose(turned.shift.array, -found.shift.array, atol=0.02)
    np.testing.assert_allclose(turned.fieldmap.array, found.fieldmap.array, atol=0.4)


def test_the_command_reads_bids(tmp_path: Path, scan: dict[str, np.ndarray], command: Command):
    for name, direction in (("first", "j"), ("second", "j-")):
        image = images.Image(scan[name].astype(np.float32), (2, 2, 3), (5, -7, 9))
        images.write(tmp_path / f"{name}.nii.gz", image)
        told = {"PhaseEncodingDirection": direction, "TotalReadoutTime": 0.04}
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    paths = [tmp_path / f"{name}.nii.gz" for name in ("first", "second")]
    out = tmp_path / "out"
    assert "voxels along j" in command("correct-epi", *paths, "--out", out)
    names = {f"{name}.nii.gz" for name in ("shift", "fieldmap", "first", "second", "mean")}
    assert {p.name for p in out.iterdir()} == names | {"first.h5", "second.h5", "epi.json"}
    shift = images.read(out / "shift.nii.gz")
    tissue = scan["tissue"]
    assert np.percentile(np.abs(shift.array - scan["shift"])[tissue], 95) < 0.3
    fieldmap = images.read(out / "fieldmap.nii.gz").array
    np.testing.assert_allclose(fieldmap, shift.array / 0.04, atol=1e-3)
    # ITK reads its transform; modulated by the Jacobian, it gives the corrected image.
    transform = sitk.ReadTransform(str(out / "first.h5"))
    at = (5 + 2 * 30, -7 + 2 * 28, 9 + 3 * 31)
    got = transform.TransformPoint(at)
    np.testing.assert_allclose(got, np.array(at) + [0, 2 * shift.array[31, 28, 30], 0], atol=1e-3)
    again = tmp_path / "again.nii.gz"
    command("apply", "-t", out / "first.h5", "-i", paths[0], "-o", again, "--modulate")
    one, other = images.read(again).array[tissue], images.read(out / "first.nii.gz").array[tissue]
    assert np.abs(one - other).mean() < 0.03 * other.mean()
    # An option that contradicts the files is refused.
    nowhere = ("--out", tmp_path / "no")
    command("correct-epi", *paths, "--phase-encoding", "i", *nowhere, expect=2)
    command("correct-epi", *reversed(paths), "--readout-time", "0.09", *nowhere, expect=2)
    (tmp_path / "second.json").write_text(json.dumps({"PhaseEncodingDirection": "j"}))
    text = command("correct-epi", *paths, "--out", tmp_path / "no", expect=2)
    assert "not opposite" in text and not (tmp_path / "no").exists()


SMALL = np.random.default_rng(1).standard_normal((12, 12, 12)).astype(np.float32)


@pytest.mark.parametrize(
    "given, error, says",
    [
        (dict(phase_encoding="y"), errors.InvalidArgumentError, "be i, i-"),
        (dict(phase_encoding=None), errors.InvalidArgumentError, "not known"),
        (dict(readout_time=-1), errors.InvalidArgumentError, "readout time"),
        (dict(readout_time=np.inf), errors.InvalidArgumentError, "seconds"),
        (dict(second=SMALL[1:]), errors.GridMismatchError, "second image"),
        (dict(first=0 * SMALL), errors.ConstantVolumeError, "first"),
        (dict(first=SMALL[:, :4], second=SMALL[:, :4]), errors.ThinVolumeError,
         "4 voxels along the phase encoding"),
    ],
)  # fmt: skip
def test_bad_input(given: dict, error: type[Exception], says: str):
    given = {"phase_encoding": "j", **given}
    pair = (given.pop("first", SMALL), given.pop("second", SMALL + 1))
    refused(error, says, morphseek.correct_epi, *pair, **given)


@pytest.mark.parametrize(
    "told, says",
    [
        ('{"PhaseEncodingDirection": "j"', "is no JSON"),
        ('["j"]', "is no JSON object"),
        (
            '{"PhaseEncodingDirection": ["j"]}',
            r"PhaseEncodingDirection in its BIDS file is \['j'\]",
        ),
        ('{"PhaseEncodingDirection": "j", "TotalReadoutTime": true}', "time in seconds is True"),
        ('{"PhaseEncodingDirection": "j", "TotalReadoutTime": "x"}', "time in seconds is 'x'"),
        ('{"PhaseEncodingDirection": "j", "TotalReadoutTime": NaN}', "time in seconds is nan"),
        ("\xff", "first.json is no text in UTF-8"),
    ],
)
def test_a_bids_file_that_is_damaged(told: str, says: str, tmp_path: Path):
    for name in ("first", "second"):
        images.write(tmp_path / f"{name}.nii.gz", images.Image(SMALL))
    (tmp_path / "first.json").write_text(told, encoding="latin-1")
    pair = [str(tmp_path / f"{name}.nii.gz") for name in ("first", "second")]
    refused(errors.MorphSeekError, says, morphseek.correct_epi, *pair)
    found = CliRunner().invoke(app, ["correct-epi", *pair, "--out", str(tmp_path / "out")])
    assert found.exit_code in (2, 3) and found.output.startswith("morphseek: "), found.output
    assert not (tmp_path / "out").exists()


def test_a_second_call_on_a_folder_fails_at_once(tmp_path: Path):
    given = np.tile(SMALL, (2, 2, 2)), np.tile(SMALL, (2, 2, 2)) + 1, tmp_path / "out"
    seen: list[morphseek.Progress] = []

    def again(report: morphseek.Progress) -> None:
        if not seen:
            seen.append(report)
            with pytest.raises(errors.OutputUnwritableError, match="another call of morphseek"):
                morphseek.correct_epi(*given, phase_encoding="j", progress=seen.append)

    morphseek.correct_epi(*given, phase_encoding="j", progress=again)
    assert len(seen) == 1 and (tmp_path / "out" / "epi.json").exists()


def test_it_is_cancelled():
    pair = np.tile(SMALL, (4, 4, 4)), np.tile(SMALL, (4, 4, 4)) + 1
    with pytest.raises(errors.CancelledError):
        morphseek.correct_epi(*pair, phase_encoding="j", progress=lambda p: False)
