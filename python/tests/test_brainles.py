"""The back end for BrainLesion's preprocessing, beside SimpleITK. The test hosts-back-ends
runs it in the environment that has the package.
"""

import warnings
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from helpers import blob, invalid
from morphseek import errors

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of back ends that are not installed
    pytest.importorskip("brainles_preprocessing.registration.registrator",
                        reason="needs brainles-preprocessing", exc_type=ImportError)  # fmt: skip
    from brainles_preprocessing.registration.registrator import Registrator

    from morphseek.hosts.brainles import MorphSeekRegistrator

SHIFTS = [(4.0, -3.0, 2.0), (-2.5, 1.0, 3.0)]


def moved(path: Path, *shifts: tuple[float, float, float]) -> Path:
    """Write the body, shifted in LPS mm only by its origin."""
    image = sitk.GetImageFromArray(blob((24, 28, 32)))
    image.SetSpacing((2.0, 2.0, 2.5))
    image.SetOrigin(tuple(np.sum([(0.0, 0.0, 0.0), *shifts], axis=0).tolist()))
    sitk.WriteImage(image, str(path))
    return path


@pytest.fixture
def chain(tmp_path: Path) -> list[Path]:
    """Write an atlas, a centre image, and another image of the same person."""
    return [
        moved(tmp_path / "atlas.nii.gz"),
        moved(tmp_path / "t1.nii.gz", SHIFTS[0]),
        moved(tmp_path / "flair.nii.gz", *SHIFTS),
    ]


def shift_of(path: Path) -> np.ndarray:
    transform = sitk.ReadTransform(str(path))
    centre = (30.0, 27.0, 29.0)
    return np.subtract(transform.TransformPoint(centre), centre)


def test_register_chain_and_back(chain: list[Path], tmp_path: Path):
    """With known shifts, each transform leads from the fixed to the moving place. Two of them, in
    the order in which they act on the image, bring it onto the atlas. The inverse brings a mask
    back.
    """
    atlas, t1, flair = chain
    registrator = MorphSeekRegistrator()
    assert isinstance(registrator, Registrator)
    out, log = tmp_path / "out.nii.gz", tmp_path / "log.txt"
    for fixed, moving, name, shift in (
        (t1, flair, "coregistration", SHIFTS[1]), (atlas, t1, "atlas", SHIFTS[0])
    ):  # fmt: skip
        registrator.register(str(fixed), str(moving), str(out), str(tmp_path / name), str(log))
        np.testing.assert_allclose(shift_of(tmp_path / f"{name}.h5"), shift, atol=0.1)
        assert "Registration(good" in log.read_text()
    both = [str(tmp_path / "coregistration"), str(tmp_path / "atlas.h5")]
    registrator.transform(str(atlas), str(flair), str(out), both, str(log))
    assert sitk.ReadImage(str(out)).GetOrigin() == sitk.ReadImage(str(atlas)).GetOrigin()
    theirs = sitk.Resample(
        sitk.ReadImage(str(flair)), sitk.ReadImage(str(atlas)),
        sitk.TranslationTransform(3, np.sum(SHIFTS, axis=0).tolist()),
    )  # fmt: skip
    ours, theirs = (
        sitk.GetArrayFromImage(image)[3:-3, 3:-3, 3:-3]
        for image in (sitk.ReadImage(str(out)), theirs)
    )
    assert np.abs(ours - theirs).max() < 0.05 * np.ptp(theirs)

    mask = sitk.Cast(sitk.ReadImage(str(atlas)) > 0.3, sitk.sitkUInt8) * 7
    sitk.WriteImage(mask, str(tmp_path / "mask.nii.gz"))
    registrator.inverse_transform(
        str(flair), str(tmp_path / "mask.nii.gz"), str(out), both, None, "nearestNeighbor"
    )
    back = sitk.ReadImage(str(out))
    assert set(np.unique(sitk.GetArrayFromImage(back))) == {0, 7}
    body = sitk.GetArrayFromImage(sitk.ReadImage(str(flair))) > 0.3
    assert ((sitk.GetArrayFromImage(back) == 7) != body).sum() < 0.05 * body.sum()


def test_refused(chain: list[Path], tmp_path: Path):
    registrator = MorphSeekRegistrator()
    files = [str(path) for path in chain[:2]]
    with pytest.raises(errors.InputUnreadableError, match=r"none\.h5"):
        registrator.transform(*files, str(tmp_path / "out.nii"), str(tmp_path / "none"))
    invalid("is empty", registrator.transform, *files, str(tmp_path / "out.nii"), [])
    registrator.register(*files, str(tmp_path / "out.nii"), str(tmp_path / "m"))
    with pytest.raises(errors.InvalidArgumentError, match="'bspline'"):
        registrator.transform(
            *files, str(tmp_path / "new.nii"), str(tmp_path / "m"), interpolator="bspline"
        )
    assert not (tmp_path / "new.nii").exists()
