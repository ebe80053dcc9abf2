"""Published protocols on made-up data of the same layouts, scored again by numpy and scipy."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import SimpleITK as sitk

import morphseek
from helpers import QUICK, blob, refused, unreadable
from morphseek import errors, images, studies
from pace import limit

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import protocols  # noqa: E402
from published import PROTOCOLS, protocol_pairs  # noqa: E402

pytest.importorskip("surface_distance", reason="needs surface-distance")
# surface-distance 0.1 takes scipy's filters where they once were
pytestmark = pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")
PAGE = BENCHMARKS.parent / "docs" / "evidence" / "protocols.md"
SHAPE, SPACING = (24, 26, 28), (2.0, 2.0, 2.0)
#: Options of a deformation that takes a second or two; QUICK alone only aligns.
DEFORM = {**QUICK, "refine": 10}


def put(image: Path, labels: Path | None, shift: float, numbers: tuple[int, int] = (1, 2)) -> None:
    """Write a body, displaced and bent by ``shift``, and the map of its two labels."""
    index = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij")).astype(np.float64)
    index[1] += 25 * shift * np.sin(index[2] / 3)
    body = scipy.ndimage.map_coordinates(blob(SHAPE, shift), index, order=1, mode="nearest")
    maps = np.where(body > 0.8, numbers[1], np.where(body > 0.3, numbers[0], 0)).astype(np.int16)
    for path, array in ((image, body), (labels, maps)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            images.write(path, images.Image(array, SPACING))


def learn2reg(
    root: Path,
    task: str,
    pairs: list[tuple[str, str]],
    *,
    folder: str = "imagesTr",
    subset: str = "registration_val",
    labels: bool = True,
    masks: bool = False,
) -> Path:
    """Write a data set in Learn2Reg's layout."""
    for number, name in enumerate(sorted({name for pair in pairs for name in pair})):
        file = f"{task}_{name}.nii.gz"
        beside = root / folder.replace("images", "labels") / file if labels else None
        put(root / folder / file, beside, 0.08 * number)
        if masks:
            mask = root / folder.replace("images", "masks") / file
            mask.parent.mkdir(exist_ok=True)
            images.write(mask, images.Image(np.ones(SHAPE, np.uint8), SPACING))
    listed = [
        {"fixed": f"./{folder}/{task}_{a}.nii.gz", "moving": f"./{folder}/{task}_{b}.nii.gz"}
        for a, b in pairs
    ]
    training = {"0": [{"image": f"./{folder}/{task}_{a}.nii.gz"} for a, _ in pairs]}
    content = {"name": task, "modality": {"0": "MR"}, "training": training, subset: listed}
    (root / f"{task}_dataset.json").write_text(json.dumps(content))
    return root


def mrct(root: Path) -> Path:
    pairs = [(f"000{n}_0000", f"000{n}_0001") for n in (6, 7)]
    learn2reg(root, "AbdomenMRCT", pairs, masks=True)
    put(root / "imagesTr" / "AbdomenMRCT_0042_0001.nii.gz", None, 0.0)  # a CT without an MR
    return root


def ctct(root: Path) -> Path:
    return learn2reg(root, "AbdomenCTCT", [("0001_0000", "0004_0000"), ("0001_0000", "0007_0000")])


def oasis(root: Path) -> Path:
    return learn2reg(root, "OASIS", [("0395_0000", "0396_0000")])


def oasis_2021(root: Path) -> Path:
    for number in (438, 439):
        put(root / f"img0{number}.nii.gz", root / f"seg0{number}.nii.gz", (number - 438) / 10)
    (root / "pairs_val.csv").write_text("fixed, moving\n438, 439\n")
    return root


def neurite(root: Path) -> Path:
    for number in (1, 2):
        person = root / f"OASIS_OAS1_000{number}_MR1"
        put(person / "aligned_norm.nii.gz", person / "aligned_seg35.nii.gz", number / 10)
    (root / "pairs_val.csv").write_text("fixed,moving\n2,1\n")
    return root


def lumir(root: Path) -> Path:
    pairs = [("3455_0000", "3454_0000")]
    return learn2reg(root, "LUMIRMRI", pairs, folder="imagesVal", subset="validation", labels=False)


def mindboggle(root: Path) -> Path:
    for cohort_name, person, shift in (("MMRR-21", "MMRR-21-2", 0.0), ("NKI", "NKI-1", 0.1)):
        folder = root / f"{cohort_name}_volumes" / person
        for space in ("", ".MNI152"):
            put(
                folder / f"t1weighted_brain{space}.nii.gz",
                folder / f"labels.DKT31.manual+aseg{space}.nii.gz",
                shift,
                (1002, 17),  # a cortical region, and one of aseg, which does not count
            )
    (root / "pairs.csv").write_text(
        "type,cohort1,subject1,cohort2,subject2\ninter,NKI,NKI-1,MMRR-21,MMRR-21-2\n"
    )
    return root


def listed_pair(task: str, fixed: str, moving: str, split: str = "Tr") -> tuple[str, ...]:
    """Return the id, fixed, moving and moving labels of a pair in Learn2Reg's layout."""
    a, b = f"{task}_{fixed}", f"{task}_{moving}"
    places = (f"images{split}/{a}", f"images{split}/{b}", f"labels{split}/{b}")
    return f"{b}_to_{a}", *(f"{place}.nii.gz" for place in places)


def dkt31(space: str) -> tuple[str, ...]:
    moving = "MMRR-21_volumes/MMRR-21-2"
    return (
        "MMRR-21-2_to_NKI-1", f"NKI_volumes/NKI-1/t1weighted_brain{space}.nii.gz",
        f"{moving}/t1weighted_brain{space}.nii.gz",
        f"{moving}/labels.DKT31.manual+aseg{space}.nii.gz",
    )  # fmt: skip


#: Protocol, how its data are made up, and for each pair: id, fixed, moving, moving labels.
LAYOUTS: list[tuple[str, Callable[[Path], Path], list[tuple[str | None, ...]]]] = [
    ("abdomen-mrct", mrct,
     [listed_pair("AbdomenMRCT", f"000{n}_0000", f"000{n}_0001") for n in (6, 7)]),
    ("abdomen-mrct-8", mrct,
     [listed_pair("AbdomenMRCT", f"000{n}_0001", f"000{n}_0000") for n in (6, 7)]),
    ("abdomen-ctct", ctct,
     [listed_pair("AbdomenCTCT", "0001_0000", f"000{n}_0000") for n in (4, 7)]),
    ("oasis", oasis, [listed_pair("OASIS", "0395_0000", "0396_0000")]),
    ("oasis", oasis_2021,
     [("0439_to_0438", "img0438.nii.gz", "img0439.nii.gz", "seg0439.nii.gz")]),
    ("oasis", neurite,
     [("0001_to_0002", "OASIS_OAS1_0002_MR1/aligned_norm.nii.gz",
       "OASIS_OAS1_0001_MR1/aligned_norm.nii.gz", "OASIS_OAS1_0001_MR1/aligned_seg35.nii.gz")]),
    ("lumir", lumir, [(*listed_pair("LUMIRMRI", "3455_0000", "3454_0000", "Val")[:3], None)]),
    ("mindboggle", mindboggle, [dkt31("")]),
    ("mindboggle-mni152", mindboggle, [dkt31(".MNI152")]),
]  # fmt: skip


def run(name: str, root: Path, out: Path, **how: Any) -> list[protocols.Score]:
    """Run a protocol, check that no pair fails, and return the scores."""
    content, code = protocols.run(name, root, out, **how)
    assert code == 0
    return [
        protocols.Score(**{k: np.inf if v is None else v for k, v in row.items()})
        for row in content["pairs"]
    ]


def command(*arguments: Any, expect: int = 0) -> str:
    line = [sys.executable, str(BENCHMARKS / "protocols.py"), *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=limit(120))
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


OPTIONS = [
    part for name, value in QUICK.items() for part in ("--option", f"{name}={json.dumps(value)}")
]


def listed(name: str, root: Path) -> Path | None:
    return root / "pairs.csv" if name.startswith("mindboggle") else None


@pytest.mark.parametrize(
    ("name", "make", "pairs"), LAYOUTS, ids=[f"{name}-{make.__name__}" for name, make, _ in LAYOUTS]
)
def test_layout(name, make, pairs, tmp_path):
    """The pairs are those of the data set's own list, and a run gives the table."""
    root = make(tmp_path / "data")
    rows = protocol_pairs(name, root, pairs=listed(name, root))
    assert [(row["id"], row["fixed"], row["moving"], row.get("moving_labels")) for row in rows] == [
        (id_, root / a, root / b, c and root / c) for id_, a, b, c in pairs
    ]
    masked = make is mrct
    assert all(("fixed_mask" in row and "moving_mask" in row) == masked for row in rows)
    bare = protocol_pairs(name, root, pairs=listed(name, root), masks=False)
    assert not any("mask" in column for row in bare for column in row)

    content, _ = protocols.run(name, root, tmp_path / "out", pairs=listed(name, root), **QUICK)
    assert [pair["id"] for pair in content["pairs"]] == [id_ for id_, *_ in pairs]
    summary = content["summary"]
    assert summary["pairs"] == len(pairs) and summary["failed"] == 0
    if name == "lumir":
        assert summary["scored"] == 0 and summary["dice"] is None
    else:
        counted = 1 if name.startswith("mindboggle") else 2
        assert [pair["labels"] for pair in content["pairs"]] == [counted] * len(pairs)
        assert summary["dice"] > summary["dice_before"] > 0.3
    with open(tmp_path / "out" / "protocol.csv", newline="", encoding="utf-8") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [id_ for id_, *_ in pairs]


def test_every_protocol_has_a_layout():
    assert {name for name, *_ in LAYOUTS} == set(PROTOCOLS)


def test_hd95_in_voxels():
    one = np.zeros((6, 6, 6), bool)
    one[1:4, 1:4, 1:4] = True
    assert protocols.hd95(one, np.roll(one, 2, axis=0)) == 2.0
    assert protocols.hd95(one, np.zeros_like(one)) == np.inf


def test_scores_are_learn2regs(tmp_path: Path):
    """Dice, SDlogJ and folds equal those of the submitted field by the rules of Learn2Reg's
    evaluation, in numpy and scipy.
    """
    root, out = oasis(tmp_path / "data"), tmp_path / "out"
    (pair,) = run("oasis", root, out, fields=True, **DEFORM)
    field = sitk.GetArrayFromImage(sitk.ReadImage(str(out / "fields" / "disp_0395_0396.nii.gz")))
    assert field.shape == (3, *SHAPE)  # in the file: x, y, z, component
    moved = field.transpose(0, 3, 2, 1).astype(np.float64)  # component, x, y, z: nibabel's order
    fixed, moving = (
        images.read(root / "labelsTr" / f"OASIS_{n}_0000.nii.gz").array.transpose(2, 1, 0)
        for n in ("0395", "0396")
    )
    index = np.stack(np.meshgrid(*map(np.arange, fixed.shape), indexing="ij"))
    warped = scipy.ndimage.map_coordinates(moving, index + moved, order=0)
    dice = [
        2 * ((fixed == k) & (warped == k)).sum() / ((fixed == k).sum() + (warped == k).sum())
        for k in (1, 2)
    ]
    assert pair.dice == pytest.approx(np.mean(dice), abs=2e-3)
    assert pair.dice > pair.dice_before + 0.1
    distances = [protocols.hd95(fixed == k, warped == k) for k in (1, 2)]
    assert pair.hd95 == pytest.approx(np.mean(distances), abs=1e-4)

    slopes = np.array([np.gradient(component) for component in moved])
    jacobian = np.moveaxis(slopes, (0, 1), (-2, -1)) + np.eye(3)
    inside = np.linalg.det(jacobian)[2:-2, 2:-2, 2:-2]
    assert pair.sdlogj == pytest.approx(np.log(inside + 3).std(), rel=1e-3) and pair.sdlogj > 1e-3
    result = morphseek.Registration.read(out / pair.id)
    assert pair.sdlogj < result.metrics["sdlogj"]  # of log(det J) itself
    everywhere = np.linalg.det(jacobian)
    assert pair.njd_percent == pytest.approx(100 * (everywhere < 0).mean(), abs=1e-6)


def test_mindboggle_counts_both_spaces(tmp_path: Path):
    root, out = mindboggle(tmp_path / "data"), tmp_path / "out"
    (pair,) = run("mindboggle", root, out, pairs=root / "pairs.csv", **DEFORM)
    result = morphseek.Registration.read(out / pair.id)
    (row,) = protocol_pairs("mindboggle", root, pairs=root / "pairs.csv")
    fixed, moving = (images.read(row[f"{side}_labels"]) for side in ("fixed", "moving"))

    def overlap(one: Any, other: Any) -> float:
        a, b = (np.asarray(m) == 1002 for m in (one, other))
        return float(2 * (a & b).sum() / (a.sum() + b.sum()))

    here = overlap(fixed.array, result.apply(moving, interpolation="nearest").array)
    there = overlap(moving.array, result.inverse().apply(fixed, interpolation="nearest").array)
    assert pair.dice == pytest.approx((here + there) / 2, abs=5e-3)
    assert abs(here - there) > 1e-4  # otherwise the test would prove nothing


def test_a_label_that_is_lost_counts(tmp_path: Path):
    """As in Learn2Reg, its Dice of 0 counts in the mean and its distance is infinite."""
    root = oasis(tmp_path / "data")
    for person, corner in (("0396", 0), ("0395", -1)):
        path = root / "labelsTr" / f"OASIS_{person}_0000.nii.gz"
        labels = images.read(path).array.copy()
        labels[corner, corner, corner] = 3  # moves out of the image
        images.write(path, images.Image(labels, SPACING))
    (pair,) = run("oasis", root, tmp_path / "out", **QUICK)
    assert pair.labels == 3 and pair.hd95 == np.inf and pair.dice < 0.67
    written = json.loads((tmp_path / "out" / "protocol.json").read_text())
    assert written["pairs"][0]["hd95"] is None and written["summary"]["hd95"] is None


def test_command(tmp_path: Path):
    """The table has the published rows; a second call registers nothing again."""
    root, out = mrct(tmp_path / "data"), tmp_path / "out"
    said = command("abdomen-mrct-8", root, "--out", out, *OPTIONS)
    assert re.search(r"^MorphSeek \S+ +0\.\d{4} +0\.\d{4} .*2 scored of 2 pairs$", said, re.M)
    assert re.search(r"^no registration +0\.\d{4} +2 scored", said, re.M)
    assert re.search(r"^anatomix \+ MIND-SSC, FireANTs +0\.8790 .*the 8 pairs$", said, re.M)
    assert "published: github.com/neel-dey/anatomix" in said
    before = json.loads((out / "protocol.json").read_text())["summary"]
    command("abdomen-mrct-8", root, "--out", out, *OPTIONS)
    assert json.loads((out / "protocol.json").read_text())["summary"] == before
    states = json.loads((out / "summary.json").read_text())["summary"]
    assert states["skipped"] == 2 and states["done"] == 0


def test_list_alone(tmp_path: Path):
    root, out = oasis_2021(tmp_path / "data"), tmp_path / "list"
    command("oasis", root, "--out", out, "--list-only")
    assert [path.name for path in out.iterdir()] == ["pairs.csv"]
    (pair,) = studies.read_pairs(out / "pairs.csv")
    assert pair.path("moving_labels") == (root / "seg0439.nii.gz").absolute()


def test_a_pair_that_fails_is_said(tmp_path: Path):
    root, out = ctct(tmp_path / "data"), tmp_path / "out"
    (root / "imagesTr" / "AbdomenCTCT_0007_0000.nii.gz").write_bytes(b"no image")
    said = command("abdomen-ctct", root, "--out", out, *OPTIONS, expect=3)
    assert "1 scored of 2 pairs" in said and "failed, and left out of the means: " in said
    with open(out / "protocol.csv", newline="", encoding="utf-8") as file:
        good, bad = csv.DictReader(file)
    assert not good["error"] and "InputUnreadable" in bad["error"] and not bad["dice"]


def spoil(make: Callable[[Path], Path], file: str, text: str | None) -> Callable[[Path], Path]:
    """Make data in which one file is replaced or missing."""

    def made(root: Path) -> Path:
        make(root)
        (root / file).unlink()
        if text is not None:
            (root / file).write_text(text)
        return root

    return made


def empty(root: Path) -> Path:
    root.mkdir()
    return root


def absent(root: Path) -> Path:
    return root


ENTRY = '{"registration_val": [{"fixed": "../a.nii.gz", "moving": "./imagesTr/b.nii.gz"}]}'
FAILURES: list[tuple[str, Callable[[Path], Path], str]] = [
    ("abdomen-mrct", absent, "is no folder; give the one that the data set is unpacked to"),
    ("abdomen-mrct", empty, "has no AbdomenMRCT_dataset.json; give the folder"),
    ("abdomen-mrct-8", empty, "has no case with both AbdomenMRCT_NNNN_0000"),
    ("abdomen-ctct", empty, "has no AbdomenCTCT_dataset.json"),
    ("oasis", empty, "has neither OASIS_dataset.json nor pairs_val.csv"),
    ("lumir", empty, "has no LUMIR_dataset.json"),
    ("mindboggle", empty, "give one by --pairs, with the columns subject1"),
    ("oasis", spoil(oasis, "OASIS_dataset.json", "{"), "OASIS_dataset.json is no JSON"),
    ("oasis", spoil(oasis, "OASIS_dataset.json", "{}"), "no list 'registration_val'"),
    ("oasis", spoil(oasis, "OASIS_dataset.json", ENTRY), r"'\.\./a\.nii\.gz' is no Learn2Reg"),
    ("oasis", spoil(oasis, "labelsTr/OASIS_0396_0000.nii.gz", None), "0396_0000.nii.gz is missing"),
    ("oasis", spoil(oasis_2021, "pairs_val.csv", "a,b\n1,2\n"), "the columns fixed and moving"),
    ("oasis", spoil(oasis_2021, "pairs_val.csv", "fixed,moving\nx,2\n"), "'x' is no number"),
    ("oasis", spoil(oasis_2021, "img0439.nii.gz", None), "img0439.nii.gz is missing; oasis needs"),
    ("none", empty, "protocol: 'none' is none; there are abdomen-mrct, "),
]


@pytest.mark.parametrize(("name", "make", "said"), FAILURES)
def test_failures_name_the_file(name: str, make: Callable[[Path], Path], said: str, tmp_path: Path):
    root = make(tmp_path / "data")
    refused(errors.MorphSeekError, said, protocols.run, name, root, tmp_path / "out", **QUICK)
    assert not (tmp_path / "out").exists()  # before the work


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("subject1,subject2\nNKI-1,nobody\n", r"has no t1weighted_brain\.nii\.gz of nobody"),
        ("one,two\nNKI-1,MMRR-21-2\n", "subject1 and subject2 or fixed and moving"),
        ("subject1,subject2\n", "a row for each pair"),
    ],
)
def test_lists_for_mindboggle(text: str, said: str, tmp_path: Path):
    root = mindboggle(tmp_path / "data")
    (root / "own.csv").write_text(text)
    unreadable(said, protocol_pairs, "mindboggle", root, pairs=root / "own.csv")


def test_an_empty_folder_of_mindboggle(tmp_path: Path):
    (tmp_path / "pairs.csv").write_text("subject1,subject2\na,b\n")
    with pytest.raises(errors.InputUnreadableError, match="unpack Mindboggle-101's volumes"):
        protocol_pairs("mindboggle", tmp_path, pairs=tmp_path / "pairs.csv")


def test_fields_need_one_grid(tmp_path: Path):
    root = oasis_2021(tmp_path / "data")
    for kind in ("img", "seg"):
        path = root / f"{kind}0439.nii.gz"
        images.write(path, images.Image(images.read(path).array[1:], SPACING))
    with pytest.raises(errors.GridMismatchError, match="run without --fields"):
        protocols.run("oasis", root, tmp_path / "out", fields=True, **QUICK)


def test_the_page_and_the_help_have_every_protocol_and_figure():
    page = PAGE.read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 70
    for name, protocol in PROTOCOLS.items():
        assert re.search(rf"^ *{name} ", protocols.__doc__ or "", re.M), name
        assert f"`{name}`" in page, name
        for row in protocol.published:
            assert row.method in page and f"{row.dice:.4f}".rstrip("0") in page, row
            repository = "/".join(row.source.split(",")[0].split("/")[:3])
            assert repository in page, row
