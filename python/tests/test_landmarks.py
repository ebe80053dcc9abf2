"""Landmarks: files of three kinds, pairing, the errors at them, and what is refused."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import morphseek
from helpers import FLAGS, QUICK, blob, invalid, unreadable
from morphseek import Landmarks, errors, images
from morphseek._engine.table import for_engine
from morphseek.landmarks import check_inside, match_landmarks, pair_landmarks
from morphseek.scoring import score_landmarks
from morphseek.studies.pair import register_into
from morphseek.transforms import Transform
from morphseek.transforms.carried import carry

POINTS = [[12.5, -30.25, 44.0], [-1.0, 2.0, 3.5]]
NAMES = ["tip", "base, left"]


def mrk(space: str | None = "LPS", points: list = POINTS, status: str = "defined", **more) -> str:
    controls = [
        {"id": str(i), "label": n, "position": p, "positionStatus": status}
        for i, (n, p) in enumerate(zip(NAMES, points))
    ]
    markup = {"type": "Fiducial", "coordinateUnits": "mm", "controlPoints": controls, **more}
    if space:
        markup["coordinateSystem"] = space
    return json.dumps({"@schema": "markups-schema-v1.0.3.json#", "markups": [markup]})


def fcsv(space: str | None, points: list = POINTS, more: str = "") -> str:
    """Return a file as 3D Slicer 4.11 writes it; 5.2 and later write ``more`` cells."""
    head = "# Markups fiducial file version = 4.11\n"
    head += f"# CoordinateSystem = {space}\n" if space else ""
    head += "# columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID\n"
    rows = (
        f'vtkMRMLMarkupsFiducialNode_{i},{x},{y},{z},0,0,0,1,1,1,0,"{n}",,{more}\n'
        for i, (n, (x, y, z)) in enumerate(zip(NAMES, points))
    )
    return head + "".join(rows)


def table(heading: str, points: list = POINTS, separator: str = ",") -> str:
    rows = (separator.join([f'"{n}"', *map(str, p)]) for n, p in zip(NAMES, points))
    return "\n".join([heading, *rows, ""])


RAS = [[-x, -y, z] for x, y, z in POINTS]


def shift_of(voxels: float) -> morphseek.Field:
    """Return a shift along x of an image whose voxels are of 1 mm."""
    grid = images.Image(np.zeros((10, 8, 16))).grid
    shift = np.zeros((3, 10, 8, 16), np.float32)
    shift[2] = voxels
    return morphseek.Field(shift, grid, grid)


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.mrk.json", mrk()),
        ("a.mrk.json", mrk(None)),
        ("a.mrk.json", mrk("RAS", RAS)),
        ("a.mrk.json", mrk(coordinateUnits=["mm", "mm", "mm"])),
        ("a.fcsv", fcsv("LPS")),
        ("a.fcsv", fcsv("1")),
        ("a.fcsv", fcsv("RAS", RAS)),
        ("a.fcsv", fcsv("0", RAS)),
        ("a.FCSV", fcsv(None, RAS)),
        ("a.fcsv", fcsv("LPS", more=",2,0")),
        ("a.csv", table("name,x,y,z")),
        ("a.csv", table("label,L,P,S")),
        ("a.csv", table("label,r,a,s", RAS)),
        ("a.csv", table("Landmark,x,y,z")),
        ("a.csv", 'x,y,z,rater,n,point\n12.5,-30.25,44,A,1,tip\n-1,2,3.5,A,2,"base, left"\n'),
        ("a.csv", "\ufeff" + table("Name;X;Y;Z", separator=";").replace("\n", "\r\n")),
        ("a.csv", 'x,y,z,t,label\n12.5,-30.25,44,0,tip\n-1,2,3.5,0,"base, left"\n'),
        ("a.csv", ';x;y;z;name\n0;12,5;-30,25;44;tip\n1;-1,0;2;3,5;"base, left"\n'),
        ("a.csv", 'x\ty\tz\tname\n12,5\t-30,25\t44\ttip\n-1\t2\t3,5\t"base, left"\n'),
        ("a.csv", 'x,y,z,name\n"12,5","-30,25",44,tip\n-1,2,"3,5","base, left"\n'),
        ("a.csv", '"","x","y","z","name"\n"1",12.5,-30.25,44,"tip"\n"2",-1,2,3.5,"base, left"\n'),
        ("a.csv", ';x;y;z;name\n7;12,500;-30,250;44,000;tip\n9;-1,000;2,000;3,500;"base, left"\n'),
    ],
)
def test_one_set_of_points_by_every_file(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = Landmarks.read(tmp_path / name)
    assert found.points.tolist() == POINTS and list(found.names) == NAMES


@pytest.mark.parametrize(
    "text",
    [
        "12.5,-30.25,44\n-1,2,3.5\n",
        "\ufeff12.5;-30.25;44\r\n-1;2;3.5\r\n",
        "12,5;-30,25;44\n-1;2;3,5\n",
        "12.5\t-30.25\t4.4e1\n-1\t2\t3.5\n",
    ],
)
def test_a_table_of_numbers(text: str, tmp_path: Path):
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    found = Landmarks.read(tmp_path / "a.txt")
    assert found.points.tolist() == POINTS and found.names == ()
    with pytest.raises(ValueError, match="read-only"):
        found.points[0] = 0


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("a.csv", "", "needs the columns|there is no point"),
        ("a.csv", "x,y,z\n", "there is no point; mark some"),
        ("a.csv", "name,u,v,w\na,1,2,3\n", "needs the columns x, y and z .* name, u, v, w"),
        ("a.csv", "name,x,y,z\ntip,1,nan,3\n", r"the point tip lies at \[1.0, nan, 3.0\]"),
        ("a.csv", "name,x,y,z\ntip,1,two,3\n", "the point tip lies at"),
        ("a.csv", "name,x,y,z\ntip,1,2,\n", "the point tip lies at"),
        ("a.csv", "x,y,z\n1,2,3\n1,inf,3\n", "the point 2 lies at"),
        ("a.csv", "a\0b", "no text in UTF-8"),
        ("a.csv", "x,y,z\n1,5,2,5,3,5\n", "line 2: the cell '5' stands below no column"),
        ("a.csv", "x;y;z\n1,5;2.5;3\n", "comma in '1,5' may separate decimals or thousands, and"),
        ("a.csv", 'x,y,z\n"1,500",2,3\n', "comma in '1,500' may separate decimals or thousands;"),
        ("a.csv", "x\ty\tz\n1,500\t2\t3\n", "write all numbers with a decimal point"),
        ("a.csv", "x,y,z,r,a,s\n1,2,3,4,5,6\n", "columns x, y and z and r, a and s; leave out"),
        ("a.csv", "x,y,z,x\n1,2,3,4\n", "the column x twice"),
        ("a.csv", ",x,y,z\ntip,1,2,3\n", "the column with 'tip' has no name"),
        ("a.csv", "name,x,y,z\ntip,1_0,2,3\n", "the point tip lies at"),
        ("a.csv", "label,r,a,s,defined\ntip,0,0,0,0\n", "there is no point"),
        ("a.csv", "x,y,z,defined\n1,2,3,1\n0,0,0,0\n", "the point 2 lies at"),
        ("a.fcsv", "", "there is no point"),
        ("a.fcsv", fcsv("IJK"), "is in IJK, not in LPS or RAS"),
        ("a.fcsv", fcsv("2"), "is in 2, not in LPS or RAS"),
        ("a.fcsv", "# columns = id,u,v\na,1,2\n", "no columns x, y and z"),
        ("a.fcsv", fcsv("LPS", [["nan", 1, 2], [1, 2, 3]]), "the point tip lies at"),
        ("a.fcsv", fcsv("LPS", [[0, 0, 0], [1, 2, 3]], ",0,0"), "there is no point"),
        ("a.mrk.json", "", "not 3D Slicer's list of points"),
        ("a.mrk.json", "[1, 2]", "not 3D Slicer's list of points"),
        ("a.mrk.json", '{"markups": []}', "holds 0 lists of points"),
        ("a.mrk.json", '{"markups": [{}]}', "not 3D Slicer's list of points"),
        ("a.mrk.json", mrk(points=[]), "there is no point"),
        ("a.mrk.json", mrk("IJK"), "is in IJK and mm, not in LPS or RAS mm"),
        ("a.mrk.json", mrk(coordinateUnits="um"), "is in LPS and um"),
        ("a.mrk.json", mrk(status="undefined"), "there is no point"),
        ("a.mrk.json", mrk(points=[[1, 2], [3, 4]]), "the point tip lies at"),
        ("a.mrk.json", mrk(points=[[1, 2, float("nan")], [3, 4, 5]]), "the point tip lies at"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, text: str, said: str):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(errors.InputUnreadableError, match=said) as raised:
        Landmarks.read(path, "fixed landmarks")
    assert str(raised.value).startswith(f"fixed landmarks: {path}")


_UNPLACED = "name,x,y,z\na,0,0,0\ntip,NaN,NaN,NaN\nb,4,5,6\n"


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.csv", _UNPLACED),
        ("a.csv", _UNPLACED.replace("NaN", "")),
        ("a.csv", "label,r,a,s,defined\na,0,0,0,1\ntip,7,8,9,0\nb,-4,-5,6,1\n"),
        ("a.fcsv", "# columns = label,x,y,z\na,0,0,0,2,0\ntip,7,8,9,0,0\nb,-4,-5,6,2,0\n"),
        (
            "a.mrk.json",
            mrk(controlPoints=[
                {"label": "a", "position": [0, 0, 0]},
                {"label": "tip", "position": [7, 8, 9], "positionStatus": "undefined"},
                {"label": "b", "position": [4, 5, 6]},
            ]),
        ),
    ],
)  # fmt: skip
def test_points_without_a_place(tmp_path: Path, name: str, text: str):
    """They are left out and named, of a file, of a data frame and where a file is carried; lists
    that only their order pairs need all their points.
    """
    path = tmp_path / name
    path.write_text(text)
    found = Landmarks.read(path)
    assert found.points.tolist() == [[0, 0, 0], [4, 5, 6]]
    assert (found.names, found.unplaced) == (("a", "b"), ("tip",))
    assert repr(found) == "Landmarks(2 points: a, b; without a place: tip)"
    others = Landmarks([[1, 1, 1], [2, 2, 2], [3, 3, 3]], ["tip", "b", "a"])
    matched = match_landmarks(path, others)
    assert matched.moving.points.tolist() == [[3, 3, 3], [2, 2, 2]]
    assert matched.notes() == [
        "Landmarks without a place were left out: tip (fixed).",
        "Landmarks that one image alone has were carried over: tip (moving).",
    ]
    assert pair_landmarks(path, others)[1].names == ("a", "b")
    more = Landmarks([*others.points, [4, 4, 4]], [*others.names, "more"])
    invalid("more has no partner of that name", pair_landmarks, path, more)
    for unnamed in (POINTS, Landmarks(POINTS, ["u", "v"])):
        invalid("tip has no place, and there are no common names", match_landmarks, path, unnamed)
    with pytest.warns(errors.InputWarning, match="points without a place were left out: tip"):
        assert carry(path, tmp_path / "out.csv", Transform.of(np.eye(4))) == 2
    assert list(Landmarks.read(tmp_path / "out.csv").names) == ["a", "b"]


def test_a_file_that_is_missing(tmp_path: Path):
    for name in ("a.csv", "a.fcsv", "a.mrk.json"):
        unreadable(f"{name} cannot be read: .", Landmarks.read, tmp_path / name)


@pytest.mark.parametrize(
    "names, others, order",
    [
        (["a", "b"], ["b", "a"], [1, 0]),
        (["F-1", "F-2"], ["M-1", "M-2"], [0, 1]),  # Slicer's names
        (["a", "b"], [], [0, 1]),
        ([], [], [0, 1]),
        (["0", "0"], ["0", "0"], [0, 1]),  # no names
    ],
)
def test_pairing(names: list[str], others: list[str], order: list[int]):
    matched = match_landmarks(Landmarks(POINTS, names), Landmarks(RAS, others))
    assert matched.fixed.points.tolist() == POINTS
    assert matched.moving.points.tolist() == [RAS[i] for i in order]
    said = "".join(matched.notes())
    assert ("in the order" in said) == (names == ["F-1", "F-2"]) and "given twice" not in said
    assert "given twice" in match_landmarks(Landmarks(POINTS, names), POINTS).notes()[0]


def test_names_that_are_numbers(tmp_path: Path):
    """pandas writes 3.0 for 3 where the column has an empty cell."""
    pandas = pytest.importorskip("pandas")
    (tmp_path / "a.csv").write_text("name,x,y,z\n1,0,0,0\n2,10,0,0\n3,20,0,0\n")
    (tmp_path / "b.csv").write_text("name,x,y,z\n3.0,21,0,0\n,11,0,0\n1.0,1,0,0\n")
    matched = match_landmarks(tmp_path / "a.csv", tmp_path / "b.csv")
    assert matched.names == ["1", "3"]
    assert (matched.moving.points - matched.fixed.points).tolist() == [[1, 0, 0]] * 2
    frame = pandas.DataFrame({"name": [3, np.nan, 1], "x": [21, 11, 1], "y": 0, "z": 0})
    assert match_landmarks(tmp_path / "a.csv", frame).names == ["1", "3"]


@pytest.mark.parametrize(
    "fixed, moving, said",
    [
        (Landmarks(POINTS), POINTS[:1], "has 2 landmarks, moving landmarks has 1"),
        (
            Landmarks(POINTS, ["a", "b"], "F.csv"), Landmarks(POINTS[:1], ["c"], "M.csv"),
            "F.csv has 2 landmarks, M.csv has 1, and no names in common; give",
        ),
        (
            Landmarks(POINTS, ["a", "a"], "F.csv"), Landmarks(POINTS, ["a", "c"], "M.csv"),
            "F.csv has the name a twice",
        ),
        ([[1, 2]], POINTS, r"fixed landmarks: points have shape \(1, 2\); .* a z of 0"),
        ([[1, 2, 3], [4, 5]], POINTS, "fixed landmarks: points are not all numbers"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "there is no point"),
    ],
)  # fmt: skip
def test_pairs_that_are_none(fixed, moving, said: str):
    invalid(said, pair_landmarks, fixed, moving)


@pytest.mark.parametrize(
    "names, others, says",
    [
        ("abc", "abC", "F.csv: c has no partner of that name among the moving"),
        ("abc", "ab", "F.csv: c has no partner of that name among the moving"),
        ("ab", "cab", "M.csv: c has no partner of that name among the fixed"),
    ],
)
def test_points_without_a_partner(names: str, others: str, says: str):
    """A score at some of the points is none at all; a registration carries the others over."""
    here, there = (
        Landmarks(np.ones((len(n), 3)), list(n), source)
        for n, source in ((names, "F.csv"), (others, "M.csv"))
    )
    still = shift_of(0)
    invalid(says, score_landmarks, still, here, there)
    invalid(says, pair_landmarks, here, there)
    assert len(match_landmarks(here, there).fixed) == 2


@pytest.mark.parametrize(
    "names, fixed, says",
    [
        ("tip base", [[0, 0, 4], [12, 6, 8]], ""),
        # paired in their order, which may be another one
        ("Tip Base", [[0, 0, 4], [12, 6, 8]], "no name in common: they were paired in the order"),
        # RAS
        ("tip base", [[0, 0, 4], [-12, -6, 8]], "outside the fixed image, .*: base"),
        ("tip base", [[-2, -1, 4], [-12, -6, 8]], "every point lies outside the fixed image"),
    ],
)
def test_doubtful_scores_are_told(names: str, fixed: list, says: str):
    there = Landmarks([[1, 0, 4], [13, 6, 8]], ["tip", "base"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        score_landmarks(shift_of(0), Landmarks(fixed, names.split()), there)
    assert len(told) == bool(says)
    assert all(re.search(says, str(each.message)) for each in told)


def test_points_of_data_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(POINTS, columns=["x", "y", "z"])
    ras = pd.DataFrame(RAS, columns=["R", "A", "S"])
    for given in (
        frame, frame[["z", "y", "x"]], frame.astype("Float64"), frame.astype(str),
        frame.assign(comment=["a", "b"], day=pd.Timestamp("2024-01-01")),
        frame.rename(columns={"x": "L", "y": "P", "z": "S"}), pd.DataFrame(POINTS), ras,
    ):  # fmt: skip
        assert Landmarks.of(given).points.tolist() == POINTS
    named, still = frame.assign(name=NAMES).set_index("name"), shift_of(0)
    for read in (Landmarks, Landmarks.of):
        assert list(read(named).names) == NAMES == list(read(frame.assign(name=NAMES)).names)
        without = read(frame.assign(name=NAMES, x=[np.nan, 1], y=[np.nan, 1], z=[np.nan, 1]))
        assert (*without.names, *without.unplaced) == (*NAMES[1:], NAMES[0])
    assert list(Landmarks(named, ["u", "v"]).names) == ["u", "v"]
    for given in (frame, frame[["z", "y", "x"]], named, pd.DataFrame(POINTS)):
        assert still.transform_points(given).tolist() == POINTS
    for call, says in (
        (lambda: still.transform_points(ras), "columns r, a, s; give x, y and z"),
        (
            lambda: still.transform_points(
                pd.DataFrame(POINTS, columns=["axis-0", "axis-1", "z_mm"])
            ),
            "columns axis-0, axis-1, z_mm",
        ),
        (lambda: Landmarks.of(frame[["x", "y"]]), "landmarks needs the columns x, y and z"),
        (lambda: Landmarks.of(frame.mask(frame > 20)), "the point 1 lies at"),
    ):
        invalid(says, call)


@pytest.mark.parametrize(
    "points",
    [np.ma.masked_greater(POINTS, 4), [np.ma.masked_greater(point, 4) for point in POINTS]],
    ids=["array", "rows"],
)
def test_masked_points_are_refused(points):
    """A masked point is refused, because its hidden numbers would count."""
    for call in (Landmarks, Landmarks.of):
        invalid("masked array; give those that are not masked", call, points)
    shown = np.ma.masked_greater(POINTS, 99)
    np.testing.assert_array_equal(Landmarks.of(shown).points, POINTS)


def test_names_are_as_many_as_points():
    invalid("1 names for 2 points", Landmarks, POINTS, ["a"])
    pd = pytest.importorskip("pandas")
    invalid("1 names for 2 points", Landmarks, pd.DataFrame(POINTS, columns=[*"xyz"]), ["a"])


def test_points_outside():
    place = ((2, 1, 1), (10, 0, 0), (-1, 0, 0, 0, -1, 0, 0, 0, 1))
    grid = images.Image(np.zeros((4, 5, 6)), *place).grid
    # half a voxel beyond the corner voxels' centres
    inside = [[10.9, 0.4, -0.4], [-0.9, -4.4, 3.4]]
    assert check_inside(Landmarks(inside), grid, "fixed") == ""
    warned = check_inside(Landmarks([*inside, [11.1, 0, 0]], ["a", "b", "c"]), grid, "fixed")
    assert warned == "Landmarks outside the fixed image, where the transform only goes on: c."
    far = Landmarks([[-3, 0, 0]])
    invalid("every point lies outside the fixed", check_inside, far, grid, "fixed")


def test_errors_by_hand():
    """With a shift of (4, 0, 0) voxels of 1 mm, the distances can be computed by hand."""
    transform = shift_of(4)
    fixed = [[2.0, 3, 4], [5, 5, 5], [1, 1, 1]]
    moving = [[6.0, 3, 4], [9, 5, 8], [5, 5, 4]]
    found = score_landmarks(transform, fixed, moving)
    np.testing.assert_allclose(found.before_mm, [4, 5, 41**0.5])
    np.testing.assert_allclose(found.initial_mm, found.before_mm)
    np.testing.assert_allclose(found.after_mm, [0, 3, 5], atol=1e-6)
    np.testing.assert_allclose(found.carried, np.subtract(moving, [4, 0, 0]), atol=1e-5)
    after = found.to_dict()["landmarks"]["after"]
    expected = {"mean_mm": 8 / 3, "median_mm": 3, "p95_mm": 4.8, "max_mm": 5}
    assert after == pytest.approx(expected, abs=1e-6)


def test_points_are_carried_where_the_map_turns_or_stretches():
    """The truth is the points that were mapped."""
    grid = images.Grid((40, 40, 8), (2, 2, 2), (-39, -39, -7))
    turn = np.deg2rad(80)
    turned = np.array(
        [[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]]
    )
    places = grid.points()
    rotated = places @ turned.T
    stretched = places * 2 + 6 * np.sin(places / 8)
    points = np.array([[5.0, 3, 0], [-8, 4, 2]])
    for there in (rotated, stretched):
        field = morphseek.Field.from_mm(there - places, grid, grid)
        mapped = field.transform_points(points)
        scores = score_landmarks(field, points, mapped)
        np.testing.assert_allclose(scores.carried, points, atol=1e-3)


@pytest.fixture
def shifted(tmp_path: Path) -> dict[str, Path]:
    """A pair that differs only by a shift of 5 mm along x, with matching landmarks."""
    array = blob()
    image = images.Image(array, (1.5, 1.5, 2.0), (-20.0, 10.0, 5.0))
    moved = images.Image(array, image.spacing, (-15.0, 10.0, 5.0))
    paths = {name: tmp_path / f"{name}.nii.gz" for name in ("fixed", "moving")}
    images.write(paths["fixed"], image)
    images.write(paths["moving"], moved)
    points = np.array([[0.0, 25.0, 20.0], [6.0, 30.0, 30.0], [-3.0, 20.0, 26.0]])
    paths |= {"points": tmp_path / "fixed.csv", "others": tmp_path / "moving.mrk.json"}
    Landmarks(points, list("abc")).write(paths["points"])
    there = points + [5, 0, 0]
    there[1] += [0, 0, 2]  # marked 2 mm off
    Landmarks(there[::-1], list("cba")).write(paths["others"])
    return paths


@pytest.fixture
def images_of(shifted: dict[str, Path]) -> tuple[Path, Path]:
    return shifted["fixed"], shifted["moving"]


def words_of(fixed: Path, moving: Path) -> list[object]:
    return ["--fixed-landmarks", fixed, "--moving-landmarks", moving]


def report_of(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_command(tmp_path, shifted, images_of, command):
    points = words_of(shifted["points"], shifted["others"])
    text = command("register", *images_of, "--out", tmp_path / "out", *points, *FLAGS)
    assert "landmarks" in text and "5.1 -> 0.7 -> 0.7 mm on average" in text, text
    assert "at 3 points" in text and "worst" in text and "b: 5.4 -> 2.0 mm" in text
    report = report_of(tmp_path / "out")
    assert report["tre_before_mm"] == pytest.approx((5 + 29**0.5 + 5) / 3, abs=1e-6)
    assert report["tre_after_mm"] == pytest.approx(2 / 3, abs=1e-3)
    points = {point["name"]: point for point in report["landmarks"]["points"]}
    assert points["b"]["after_mm"] == pytest.approx(2, abs=1e-3)
    assert points["a"]["moving"] == pytest.approx([5, 25, 20])
    page = page_of(tmp_path / "out")
    assert "Error at 3 landmarks" in page and "<b>0.7 mm</b>" in page and "worst 2.0 mm" in page
    again = morphseek.Registration.read(tmp_path / "out")
    assert again.metrics["landmarks"]["after"]["max_mm"] == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize(
    "fixed, moving, code, said",
    [
        ("x,y,z\n0,25,20\n", None, 2, "fixed landmarks are given without moving landmarks"),
        ("x,y,z\n0,25,20\n", "x,y,z\n0,25,20\n1,25,20\n", 2, "no names in common"),
        ("x,y,z\n0,25,20\n", "", 3, "moving landmarks:"),
        ("x,y,z\n0,25,20\n", "x,y,z\n0,-25,20\n", 2, "every point lies outside the moving image"),
        ("x,y,z\n0,25,20\n", "x,y,z\n0,NaN,20\n", 3, "needs three finite numbers"),
    ],
)
def test_the_command_refuses_before_the_work(
    tmp_path, images_of, command, fixed, moving, code, said
):
    arguments: list = []
    for name, text in (("fixed", fixed), ("moving", moving)):
        if text is not None:
            path = tmp_path / f"{name}-points.csv"
            path.write_text(text)
            arguments += [f"--{name}-landmarks", path]
    out = tmp_path / "out"
    failed = command.json("register", *images_of, "--out", out, *arguments, expect=code)
    assert said in failed["error"]["message"] and not out.exists()


@pytest.mark.parametrize(
    "far, steer, says",
    [
        (500, {}, "outside the fixed image"),
        (20, {}, "no name in common"),
        (20, {"landmark_error": 2.0}, "no name in common"),
    ],
)
def test_a_doubt_is_said_once(tmp_path, images_of, far, steer, says):
    fixed = Landmarks([[0.0, 25, 20], [0, -25, far]], ["a", "b"])
    moving = Landmarks([[5.0, 25, 20], [5, -25, far]], ["c", "d"])
    how = {"options": {**QUICK, **steer}, "fixed_landmarks": fixed, "moving_landmarks": moving}
    summary = register_into(tmp_path / "out", *images_of, report="none", **how)
    assert sum(says in warning for warning in summary["warnings"]) == 1
    assert summary["landmarks"]["points"][1]["name"] == "b"


def test_points_of_one_image_are_carried(tmp_path, images_of):
    """The truth is a shift by 5 mm along x."""
    here = Landmarks([[0, 25, 20], [6, 30, 30]], ["a", "here"])
    there = Landmarks([[1, 20, 26], [5, 25, 20]], ["there", "a"])
    how = {"options": dict(QUICK), "fixed_landmarks": here, "moving_landmarks": there}
    summary = register_into(tmp_path / "out", *images_of, **how)
    alone = {p["name"]: p for p in summary["landmarks"]["one_image_only"]}
    assert alone["here"]["image"] == "fixed" and alone["there"]["image"] == "moving"
    assert alone["here"]["carried"] == pytest.approx([11, 30, 30], abs=0.05)
    assert alone["there"]["carried"] == pytest.approx([-4, 20, 26], abs=0.05)
    assert len(summary["landmarks"]["points"]) == 1
    assert any("carried over: here (fixed), there (moving)" in w for w in summary["warnings"])
    assert "moving image alone" in page_of(tmp_path / "out")


def bend(points: np.ndarray) -> np.ndarray:
    """Apply the shift and a bend of up to 3 mm that the images do not show."""
    bow = np.zeros_like(points)
    bow[:, 2] = 3 * np.sin(points[:, 0] / 6)
    return points + [5, 0, 0] + bow


STILL = {**QUICK, "initial": "rigid", "refine": 0}


def test_landmarks_steer(tmp_path, images_of, command):
    """Landmarks add a motion that the images do not show, in Python and in the command. The error
    falls also at points that were not given.
    """
    rng = np.random.default_rng(0)
    points = rng.uniform([-10, 15, 10], [10, 35, 35], (40, 3))
    given, others = points[:30], points[30:]
    names = [f"p{i}" for i in range(30)]
    here, there = Landmarks(given, names), Landmarks(bend(given)[::-1], names[::-1])
    here.write(tmp_path / "here.csv")
    there.write(tmp_path / "there.mrk.json")
    steering = {"fixed_landmarks": here, "moving_landmarks": there, "landmark_error": 0.2}
    plain, led = (morphseek.register(*images_of, **how, **STILL) for how in ({}, steering))
    off = (r.transform_points(others) - bend(others) for r in (plain, led))
    apart = [np.linalg.norm(each, axis=1).mean() for each in off]
    assert apart[0] > 1.5 > 0.6 > apart[1], apart
    fit = led.metrics["landmark_fit"]
    assert fit["count"] == 30 and fit["reach_mm"] > 0 and fit["left_out"] == []
    assert fit["after_mm"] < 0.5 < 1.5 < fit["images_mm"] and plain.metrics["landmark_fit"] is None
    points = words_of(tmp_path / "here.csv", tmp_path / "there.mrk.json")
    flags = [f"--{name}={for_engine(value)}" for name, value in STILL.items()]
    words = ("register", *images_of, "--out", tmp_path / "out", *points, *flags)
    assert "at 30 points that steered" in command(*words, "--landmark-error", "0.2")
    report = report_of(tmp_path / "out")
    assert report["landmark_fit"]["after_mm"] == pytest.approx(fit["after_mm"], rel=1e-4)
    assert all(point["steered"] for point in report["landmarks"]["points"])
    assert "Error at 30 landmarks that steered" in page_of(tmp_path / "out")


def test_a_wrong_pair_is_named(images_of):
    points = np.random.default_rng(1).uniform([-10, 15, 10], [10, 35, 35], (8, 3))
    there = points + [5, 0, 0]
    there[3] += [0, 14, 0]
    here = Landmarks(points, ["a", "b", "c", "wrong", "e", "f", "g", "h"])
    steering = {"fixed_landmarks": here, "moving_landmarks": there, "landmark_error": 1}
    plain, led = (morphseek.register(*images_of, **how, **QUICK) for how in ({}, steering))
    assert led.metrics["landmark_fit"]["left_out"] == ["wrong"]
    assert any("contradict the others were left out: wrong" in w for w in led.metrics["warnings"])
    # the rest agree with the images
    assert np.array_equal(led.displacement(), plain.displacement())


@pytest.mark.parametrize(
    "fixed, moving, error, said",
    [
        (POINTS, POINTS[:1], 1, "has 2 landmarks, moving landmarks has 1"),
        ([[0, 25, 20]], None, 1, "fixed landmarks are given without moving landmarks"),
        ([[0, 25, 20]], [[5, 25, 20]], None, "to steer, and landmark_error is not given"),
        ([[0, 25, 20]], [[5, 25, 20]], -1, "landmark_error"),
        ([[0, 25]], [[5, 25, 20]], 1, "fixed landmarks: points have shape"),
        ([[0, 25, 20]], [[5, -2500, 20]], 1, "every point lies outside the moving image"),
    ],
)
def test_steering_refuses(images_of, fixed, moving, error, said):
    steering = {"fixed_landmarks": fixed, "moving_landmarks": moving}
    if error is not None:
        steering["landmark_error"] = error
    invalid(said, morphseek.register, *images_of, **steering, **QUICK)


def test_what_is_odd_about_landmarks_that_steer_is_told_once(tmp_path, images_of):
    points = {
        side: Landmarks([[0, y, 20], [2, 25, 20]], [f"{side}-1", f"{side}-2"])
        for side, y in (("fixed", 25), ("moving", 26))
    }
    how = {f"{side}_landmarks": each for side, each in points.items()}
    options = {"landmark_error": 1, **QUICK}
    register_into(tmp_path / "out", *images_of, options=options, report="none", **how)
    said = report_of(tmp_path / "out")["warnings"]
    assert sum("in the order of the files" in each for each in said) == 1, said


def test_landmarks_change_nothing(tmp_path, shifted, images_of):
    points = {"fixed_landmarks": shifted["points"], "moving_landmarks": shifted["others"]}
    for name, landmarks in (("a", {}), ("b", points)):
        how = {**landmarks, "options": dict(QUICK), "report": "none"}
        register_into(tmp_path / name, *images_of, **how)
    for name in ("displacement.nrrd", "warped.nii.gz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_study(tmp_path: Path, shifted: dict[str, Path]):
    pair = {name: shifted[name] for name in ("fixed", "moving")}
    points = {"fixed_landmarks": shifted["points"], "moving_landmarks": shifted["others"]}
    rows = [{**pair, **points, "id": "a"}, pair]
    done = morphseek.register_pairs(rows, tmp_path / "out", **QUICK)
    assert report_of(tmp_path / "out" / "a")["landmark_fit"] is None
    assert done.rows[0].tre_after_mm == pytest.approx(2 / 3, abs=1e-3)
    assert done.rows[1].tre_after_mm is None
    assert done.summary()["tre_before_mm"] == pytest.approx(5.128, abs=1e-3)
    assert "Error at points" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    shifted["points"].write_text(shifted["points"].read_text().replace("20", "21"))
    again = morphseek.register_pairs(rows, tmp_path / "out", **QUICK)
    assert [row.status for row in again.rows] == ["done", "skipped"]  # other points: done anew
    led = morphseek.register_pairs(rows, tmp_path / "out", landmark_error=3, **QUICK)
    assert [row.status for row in led.rows] == ["done", "done"]
    report = report_of(tmp_path / "out" / "a")
    assert report["landmark_fit"]["count"] == 3 and report["landmarks"]["steered"]
