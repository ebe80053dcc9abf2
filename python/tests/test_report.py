"""The report is self-contained, has the right content, and shows the right orientation."""

import base64
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import nibabel
import numpy as np
import pytest
from html_tree import Element, parsed
from PIL import Image as Drawing

import morphseek
from helpers import QUICK, Command, blob, invalid, oblique, refused
from morphseek import images, phantom, studies
from morphseek.phantom import PhantomPair
from morphseek.report import pack, picture, places, viewer_data, worst_places, write_report
from morphseek.report.axes import Axes, plane_letters
from morphseek.report.maps import Maps
from morphseek.report.render import data_url, render
from morphseek.report.views import Scene
from morphseek.scoring import score_labels, score_landmarks

TEMPLATES = Path(viewer_data.__file__).parent / "templates"
VOXELS = "40 \u00d7 40 \u00d7 40 voxels of 9.6 \u00d7 7.5 \u00d7 8.4 mm, float32"


def written(path: Path, *arguments: Any, **more: Any) -> str:
    """Write a page and return it."""
    write_report(path / "report.html", *arguments, **more)
    return (path / "report.html").read_text(encoding="utf-8")


def unpacked(text: str, shape: Sequence[int], bits: int) -> np.ndarray:
    """Return the volume of ``pack.packed`` as the viewer does: of 7 bits the lowest one is lost."""
    flat = np.frombuffer(gzip.decompress(base64.b64decode(text)), np.uint8).reshape(shape)
    volume = np.cumsum(flat, axis=-1, dtype=np.uint8)
    return volume if bits == 8 else volume << np.uint8(1) | volume >> np.uint8(6)


def data_of(page: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the viewer's data: the description, and the volumes as the viewer unpacks them."""
    tree = parsed(page)
    meta = json.loads(tree.one("script", id="meta").text)
    volumes = {}
    for entry in meta["volumes"]:
        text = tree.one("script", id=f"volume-{entry['id']}").text
        volumes[entry["id"]] = unpacked(text, entry["size"][::-1], entry["bits"])
    return meta, volumes


def pixels(url: str) -> np.ndarray:
    """Return the palette indices of one of our pictures."""
    kind, _, file = url.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Drawing.open(io.BytesIO(base64.b64decode(file))))


def still_of(page: str) -> np.ndarray:
    return pixels(parsed(page).one(id="still").one("img")["src"])


def table_of(page: str, heading: str) -> list[list[str]]:
    """Return the table of the section with a heading."""
    sections = parsed(page).all("section")
    (section,) = (s for s in sections if heading in [h.text for h in s.all("h2")])
    return section.one("table").rows()


def tiles_of(page: str) -> dict[str, str]:
    """Return the figures at the head."""
    tiles = parsed(page).one("dl", "tiles")
    return {t.one("dt").text: t.one("dd").text for t in tiles.all("div")}


@pytest.fixture(scope="module")
def page(
    pair: PhantomPair, result: morphseek.Registration, tmp_path_factory: pytest.TempPathFactory
) -> str:
    result.metrics["warnings"].append("A <warning> in plain words.")
    try:
        labels = {"fixed_labels": pair.fixed_labels, "moving_labels": pair.moving_labels}
        return written(
            tmp_path_factory.mktemp("report"), result, pair.fixed, pair.moving, **labels,
            scores=score_labels(result, *labels.values()), label_names=phantom.LABELS,
            command="morphseek register 'my fixed.nii' moving.nii --out out",
            title="moving onto fixed",
        )  # fmt: skip
    finally:
        result.metrics["warnings"].pop()


# ---------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize("bits", [8, 7])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1), (7, 1, 9), (20, 31, 33)])
def test_packing_is_undone(bits: int, shape: tuple[int, int, int]):
    volume = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    back = unpacked(pack.packed(volume, bits), shape, bits)
    if bits == 8:
        np.testing.assert_array_equal(back, volume)
    else:
        assert np.abs(back.astype(int) - volume).max() <= 1
        for end in (0, 255):
            flat = np.full(shape, end, np.uint8)
            assert (unpacked(pack.packed(flat, 7), shape, 7) == end).all()


def test_intensities_become_bytes():
    values = np.array([[[-5.0, 0.0, 50.0, 100.0, 1e30]]], np.float32)
    assert pack.quantised(values, 0, 100).tolist() == [[[0, 0, 128, 255, 255]]]


def test_halving_keeps_means_and_first_labels():
    volume = np.arange(14, dtype=np.uint8).reshape(1, 2, 7) * 17
    mean = pack.halved(volume, 2, True)
    assert mean.shape == (1, 2, 4)
    truth = (volume[0, :, 0:6:2].astype(int) + volume[0, :, 1:6:2]) / 2
    assert np.abs(mean[0, :, :3] - truth).max() < 1
    assert (mean[0, :, 3] == volume[0, :, 6]).all()
    assert pack.halved(volume, 2, False).tolist() == volume[:, :, ::2].tolist()


def test_the_estimate_is_near():
    volume = np.cumsum(np.random.default_rng(1).integers(0, 5, (96, 80, 80)), 0).astype(np.uint8)
    assert pack.estimate(volume, 8) == pytest.approx(len(pack.packed(volume)), rel=0.1)


def test_pictures():
    image = np.random.default_rng(1).integers(0, 68, (31, 43)).astype(np.uint8)
    np.testing.assert_array_equal(pixels(data_url(picture.png(image))), image)
    big = picture.stretched(np.array([[0.0, 1.0]]), 4, 8)
    assert big.shape == (4, 8) and (np.diff(big, axis=1) >= 0).all() and big[0, 0] == 0
    np.testing.assert_allclose(picture.stretched(np.ones((64, 64)), 5, 7), 1, rtol=1e-6)
    assert picture.borders(np.array([[1, 1, 2], [1, 1, 2]])).tolist() == [[False, True, False]] * 2


# ---------------------------------------------------------------------------------------- volumes


@pytest.mark.parametrize("flip", [False, True])
def test_the_viewer_has_the_images(flip: bool, tmp_path: Path):
    """Every voxel is at its place in mm, whatever the grid."""
    array = blob((21, 34, 27))
    direction = (0, -1, 0, 0, 0, 1, -1, 0, 0) if flip else (1, 0, 0, 0, 1, 0, 0, 0, 1)
    fixed = images.Image(array, (1.5, 2, 3), (-7, 8, 9), direction)
    moving = fixed.like(blob((21, 34, 27), 0.1))
    result = morphseek.register(fixed, moving, **QUICK)
    meta, volumes = data_of(written(tmp_path, result, fixed, moving))
    low, high = meta["ranges"]["fixed"]
    to_mm, to_voxel = np.array(meta["toMm"]), np.array(meta["toVoxel"])
    assert meta["letters"] == [["R", "L"], ["A", "P"], ["I", "S"]]
    for index in ((0, 0, 0), (3, 7, 5), (8, 2, 1)):
        x, y, z = index
        voxel = to_voxel[:, :3] @ index + to_voxel[:, 3]
        there = fixed.grid.index_to_physical @ [*voxel, 1]
        np.testing.assert_allclose(to_mm[:, :3] @ index + to_mm[:, 3], there[:3], atol=1e-9)
        value = array[tuple(np.rint(voxel[::-1]).astype(int))]
        shown, step = low + volumes["fixed"][z, y, x] / 255 * (high - low), (high - low) / 254
        assert shown == pytest.approx(min(max(value, low), high), abs=step)


def test_what_is_black_is_cut_off(tmp_path: Path):
    array = np.zeros((40, 44, 48), np.float32)
    array[10:30, 12:32, 14:34] = blob((20, 20, 20)) + 1
    result = morphseek.register(images.Image(array), images.Image(array), **QUICK)
    meta, _ = data_of(written(tmp_path, result, array, array))
    assert meta["size"] == [24, 24, 24]
    assert [row[3] for row in meta["toVoxel"]] == [12, 10, 8]


def large(shift: float) -> images.Image:
    noise = np.random.default_rng(1).normal(0, 0.2, (96, 100, 104)).astype("f4")
    return images.Image(blob(noise.shape, shift) + noise)


@pytest.mark.parametrize("room, bits, size", [(6e6, 8, 104), (2.65e6, 7, 104), (1.7e6, 8, 52)])
def test_a_page_is_made_to_fit(room, bits, size, tmp_path, monkeypatch):
    monkeypatch.setattr("morphseek.report.views.LARGE", 600_000)
    fixed, moving = large(0), large(0.05)
    result = morphseek.register(fixed, moving, **QUICK)
    monkeypatch.setattr("morphseek.report.page.MOST_BYTES", room)
    page = written(tmp_path, result, fixed, moving)
    meta, volumes = data_of(page)
    assert len(page) <= room
    entry = next(v for v in meta["volumes"] if v["id"] == "fixed")
    assert (entry["bits"], entry["size"][0]) == (bits, size)
    assert ("half the resolution left-right" in meta["said"]) == (size == 52)
    assert ("128 shades" in meta["said"]) == (bits == 7)
    before = next(v for v in meta["volumes"] if v["id"] == "before")
    assert before["size"] == [52, 50, 48] and before["halves"] == [1 if size == 52 else 2, 2, 2]
    low, high = meta["ranges"]["moving"]
    half = moving.array[:96, :100, :104].reshape(48, 2, 50, 2, 52, 2).mean((1, 3, 5))
    shown = low + volumes["before"] / 255 * (high - low)
    assert np.corrcoef(half.ravel(), shown.ravel())[0, 1] > 0.9


def test_labels_are_counted_in_bytes(tmp_path: Path):
    """Labels above 255 are renumbered; if there are too many, the rest shares a number."""
    array = blob()
    result = morphseek.register(array, array, **QUICK)
    labels = np.zeros(array.shape, np.int64)
    labels[4:9, 4:9, 4:9], labels[10:14, 10:14, 10:14] = 70_000, -3
    maps = {"fixed_labels": labels, "moving_labels": labels}
    meta, volumes = data_of(written(tmp_path, result, array, array, **maps))
    names = {entry["number"]: entry["name"] for entry in meta["labels"]}
    assert names == {1: "-3", 2: "70000"}
    assert sorted(np.unique(volumes["labels-after"])) == [0, 1, 2]
    maps = dict.fromkeys(maps, np.arange(array.size).reshape(array.shape) % 1000)
    meta, volumes = data_of(written(tmp_path, result, array, array, **maps))
    assert meta["labels"][-1] == {"number": 255, "name": "other labels", "dice": None}
    assert volumes["labels-fixed"].max() == 255


def test_the_field_is_behind_the_initial_transform(tmp_path: Path):
    """The grid shows the transform without its initial part, along the page's axes."""
    fixed = oblique(blob())
    result = morphseek.register(fixed, oblique(blob(shift=0.2)), **{**QUICK, "refine": 10})
    meta, volumes = data_of(written(tmp_path, result, fixed, oblique(blob(shift=0.2))))
    field = meta["field"]
    x, y, z = (n // 2 for n in field["size"])
    coded = volumes["field"].view(np.int8).reshape(3, *field["size"][::-1])[:, z, y, x]
    index = [field["start"][a] + (x, y, z)[a] * field["step"][a] for a in range(3)]
    to_mm = np.array(meta["toMm"])
    here = to_mm[:, :3] @ index + to_mm[:, 3]
    there = result.transform_points([here])[0]
    back = np.linalg.inv(result.transform.initial)
    rest = back[:3, :3] @ there + back[:3, 3] - here
    along = np.linalg.inv(to_mm[:, :3] / np.array(meta["spacing"])) @ rest
    np.testing.assert_allclose(coded * field["mm"], along, atol=field["mm"] + 0.02)
    assert 20 < meta["tilt"] < 21


def test_folds_and_worst_places_are_found(tmp_path: Path):
    array = blob((24, 24, 24))
    result = morphseek.register(array, array, **QUICK)
    bent = result.displacement().copy()
    bent[2, 12, 12, 9:14] = [0, 3, 0, -3, 0]
    field = morphseek.Field(bent, result.grid, result.moving_grid, result.transform.initial)
    bad = morphseek.Registration(field, result.warped, result.metrics, {})
    places_mm = ([[3.0, 4, 5], [9, 9, 9]], [[3.0, 4, 5], [9, 9, 14]])
    points = (morphseek.Landmarks(place, ["tip", "2"]) for place in places_mm)
    scores = {"landmarks": score_landmarks(bad, *points), "estimated_error": np.abs(bent[2])}
    meta, volumes = data_of(written(tmp_path, bad, array, array, **scores))
    jumps = {jump["text"]: jump for jump in meta["jumps"]}
    assert {"middle", "fold", "largest bend 3.0 mm", "worst landmark 5.0 mm"} <= jumps.keys()
    assert jumps["largest estimated error 3.0 mm"]["at"][1:] == [12, 12]
    assert jumps["worst landmark 5.0 mm"]["at"] == [9, 9, 9]
    x, y, z = jumps["fold"]["at"]
    assert bad.jacobian()[z, y, x] == bad.jacobian().min() < 0 and volumes["jacobian"][z, y, x] == 0
    assert [mark["name"] for mark in meta["landmarks"]] == ["tip", "2"]
    assert any(jump["text"].startswith("most grown") for jump in meta["jumps"])


def test_worst_places_are_the_page_s(page: str, pair: PhantomPair, result: morphseek.Registration):
    meta, _ = data_of(page)
    to_mm = np.array(meta["toMm"])
    on_page = {j["kind"]: (j["text"], to_mm @ [*j["at"], 1]) for j in meta["jumps"]}
    found = worst_places(result, pair.fixed)
    kinds = [place["kind"] for place in found]
    assert kinds == [kind for kind in places.KINDS if kind in on_page] and "bend" in kinds
    for place in found:
        text, at = on_page[place["kind"]]
        assert place["text"] == text
        np.testing.assert_allclose(place["lps"], at, atol=1e-9)


def test_landmarks_are_carried(result: morphseek.Registration):
    points = np.array([[0.0, 0, 0], [10, -20, 30]])
    there = result.transform_points(points)
    found = score_landmarks(result, points, there)
    assert found.after_mm.max() < 1e-6 and found.before_mm.min() > 1
    np.testing.assert_allclose(found.carried, points, atol=0.1)
    invalid("has 2 landmarks", score_landmarks, result, points, there[:1])
    invalid("score_landmarks", result.view, landmarks=([[0.0, 0, 0]], [[0.0, 0, 0]]))


# ---------------------------------------------------------------------------------------- content


def test_is_self_contained(page: str):
    """It loads nothing, and its policy lets no script run but its own."""
    tree = parsed(page)
    for attribute in ("src", "href"):
        for element in tree.all():
            assert element.attributes.get(attribute, "data:").startswith("data:"), element.name
    assert "http:" not in page and "https:" not in page and "url(" not in page
    policy = tree.one("meta", **{"http-equiv": "Content-Security-Policy"})["content"]
    (script,) = (s for s in tree.all("script") if "type" not in s.attributes)
    digest = base64.b64encode(hashlib.sha256("".join(map(str, script.content)).encode()).digest())
    own = f"style-src 'unsafe-inline'; script-src 'sha256-{digest.decode()}'"
    assert policy == f"default-src 'none'; img-src data:; {own}"
    assert not [key for e in tree.all() for key in e.attributes if key.startswith("on")]


def test_content(page: str, result: morphseek.Registration):
    tree = parsed(page)
    headings = [h.text for h in tree.all("h2")]
    assert headings == [
        "To repeat it", "Please note", "What was chosen and why", "Labels", "Measurements", "Time"
    ]  # fmt: skip
    assert tree.one("h1").text.startswith(f"\u2713 Verdict: {result.verdict.grade}")
    assert tree.one(id="command").text.startswith("morphseek register 'my fixed.nii'")
    assert "A <warning> in plain words." in [item.text for item in tree.all("li")]
    assert "not a medical device" in tree.one("footer").text
    assert f"MorphSeek {morphseek.__version__}" in tree.one("div", "what").text
    tiles = tiles_of(page)
    assert tiles["Folding (NJD)"] == "0.000 % none"
    similarity = f"{result.metrics['similarity_after']:.3f}"
    assert tiles["Similarity (normalized mutual information)"].startswith(similarity)
    assert dict(table_of(page, "Measurements"))["Fixed image"] == VOXELS
    assert table_of(page, "Time")[-1][2] == f"{result.metrics['seconds']['total']:.2f} s"


def test_labels_are_listed_worst_first(page, pair, result):
    scores = score_labels(result, pair.fixed_labels, pair.moving_labels)
    head, *rows = table_of(page, "Labels")
    assert head == ["label", "Dice before", "Dice after", "HD95 before", "HD95 after", "volume"]
    volumes = {row[0]: row[5] for row in rows}
    assert volumes == {
        phantom.LABELS[s.label]: "cut by the field of view"
        if s.is_cut
        else f"{s.volume_error_percent:+.0f} %"
        for s in scores
    }
    worst_first = sorted(scores, key=lambda s: s.dice_after)
    assert [row[0] for row in rows] == [phantom.LABELS[s.label] for s in worst_first]
    assert volumes["spine"].startswith("cut") and volumes["liver"].endswith("%")


@pytest.mark.parametrize(
    "place, is_cut",
    [(np.s_[2:5, 2:5, 2:5], False), (np.s_[0:3, 2:5, 2:5], True), (np.s_[2:5, 2:5, 5:8], True)],
)
def test_what_reaches_a_border_is_cut(place: tuple[slice, ...], is_cut: bool):
    """In either image, also of labels that are renumbered on the way; a slice has no border
    along its normal.
    """
    array = blob((8, 8, 8))
    result = morphseek.register(array, array, **QUICK)
    here, there = np.zeros((2, 8, 8, 8), np.int64)
    here[3:6, 3:6, 3:6], there[place] = 2**40, 2**40
    for maps in ((here, there), (there, here)):
        (score,) = score_labels(result, *maps)
        assert (score.label, score.is_cut) == (2**40, is_cut)
    flat = morphseek.register(array[3], array[3], **QUICK)
    (score,) = score_labels(flat, here[4] > 0, here[4] > 0)
    assert not score.is_cut


def test_large_voxels_are_a_measure(pair: PhantomPair, result: morphseek.Registration):
    """Of voxels of 3 mm and more the head says how many the error has."""
    verdict = result.verdict
    assert verdict is not None
    edge = pair.fixed.grid.voxel ** (1 / 3)
    words = f"{verdict.error_mm:.1f} mm ({verdict.error_mm / edge:.1f} voxels)"
    assert words in verdict.headline and words in result._repr_html_() and words in repr(result)
    assert "voxels" not in morphseek.Verdict.of(result.metrics).headline


def test_the_picture_shows_both_and_the_outlines(page: str):
    shown = still_of(page)
    assert shown.shape[1] > 500 and shown.std() > 5
    assert (shown == picture.FIXED).sum() > 200 and (shown == picture.MOVING).sum() > 200
    assert (shown == picture.LETTER).sum() > 200


def test_a_small_page(pair: PhantomPair, uncertain: morphseek.Registration, tmp_path: Path):
    """It has one picture and the numbers, below 200 kB even with noisy images."""
    page = written(tmp_path, uncertain, pair.fixed, pair.moving, size="small")
    assert len(page) < 200_000 and "<script" not in page and "Uncertainty" in tiles_of(page)
    noise = np.random.default_rng(1).normal(size=(60, 61, 62)).astype(np.float32)
    result = morphseek.register(noise, noise, **QUICK)
    assert len(written(tmp_path, result, noise, noise, size="small")) < 200_000


def test_uncertainty_is_an_overlay(uncertain, pair, page, tmp_path):
    text = written(tmp_path, uncertain, pair.fixed, pair.moving)
    meta, volumes = data_of(text)
    assert uncertain.uncertainty is not None
    most = meta["maps"]["uncertainty"]["most"]
    assert most == pytest.approx(uncertain.uncertainty.max())
    assert volumes["uncertainty"].max() == 255
    p95 = uncertain.metrics["uncertainty"]["p95_mm"]
    assert f"95 % below {p95:.1f} mm" in tiles_of(text)["Uncertainty"]
    assert any(jump.get("overlay") == "uncertainty" for jump in meta["jumps"])
    assert "uncertainty" not in data_of(page)[0]["maps"]


@pytest.mark.parametrize(
    "plan, words",
    [
        (None, []),  # of an older library
        ({"start": "", "similarity": "", "search": 0, "smoothness_mm": 0, "reasons": None}, []),
        (
            {
                "start": "affine", "similarity": "ncc", "search": 0.25, "smoothness_mm": 2.54,
                "reasons": ["Noise <is> low.", "it is late"],
            },
            ["an affine alignment", "(ncc)", "25 %", "over 2.5 mm", "Noise <is> low; it is late"],
        ),
    ],
)  # fmt: skip
def test_the_plan_is_shown_with_its_reasons(plan: dict | None, words: list[str], tmp_path: Path):
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    assert result.metrics.keys() >= {"plan"}
    result.metrics["plan"] = plan
    text = written(tmp_path, result, blob(), blob(shift=0.1))
    rows = table_of(text, "What was chosen and why")
    names = [name for name, _ in rows]
    assert len(set(names)) == len(names) and ("Similarity" in names) == bool(words)
    assert all(word in " ".join(said for _, said in rows) for word in ["correlation", *words])


def test_errors_to_the_truth_are_shown(tmp_path: Path):
    """Errors above those of the initial transform are marked, in all and organ by organ."""

    def errors(*means: float) -> dict:
        times = zip(("before", "initial", "after"), means)
        return {t: {"mean_mm": m, "median_mm": m - 1, "p95_mm": 2 * m} for t, m in times}

    organs = [
        {"name": "liver", "points": 5, **errors(30, 4, 3)},
        {"name": "spine", "points": 7, **errors(31, 5, 11.25)},
    ]
    truth = {"points": 12, **errors(30.5, 4.5, 4.6), "organs": organs}
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    text = written(tmp_path, result, blob(), blob(shift=0.1), truth=truth)
    tile = "4.6 mm median 3.6, 95 % below 9.2; by the initial transform 4.5"
    assert tiles_of(text)["Mean error to the truth"] == tile
    assert [cell.text for cell in parsed(text).all("td", "worse")] == ["\u25b2 11.2 (10.2; 22.5)"]
    assert "truth" not in written(tmp_path, result, blob(), blob(shift=0.1)).split("<script")[0]


@pytest.mark.parametrize("same", [True, False])
def test_one_modality_gets_a_difference(same: bool, tmp_path: Path):
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    result.metrics["align"]["same_modality"] = same
    text = written(tmp_path, result, blob(), blob(shift=0.1))
    assert data_of(text)[0]["same"] is same
    assert "Mean Dice" not in text


@pytest.mark.parametrize(
    "shape, bad",
    [((20, 24, 28), -np.inf), ((20, 24, 28), np.nan), ((20, 24, 28), np.finfo(np.float32).max),
     ((300, 8, 8), None)],
)  # fmt: skip
def test_odd_images(shape: tuple[int, int, int], bad: float | None, tmp_path: Path):
    """Images that do not overlap at first, have voxels without a number, or are long and thin."""
    fixed, array = images.Image(blob(shape)), blob(shape)
    if bad is not None:
        array[:, :4] = bad
    moving = images.Image(array, origin=(500.0, 0, 0))
    result = morphseek.register(fixed, moving, **QUICK)
    page = written(tmp_path, result, fixed, moving)
    assert len(page) < 1e6
    assert max(still_of(page).shape) < 1100
    assert data_of(page)[0]["ranges"]["moving"][1] < 10


# ------------------------------------------------------------------------------------ orientation


def test_orientation():
    """A bright voxel towards the patient's left, back and head is where a radiologist expects it,
    whatever the grid.
    """
    flipped = np.zeros((8, 9, 10), np.float32)
    flipped[1, 2, 8] = 1
    # index x runs to the right (-L), y to the head, z to the back
    grid = images.Image(flipped, (1, 2, 3), (0, 0, 0), (-1, 0, 0, 0, 0, 1, 0, 1, 0)).grid
    axes = Axes(grid)
    turned = axes.turn(flipped)  # axes to S, P, L
    assert turned.shape == (9, 8, 10) and np.argwhere(turned).tolist() == [[2, 1, 1]]
    assert (axes.to_index @ [1, 1, 2, 1]).tolist() == [8, 2, 1, 1]
    assert axes.letters() == [("R", "L"), ("A", "P"), ("I", "S")] and axes.tilt() == 0
    assert plane_letters(axes.letters()) == [tuple("RLAP"), tuple("RLSI"), tuple("APSI")]


def test_planes_are_as_a_radiologist_sees_them():
    fixed = images.Image(blob((8, 9, 10)), (1, 2, 3))
    result = morphseek.register(fixed, fixed, **QUICK)
    scene = Scene(result, fixed, fixed)
    scene.start, marked = [0, 0, 0], np.zeros((8, 9, 10), np.uint8)
    marked[6, 1, 2] = 255  # towards the head, the front and the right
    scene.volumes["after"].array = marked
    axial, coronal, sagittal = scene.slices("after", [2, 1, 6])
    assert np.argwhere(axial).tolist() == [[1, 2]]  # up: anterior; left: the patient's right
    assert np.argwhere(coronal).tolist() == [[1, 2]]  # S is up
    assert np.argwhere(sagittal).tolist() == [[1, 1]]
    assert scene.sizes_mm()[0] == (18, 10)


def test_maps_of_lengths_are_those_of_any_unit():
    """An error of a voxel looks alike in millimetres, and in headers that hold metres."""
    values = np.linspace(0, 1, 720).reshape(8, 9, 10)
    shown = []
    for unit in (1.0, 1e-3, 1e-4):
        fixed = images.Image(blob((8, 9, 10)), (unit, unit, unit))
        result = morphseek.register(fixed, fixed, **QUICK)
        maps = Maps(Scene(result, fixed, fixed), unit * values)
        shown.append((maps.volumes["error"].array, maps.scales["error"]["most"] / unit))
    for array, most in shown:
        assert np.array_equal(array, shown[0][0]) and most == pytest.approx(1)


def test_oblique_grids_are_said(tmp_path: Path):
    angle = np.radians(23)
    turn = (np.cos(angle), -np.sin(angle), 0, np.sin(angle), np.cos(angle), 0, 0, 0, 1)
    fixed = images.Image(blob(), (1, 1, 2), (0, 0, 0), turn)
    result = morphseek.register(fixed, fixed, **QUICK)
    text = written(tmp_path, result, fixed, fixed)
    meta, _ = data_of(text)
    assert meta["tilt"] == 23.0
    assert dict(table_of(text, "Measurements"))["Orientation"].startswith("oblique 23\u00b0")
    assert meta["letters"] == [["RA", "LP"], ["AL", "PR"], ["I", "S"]]


# --------------------------------------------------------------------------------- what is absent


def test_a_patient_in_a_header_never_reaches_the_page(tmp_path: Path):
    names = []
    for shift, file in ((0.0, "a.nii.gz"), (0.1, "b.nii.gz")):
        image = nibabel.Nifti1Image(blob(shift=shift).T, np.diag([-1.0, -1, 1, 1]))
        for field in ("descrip", "db_name", "intent_name", "aux_file"):
            image.header[field] = b"QUINTREL^XENIA"
        image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"Quintrel, 1970"))
        nibabel.save(image, tmp_path / file)
        names.append(tmp_path / file)
    nrrd = images.Image(blob()).to_sitk()
    nrrd.SetMetaData("0010|0010", "QUINTREL^XENIA")
    result = morphseek.register(*names, **QUICK)
    for fixed in (names[0], nrrd):
        for size in ("full", "small"):
            page = written(tmp_path, result, fixed, names[1], size=size)
            assert not re.search("quintrel", page, re.IGNORECASE)


def test_names_are_no_markup(tmp_path: Path, command: Command):
    evil = "<img src=x onerror=alert(1)>.nii.gz"
    images.write(tmp_path / "fixed.nii.gz", images.Image(blob()))
    images.write(tmp_path / evil, images.Image(blob(shift=0.1)))
    out = tmp_path / "out"
    command("register", tmp_path / "fixed.nii.gz", tmp_path / evil, "--out", out,
            "--model", "none", "--refine", 0, "--search", "off")  # fmt: skip
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{evil} onto fixed.nii.gz" in parsed(page).one("div", "what").text
    result = morphseek.register(blob(), blob(), **QUICK)
    labels = np.ones(blob().shape, np.uint8)
    names = {1: "</script><script>alert(1)</script>"}
    points = morphseek.Landmarks([[1.0, 2, 3]], ["<b>x</b>"])
    hostile = written(
        tmp_path, result, blob(), blob(),
        fixed_labels=labels, moving_labels=labels, label_names=names,
        landmarks=score_landmarks(result, points, points), title=f'"{evil}', command=evil,
        scores=score_labels(result, labels, labels),
    )  # fmt: skip
    assert parsed(hostile).one("div", "what").one("b")["title"] == f'"{evil}'
    assert table_of(hostile, "Landmarks")[1][0] == "<b>x</b>"
    assert table_of(hostile, "Labels")[1][0] == names[1]
    assert data_of(hostile)[0]["labels"][0]["name"] == names[1]
    for each in (page, hostile):
        assert all(img["src"].startswith("data:") for img in parsed(each).all("img"))
        assert "<script>alert" not in each and "<b>x</b>" not in each
    # the page's scripts insert text only by textContent
    for script in TEMPLATES.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)


def test_every_template_escapes():
    """None switches it off, and only base64 and our own files are taken as they are."""
    templates = sorted(TEMPLATES.glob("*.j2"))
    assert len(templates) > 10
    for path in templates:
        text = path.read_text(encoding="utf-8")
        assert "autoescape" not in text and "Markup" not in text, path
        assert re.findall(r"\S+ \| safe", text) == ["text | safe"] * (path.name == "data.html.j2")
    meta = render("data.html.j2", meta={"a": "</script>&"}, volumes={"<": "eA=="})
    assert json.loads(parsed(meta).one("script", id="meta").text) == {"a": "</script>&"}
    # what a template misspells is an error
    refused(jinja2.UndefinedError, "height", render, "frame.html.j2", page="")


def test_nothing_loads_the_templates_unasked():
    """Neither the package nor a registration needs Jinja2 or Pillow; nor is a page slow to load."""
    program = """
import sys, numpy as np, morphseek
a = np.random.default_rng(0).normal(size=(20, 20, 20)).astype("f4")
r = morphseek.register(a, a, model="none", refine=0, search=False, initial="com")
print(sorted({"jinja2", "PIL", "morphseek.report"} & set(sys.modules)))
r._repr_html_()
print(sorted({"jinja2", "PIL", "matplotlib", "scipy", "pandas", "asyncio"} & set(sys.modules)))
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['PIL', 'jinja2']"]


# -------------------------------------------------------------------------------------- notebooks


def test_a_result_shows_itself(pair: PhantomPair, result: morphseek.Registration, tmp_path: Path):
    shown = result._repr_html_()
    card = parsed(shown)
    assert card.all("b")[0].text == f"\u2713 Verdict: {result.verdict.headline}"
    assert pixels(card.one("img")["src"]).shape[1] > 300 and len(shown) < 200_000
    assert "upper row before" in card.one("img")["alt"]
    assert ["Folding (NJD)", "0.000 %", "none"] in card.one("table").rows()
    result.save(tmp_path / "r")
    loaded = morphseek.Registration.read(tmp_path / "r")
    assert "Verdict: " in loaded._repr_html_()
    invalid("does not hold the image", loaded.view)
    labels = {"fixed_labels": pair.fixed_labels, "moving_labels": pair.moving_labels}
    frame = loaded.view(pair.fixed, pair.moving, **labels)
    shown_frame = parsed(frame._repr_html_()).one("iframe")
    assert shown_frame["sandbox"] == "allow-scripts" and shown_frame["srcdoc"] == frame.page
    assert "Mean Dice" in tiles_of(frame.page)
    assert repr(frame).startswith("View(")


def test_a_figure_for_papers(pair: PhantomPair, result: morphseek.Registration):
    pytest.importorskip("matplotlib")
    figure = result.plot()
    assert len(figure.axes) == 13  # three planes of four, and a bar


def card(thing: Any) -> Element:
    """Return what a notebook shows of a thing: short, and it loads nothing."""
    text = thing._repr_html_()
    assert len(text) < 60_000 and "<script" not in text
    tree = parsed(text)
    assert all(img["src"].startswith("data:") for img in tree.all("img"))
    return tree


@pytest.mark.filterwarnings("ignore:.* found no deformation")
def test_results_of_studies_show_themselves(pair: PhantomPair):
    failed = studies.TargetLabels("b<i>", "b.nii.gz", "failed", error="E", message="it is lost")
    targets = [studies.TargetLabels("a", "a.nii.gz", "done", dice=0.8), failed]
    _, *rows = card(studies.LabelStudy(targets, studies.Study([]))).one("table").rows()
    assert [row[0] for row in rows] == ["b<i>", "a"] and rows[0][-1] == "it is lost"
    assert rows[1][-2] == "0.800"
    still = morphseek.Field(
        np.zeros((3, *pair.fixed.grid.shape), np.float32), pair.fixed.grid, pair.fixed.grid
    )
    subject = studies.Item("s", still, pair.fixed_labels)
    study = morphseek.morphometry([subject], fixed_labels=pair.fixed_labels)
    shown = card(study)
    assert shown.one("table").rows()[1] == ["1", "", "1", "+0.0 %", "\u2013", "+0.0 %"]
    assert pixels(shown.one("img")["src"]).size
    assert study.volumes[0].to_dict()["true_change_percent"] == 0
    turned = pair.fixed.like(np.roll(pair.fixed.array, 1, axis=1))
    shown = card(morphseek.correct_epi(pair.fixed, turned, phase_encoding="j"))
    assert ["phase encoding", "j"] in shown.one("table").rows()
    assert pixels(shown.one("img")["src"]).std() > 5


def test_images_and_transforms_show_themselves(pair: PhantomPair, result: morphseek.Registration):
    shown = card(pair.fixed)
    assert shown.one("table").rows()[0] == ["voxels", VOXELS]
    assert pixels(shown.one("img")["src"]).std() > 5
    hostile = images.Image(np.full((3, 4, 5), np.nan), name="<b>a</b>", doubts=("<i>odd</i>",))
    assert "Image: <b>a</b>" in card(hostile).text and "<i>odd</i>" in card(hostile).text
    for transform, kind in ((result.transform, "affine"), (np.eye(4), "identity")):
        assert f"Transform: {kind}" in card(morphseek.Transform.of(transform)).text
    rows = card(result.transform).one("table").rows()
    assert ["fixed image", "40 \u00d7 40 \u00d7 40 voxels"] in rows
