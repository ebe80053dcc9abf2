"""The page holds everything itself, shows what it should, and reads in the right orientation."""

from __future__ import annotations

import base64
import re
from io import BytesIO
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import morphseek
from helpers import QUICK, blob, oblique
from morphseek import images, phantoms
from morphseek.phantoms import PhantomPair
from morphseek.report import _Views, write_report
from morphseek.scoring import score_labels


@pytest.fixture(scope="module")
def page(
    pair: PhantomPair,
    result: morphseek.RegistrationResult,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    result.metrics["warnings"].append("A <warning> in plain words.")
    try:
        write_report(
            path,
            result,
            pair.fixed,
            pair.moving,
            fixed_labels=pair.fixed_labels,
            moving_labels=pair.moving_labels,
            scores=score_labels(result, pair.fixed_labels, pair.moving_labels),
            label_names=phantoms.LABELS,
            command="morphseek register 'my fixed.nii' moving.nii --out out",
            title="moving onto fixed",
        )
    finally:
        result.metrics["warnings"].pop()
    return path.read_text()


@pytest.mark.parametrize(
    "shape, bad, limit",
    [
        ((20, 24, 28), -np.inf, 4e6),
        ((20, 24, 28), np.finfo(np.float32).max, 4e6),
        ((300, 8, 8), None, 8e6),
    ],
)
def test_odd_images(shape: tuple[int, int, int], bad: float | None, limit: float, tmp_path: Path):
    """No voxel of the moving image is where the fixed one is at the start, and some are no numbers;
    a long thin one.
    """
    fixed, array = images.Image(blob(shape)), blob(shape)
    if bad is not None:
        array[:, :4] = bad
    moving = images.Image(array, origin=(500.0, 0, 0))
    result = morphseek.register(fixed, moving, **QUICK)
    write_report(tmp_path / "report.html", result, fixed, moving, command="", title="")
    page = (tmp_path / "report.html").read_text()
    assert len(page) < limit
    for picture in re.findall(r"data:image/png;base64,([^\"]+)", page):
        height, width = matplotlib.image.imread(BytesIO(base64.b64decode(picture))).shape[:2]
        assert height < 6 * width


def test_is_self_contained(page: str):
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!data:)", page)
    assert "http" not in page and "<script" not in page and "url(" not in page


def test_content(page: str):
    for words in (
        "Label outlines",
        "Checkerboard",
        "Edges",
        "Deformation",
        "Dice by label",
        "left kidney",
        "Folding (NJD)",
        "normalized mutual information",
        "research use",
        "not a medical device",
    ):
        assert words in page, words
    assert "my fixed.nii" in page
    assert "A &lt;warning&gt; in plain words." in page
    assert "Difference" not in page  # of two contrasts


def test_pictures(page: str):
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", page)
    assert len(pictures) == 5
    for picture in pictures:
        pixels = matplotlib.image.imread(BytesIO(base64.b64decode(picture)))
        assert pixels.shape[1] > 1000 and pixels[..., :3].std() > 0.05


def test_uncertainty_has_a_panel(
    uncertain: morphseek.RegistrationResult, pair: PhantomPair, page: str, tmp_path: Path
):
    write_report(tmp_path / "report.html", uncertain, pair.fixed, pair.moving)
    text = (tmp_path / "report.html").read_text()
    assert "<h2>Uncertainty</h2>" in text and "standard deviation of the displacement in mm" in text
    assert f"95 % below {uncertain.metrics['uncertainty']['p95_mm']:.1f} mm" in text
    picture = matplotlib.image.imread(
        BytesIO(base64.b64decode(re.findall(r"data:image/png;base64,([^\"]+)", text)[-1]))
    )[..., :3]
    assert (np.ptp(picture, axis=-1) > 0.3).mean() > 0.05  # coloured
    assert "Uncertainty" not in page


@pytest.mark.parametrize(
    "plan, words",
    [
        (None, []),  # of an older library
        ({"start": "", "similarity": "", "search": 0, "smoothness_mm": 0, "reasons": None}, []),
        (
            {
                "start": "affine",
                "similarity": "ncc",
                "search": 0.25,
                "smoothness_mm": 2.54,
                "reasons": ["Noise <is> low."],
            },
            ["an affine alignment", "(ncc)", "25 %", "over 2.5 mm", "Noise &lt;is&gt; low."],
        ),
    ],
)
def test_the_plan_is_shown_with_its_reasons(plan: dict | None, words: list[str], tmp_path: Path):
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    assert result.metrics.keys() >= {"plan"}
    result.metrics["plan"] = plan
    write_report(tmp_path / "report.html", result, blob(), blob(shift=0.1))
    text = (tmp_path / "report.html").read_text()
    assert "What was chosen and why" in text and "<th>Start</th>" in text
    assert all(word in text for word in words) and ("<th>Similarity</th>" in text) == bool(words)


def test_errors_to_the_truth_are_shown(tmp_path: Path):
    """What ends worse than by the initial transform is marked, all and organ by organ."""

    def errors(before: float, initial: float, after: float) -> dict:
        return {
            when: {"mean_mm": mean, "median_mm": mean - 1, "p95_mm": 2 * mean}
            for when, mean in (("before", before), ("initial", initial), ("after", after))
        }

    organs = [
        {"name": "liver", "points": 5, **errors(30, 4, 3)},
        {"name": "spine", "points": 7, **errors(31, 5, 11.25)},
    ]
    truth = {"points": 12, **errors(30.5, 4.5, 4.6), "organs": organs}
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    write_report(tmp_path / "report.html", result, blob(), blob(shift=0.1), truth=truth)
    text = (tmp_path / "report.html").read_text()
    assert (
        "Mean error to the truth</small><b>4.6 mm</b><small>median 3.6, 95 % below 9.2; by the"
        " initial transform 4.5" in text
    )
    cells = re.findall(r'<td class="n( worse)?">([\d.]+) <small>\(([\d.]+); ([\d.]+)\)', text)
    assert len(cells) == 9 and [cell for cell in cells if cell[0]] == [
        (" worse", "11.2", "10.2", "22.5")
    ]
    write_report(tmp_path / "plain.html", result, blob(), blob(shift=0.1))
    assert "truth" not in (tmp_path / "plain.html").read_text()


@pytest.mark.parametrize("same", [True, False])
def test_one_modality_gets_a_difference(same: bool, tmp_path: Path):
    fixed, moving = blob(), blob(shift=0.1)
    result = morphseek.register(fixed, moving, **QUICK)
    result.metrics["align"]["same_modality"] = same
    write_report(tmp_path / "report.html", result, fixed, moving)
    text = (tmp_path / "report.html").read_text()
    assert ("<h2>Difference</h2>" in text, "<h2>Edges</h2>" in text) == (same, not same)
    assert "Dice" not in text


def test_orientation():
    """A bright voxel towards the patient's left, back and head is where a radiologist looks for it,
    whatever the grid.
    """
    flipped = np.zeros((8, 9, 10), np.float32)
    flipped[1, 2, 8] = 1
    # index x runs to the right (-L), y to the head, z to the back
    grid = images.Image(flipped, (1, 2, 3), (0, 0, 0), (-1, 0, 0, 0, 0, 1, 0, 1, 0)).grid
    views = _Views(grid, images.Image.on_grid(flipped, grid), None)
    assert views.spacing == [2, 3, 1] and views.sizes == [9, 8, 10]
    turned = views.turn(flipped)  # axes to S, P, L
    assert np.argwhere(turned).tolist() == [[2, 1, 1]]
    axial, coronal, sagittal = views.take(flipped)
    assert np.argwhere(axial).tolist() == [[1, 1]]  # up: anterior; left: the patient's right
    assert np.argwhere(coronal).tolist() == [[6, 1]]  # S is up
    assert np.argwhere(sagittal).tolist() == [[6, 1]]
    assert views.extent(0) == (0, 10, 24, 0)


def test_oblique_grid(tmp_path: Path):
    fixed = oblique(blob())
    result = morphseek.register(fixed, oblique(blob(shift=0.1)), **QUICK)
    write_report(tmp_path / "report.html", result, fixed, oblique(blob(shift=0.1)))
    assert (tmp_path / "report.html").stat().st_size > 100_000
