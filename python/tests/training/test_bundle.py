"""The shipped bundles on real pairs, through ONNX Runtime."""

import numpy as np
import pytest
import SimpleITK as sitk
import torch

import morphseek
from morphseek.training.evaluate import field_on_fixed_grid, score_pair
from morphseek.training.export import read_manifest
from morphseek.training.pairs import PairSource, make_grid, make_sample, read_pairs
from training_helpers import REPOSITORY, feed_of

BUNDLE = REPOSITORY / "engine" / "internal" / "network" / "bundles" / "hippocampus.onnx"
MORPHOMETRY = BUNDLE.with_name("hippocampus-morphometry.onnx")


def test_manifest():
    m = read_manifest(BUNDLE)
    assert BUNDLE.stat().st_size <= 4_000_000
    expected = (1, "hippocampus", "siamese", 8)
    assert (m["format"], m["name"], m["backbone"], m["size_multiple"]) == expected
    assert m["training_data"][0]["licence"] == "CC BY-SA 4.0" and "Vanderbilt" in m["credit"]
    assert m["metrics"]["test_dice"] >= 0.86 and m["metrics"]["test_njd_percent"] <= 0.05


def test_manifest_of_the_other():
    m = read_manifest(MORPHOMETRY)
    assert MORPHOMETRY.stat().st_size <= 4_000_000
    expected = ("hippocampus-morphometry", "affine", 8)
    assert (m["name"], m["initial"], m["size_multiple"]) == expected
    assert "Vanderbilt" in m["credit"]


@pytest.mark.thorough
def test_volumes_and_the_inverse(hippocampus):
    """On six test pairs the morphometry bundle maps labels both ways better than without a network,
    with smoother maps. Volumes are far more accurate than with the bundle for labels.
    """
    pairs = read_pairs(hippocampus, "test")[:12:2]
    none, labels, even = (
        morphseek.register_pairs(
            pairs, data=hippocampus, score=True, threads=1, model=name
        ).summary()
        for name in ("none", "hippocampus", "hippocampus-morphometry")
    )
    assert even["dice_after"] > none["dice_after"] + 0.01
    assert even["dice_inverse"] > max(none["dice_inverse"], labels["dice_inverse"]) + 0.01
    assert even["sdlogj"] < min(none["sdlogj"], labels["sdlogj"]) - 0.1
    assert even["volume_error_percent"] < labels["volume_error_percent"] - 5


@pytest.mark.thorough
def test_real_pairs(hippocampus):
    """On twelve of the forty test pairs Dice is near the manifest's value and there are hardly any
    folds. The engine computes the same fields.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    run = onnxruntime.InferenceSession(str(BUNDLE), options, providers=["CPUExecutionProvider"])
    m = read_manifest(BUNDLE)
    source = PairSource(hippocampus, 2, (m["intensity"]["low"], m["intensity"]["high"]))
    dice, njd = [], []
    for a, b in read_pairs(hippocampus, "test")[:12]:
        fixed, moving = source.case(a), source.case(b)
        grid = make_grid(fixed, m["spacing_mm"], m["min_size"], m["size_multiple"])
        pair = make_sample(fixed, moving, grid, 0)
        stride = m["latent"]["stride"]
        u = np.zeros((1, 3, *grid.size), np.float32)
        zero = np.zeros((1, m["latent"]["channels"], *(n // stride for n in grid.size)), np.float32)
        for t in range(m["steps"]):
            u = run.run(["u"], feed_of(pair.fixed, pair.moving, u, zero, first=[t]))[0]
            if t == 0 and len(dice) < 3:
                images = [
                    sitk.DICOMOrient(
                        sitk.ReadImage(str(hippocampus / "images" / f"{name}.nii.gz")), "LPS"
                    )
                    for name in (a, b)
                ]
                start = np.eye(4)
                start[:3, 3] = moving.centre - fixed.centre
                how = {"initial": "none", "initial_transform": start, "threads": 1, "steps": 1}
                result = morphseek.register(*images, model=str(BUNDLE), **how)
                by_torch = field_on_fixed_grid(torch.from_numpy(u), grid, fixed)[0].numpy() + (
                    start[2::-1, 3] / fixed.spacing
                ).reshape(3, 1, 1, 1)
                # a missing slice of the input would change it by 0.1 on average
                np.testing.assert_allclose(result.displacement(), by_torch, atol=1e-3)
        s = score_pair(torch.from_numpy(u), grid, fixed, moving, 2)
        dice.append(s["dice"])
        njd.append(s["njd"])
    assert np.mean(dice) == pytest.approx(m["metrics"]["test_dice"], abs=0.02)
    assert np.mean(njd) <= 0.05
