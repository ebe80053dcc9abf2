"""Registrations that are driven by several images of one patient, or by label maps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import Command, invalid, refused, write_pair
from morphseek import Channel, channels, errors, phantom

QUICK: dict[str, Any] = {"preset": "fast", "refine": 5, "search": False, "initial": "com"}


@pytest.fixture(scope="module")
def pair() -> phantom.PhantomPair:
    return phantom.make_pair(size=40, seed=3)


@pytest.fixture(scope="module")
def same(pair: phantom.PhantomPair) -> morphseek.Registration:
    """A registration whose channel is the pair itself."""
    both = (pair.fixed, pair.moving)
    return morphseek.register(*both, channels=[both], **QUICK)


def dice(result: morphseek.Registration, pair: phantom.PhantomPair) -> float:
    scores = result.score(pair.fixed_labels, pair.moving_labels)
    return float(np.mean([s.dice_after for s in scores]))


def test_labels_drive(pair: phantom.PhantomPair):
    plain = morphseek.register(pair.fixed, pair.moving, **QUICK)
    labels = Channel(pair.fixed_labels, pair.moving_labels, labels=True, name="organs")
    driven = morphseek.register(pair.fixed, pair.moving, channels=[labels], **QUICK)
    assert plain.metrics["channels"] is None
    (said,) = driven.metrics["channels"]
    assert said["name"] == "organs" and said["similarity"] == "labels" and said["labels"] > 1
    assert said["after"] > said["before"]
    assert dice(driven, pair) > dice(plain, pair) + 0.01


def test_lists_are_channels(pair: phantom.PhantomPair, same: morphseek.Registration):
    """Lists of images are the first pair and channels; an image without a partner is reported."""
    one = morphseek.register([pair.fixed, pair.fixed, None], [pair.moving] * 3, **QUICK)
    np.testing.assert_array_equal(one.displacement(), same.displacement())
    assert "The fixed side lacks image 3: it was not used." in one.metrics["warnings"]
    assert len(one.metrics["channels"]) == 1


def test_a_channel_has_a_grid_of_its_own(pair: phantom.PhantomPair, same: morphseek.Registration):
    """A channel gives the same result after resampling to another spacing and orientation."""

    def elsewhere(image: morphseek.Image) -> sitk.Image:
        there = sitk.DICOMOrient(image.to_sitk(), "RAI")
        there = sitk.PermuteAxes(there, (2, 0, 1))
        spacing = [0.9 * s for s in there.GetSpacing()]
        size = [int(n / 0.9) for n in there.GetSize()]
        place = (there.GetOrigin(), spacing, there.GetDirection())
        return sitk.Resample(there, size, sitk.Transform(), sitk.sitkLinear, *place)

    channel = (elsewhere(pair.fixed), elsewhere(pair.moving))
    other = morphseek.register(pair.fixed, pair.moving, channels=[channel], **QUICK)
    apart = np.linalg.norm(same.displacement() - other.displacement(), axis=0)
    assert 0 < apart.mean() < 0.15


@pytest.mark.parametrize(
    "fixed, moving, given, say",
    [
        (["f", "f"], ["m"], None, "2 fixed and 1 moving images are given"),
        ([], [], None, "0 fixed and 0 moving"),
        (["f", None], [None, "m"], None, "no image is there on both sides"),
        ("f", "m", ["x"], "a channel is 'x'"),
        ("f", "m", [("f", "m", 0)], "the weight of a channel is 0"),
        ("f", "m", [("f", "m", 1, True)], "labels must be whole numbers"),
        ("f", "m", [("f", "m", True)], "the weight of a channel is True"),
        ("f", "m", [("f", np.zeros((2, 3, 4)))], "channel 2, moving"),
    ],
)
def test_what_is_no_channel(pair, fixed, moving, given, say):
    def image(name: Any) -> Any:
        if isinstance(name, list):
            return [image(n) for n in name]
        return {"f": pair.fixed, "m": pair.moving}.get(name) if isinstance(name, str) else name

    if given is not None:
        given = [tuple(map(image, c)) if isinstance(c, tuple) else c for c in given]
    images = (image(fixed), image(moving))
    refused(errors.MorphSeekError, say, morphseek.register, *images, channels=given, **QUICK)


def test_large_labels_are_refused(pair: phantom.PhantomPair):
    """In float32 two such labels would become one."""
    large = pair.fixed_labels.array.astype(np.int64) + (1 << 24)
    given, says = (
        [Channel(large, pair.moving_labels, labels=True)],
        "labels of channel 2, fixed have the value 167",
    )
    invalid(says, morphseek.register, pair.fixed, pair.moving, channels=given, **QUICK)


def test_weights_of_numpy():
    assert [Channel("f", "m", kind(2)).weight for kind in (np.float32, np.int64)] == [2, 2]


def test_names():
    assert channels.name_of(Channel("a/flair.nii.gz", "b"), 2) == "flair.nii.gz"
    assert channels.name_of(Channel(np.zeros(3), "b"), 4) == "channel 4"
    assert channels.name_of(Channel("a", "b", name="T2"), 4) == "T2"


def test_command(tmp_path: Path, pair: phantom.PhantomPair, command: Command):
    paths = write_pair(tmp_path, pair)
    arguments = [
        "register", paths["fixed"], paths["moving"], "--out", tmp_path / "out",
        "--channel", paths["fixed"], paths["moving"],
        "--label-channel", paths["fixed_labels"], paths["moving_labels"],
        "--preset", "fast", "--refine", "5", "--search", "off", "--initial", "com",
    ]  # fmt: skip
    command(*arguments, "--channel-weight", "0.5", "--channel-weight", "2")
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    said = [(c["name"], c["weight"], c["similarity"]) for c in report["channels"]]
    assert said[0][:2] == ("fixed.nii.gz", 0.5)
    assert said[1] == ("fixed_labels.nii.gz", 2, "labels")
    text = command(*arguments, "--channel-weight", "0.5", expect=2)
    assert "--channel-weight is given 1 times for 2 channels" in text
    text = command(
        "register", paths["fixed"], paths["moving"], "--out", tmp_path / "other",
        "--channel", tmp_path / "none.nii.gz", paths["moving"], expect=3,
    )  # fmt: skip
    assert "none.nii.gz" in text and not (tmp_path / "other").exists()
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "warped.nii.gz").write_bytes(paths["moving"].read_bytes())
    text = command(
        "register", paths["fixed"], paths["moving"], "--out", taken,
        "--channel", paths["fixed"], taken / "warped.nii.gz", expect=2,
    )  # fmt: skip
    assert "channel 2, moving" in text
