"""Tensors of PyTorch and MONAI, and registration as a MONAI transform, compared with SimpleITK."""

import warnings
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from helpers import QUICK, blob, invalid, oblique, resampled
from morphseek import images

torch = pytest.importorskip("torch", reason="needs PyTorch (extra morphseek[monai])")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MONAI's own warnings at import
    pytest.importorskip("monai", reason="needs MONAI (extra morphseek[monai])")
    from monai.data import DataLoader, Dataset, MetaTensor
    from monai.networks.blocks import Warp
    from monai.transforms import Compose, EnsureChannelFirstd, LoadImaged

    from morphseek.hosts.monai import Register, Registerd

RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
MONAIS_OWN = pytest.mark.filterwarnings("ignore")  # it warns of its own fallbacks


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, found = tmp_path_factory.mktemp("monai"), {}
    for name, shift in (("fixed", 0.0), ("moving", 0.15)):
        image = oblique(blob(shift=shift))
        images.write(folder / f"{name}.nii.gz", image)
        labels = image.like((image.array > 0.4).astype(np.uint8))
        images.write(folder / f"{name}_labels.nii.gz", labels)
        found[name] = str(folder / f"{name}.nii.gz")
    found["labels"] = str(folder / "moving_labels.nii.gz")
    return found


def loaded(paths: dict[str, str], *more: Any) -> Compose:
    keys = list(paths)
    return Compose([LoadImaged(keys), EnsureChannelFirstd(keys), *more])


def test_a_tensor_is_shared():
    tensor = torch.rand(4, 5, 6)
    read = images.read(tensor, "fixed")
    assert np.shares_memory(read.array, tensor.numpy()) and read.array.shape == (4, 5, 6)
    assert np.array_equal(images.read(tensor.requires_grad_()).array, tensor.detach().numpy())


def test_a_tensor_is_carried_from_the_moving_image(paths: dict[str, str]):
    import morphseek

    result = morphseek.register(paths["fixed"], paths["moving"], **QUICK)
    labels = images.read(paths["labels"]).array
    found = result.apply(torch.from_numpy(labels.copy()), interpolation="nearest")
    two = (sitk.ReadImage(paths[name]) for name in ("labels", "fixed"))
    expected = resampled(*two, result.transform.to_sitk(), sitk.sitkNearestNeighbor)
    assert type(found) is np.ndarray and (found > 0).sum() > 100
    assert (found != expected).mean() < 1e-3
    grown = torch.from_numpy(labels.astype(np.float32)).requires_grad_()
    np.testing.assert_array_equal(result.apply(grown, interpolation="nearest"), found)


def test_a_tensor_elsewhere_is_refused():
    class OnGpu:
        shape = (4, 5, 6)

        def __dlpack__(self) -> Any:
            raise AssertionError("it must not be asked")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    invalid(r"fixed is a tensor on a GPU.*cpu\(\)", images.read, OnGpu(), "fixed")
    for tensor in (torch.zeros(4, 5, 6, device="meta"), torch.zeros(4, 5, 6).to_mkldnn()):
        for given in (tensor, MetaTensor(torch.zeros(1, 4, 5, 6, device="meta"))):
            invalid("fixed: the Tensor cannot be read as an array", images.read, given, "fixed")
    import morphseek

    invalid("BFloat16", morphseek.Landmarks, torch.zeros(4, 3, dtype=torch.bfloat16))


@MONAIS_OWN
def test_a_meta_tensor_lies_where_its_file_does(paths: dict[str, str]):
    tensor = loaded({"fixed": paths["fixed"]})({"fixed": paths["fixed"]})["fixed"]
    found, truth = images.read(tensor), images.read(paths["fixed"])
    np.testing.assert_allclose(found.grid.numbers, truth.grid.numbers, atol=1e-4)
    np.testing.assert_array_equal(found.array, truth.array)
    lps = MetaTensor(tensor.as_tensor(), affine=RAS @ tensor.affine.numpy(), meta={"space": "LPS"})
    np.testing.assert_allclose(images.read(lps).grid.numbers, truth.grid.numbers, atol=1e-4)


@MONAIS_OWN
def test_a_meta_tensor_stays_one(paths: dict[str, str]):
    import morphseek

    data = loaded(paths)(paths)
    result = morphseek.register(data["fixed"], data["moving"], **QUICK)
    carried = result.apply(data["moving"])
    assert type(carried) is MetaTensor and carried.shape == data["fixed"].shape
    expected = Register(**QUICK)(data["fixed"], data["moving"])["warped"]
    np.testing.assert_allclose(carried.affine, expected.affine)
    np.testing.assert_allclose(carried, expected, atol=1e-3)


def test_channels_are_refused():
    invalid("one channel", images.read, MetaTensor(torch.zeros(2, 4, 5, 6)))


@MONAIS_OWN
def test_warp_is_what_simpleitk_resamples(paths: dict[str, str]):
    import morphseek

    data = loaded(paths)(paths)
    found = Register(**QUICK)(data["fixed"], data["moving"], data["labels"])
    result = morphseek.register(paths["fixed"], paths["moving"], **QUICK)
    fixed, moving = (sitk.ReadImage(paths[n], sitk.sitkFloat32) for n in ("fixed", "moving"))
    transform = result.transform.to_sitk()
    for index in ((3, 4, 5), (14, 12, 10), (20, 5, 15)):  # x, y, z
        point = transform.TransformPoint(fixed.TransformIndexToPhysicalPoint(index))
        truth = moving.TransformPhysicalPointToContinuousIndex(point)
        ours = np.array(index) + found["ddf"][(slice(None), *index)].numpy()
        np.testing.assert_allclose(ours, truth, atol=0.01)
        assert np.abs(ours - index).max() > 0.5  # the transform is not the identity
    truth = resampled(moving, fixed, transform).T
    warped = Warp()(data["moving"].as_tensor()[None].float(), found["ddf"][None])[0, 0].numpy()
    inner = (slice(4, -4),) * 3
    np.testing.assert_allclose(warped[inner], truth[inner], atol=2e-3)
    np.testing.assert_allclose(found["warped"][0].numpy()[inner], truth[inner], atol=2e-3)
    np.testing.assert_allclose(found["warped"].affine, data["fixed"].affine, atol=1e-4)
    labels = sitk.ReadImage(paths["labels"])
    labels = resampled(labels, fixed, transform, sitk.sitkNearestNeighbor).T
    assert (found["labels"][0].numpy() == labels).mean() > 0.999


@pytest.mark.thorough
@MONAIS_OWN
def test_in_a_pipeline_of_two_workers(paths: dict[str, str]):
    pipeline = loaded(paths, Registerd(labels="labels", **QUICK))
    loader = DataLoader(
        Dataset([paths] * 2, pipeline), num_workers=2, multiprocessing_context="spawn"
    )
    found = list(loader)
    assert len(found) == 2
    assert found[0]["ddf"].shape == (1, 3, 28, 24, 20)
    assert torch.equal(found[0]["ddf"], found[1]["ddf"])
    assert found[0]["warped_labels"].shape == (1, 1, 28, 24, 20)


def test_sizes_that_differ_and_keys_that_lack():
    one, other = (
        MetaTensor(torch.from_numpy(blob(s).T.copy())[None]) for s in ((20, 24, 28), (20, 24, 30))
    )
    assert Register(**QUICK)(one, other)["ddf"] is None
    invalid("ResampleToMatchd", Registerd(**QUICK), {"fixed": one, "moving": other})
    invalid("no 'moving'", Registerd(), {"fixed": one})
