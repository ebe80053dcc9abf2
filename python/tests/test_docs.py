"""The documentation's Python runs."""

import doctest
import re
import shutil
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[1]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def test_guide():
    result = doctest.testfile(
        str(PYTHON / "docs" / "guide.md"), module_relative=False, optionflags=FLAGS
    )
    assert result.attempted > 8 and result.failed == 0


def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(
        str(PYTHON / "docs" / "report.md"), module_relative=False, optionflags=FLAGS
    )
    assert result.attempted > 3 and result.failed == 0


def test_transforms():
    result = doctest.testfile(
        str(PYTHON / "docs" / "transforms.md"), module_relative=False, optionflags=FLAGS
    )
    assert result.attempted > 8 and result.failed == 0


def test_transforms_names_every_format_and_ending():
    from morphseek.transforms import INTERPOLATIONS, carried
    from morphseek.transforms.formats import FORMATS

    page = (PYTHON / "docs" / "transforms.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 200
    for each in FORMATS:
        row = re.findall(rf"^\| `{each.name}` \| .*\|$", page, re.M)[0]
        assert all(f"--{image}" in row for image in each.asks)
        assert all(name in row for name in each.prefix)
    geometry = carried.POINTS + carried.GIFTI + carried.MESHES + carried.TRACTS
    for word in INTERPOLATIONS + geometry:
        assert f"`{word}`" in page, word


def test_studies():
    result = doctest.testfile(
        str(PYTHON / "docs" / "studies.md"), module_relative=False, optionflags=FLAGS
    )
    assert result.attempted > 5 and result.failed == 0


def test_verdict():
    result = doctest.testfile(
        str(PYTHON / "docs" / "verdict.md"), module_relative=False, optionflags=FLAGS
    )
    assert result.attempted > 3 and result.failed == 0


@pytest.mark.parametrize(
    "page", [PYTHON / "README.md", PYTHON.parent / "README.md"], ids=["package", "top"]
)
def test_readme(page, files, tmp_path, monkeypatch):
    for name, source in files.items():
        shutil.copy(source, tmp_path / f"{name}.nii.gz")
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    assert examples
    for example in examples:
        exec(compile(example, str(page), "exec"), {})
    assert (tmp_path / "out" / "transform.h5").exists()


LINK = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")
GENERATED = ("errors.md", "header.md")  # docs/site/pages.py writes them
PAGES = [PYTHON.parent / "README.md", *sorted((PYTHON / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links(page: Path):
    """Each link to a file of the repository leads somewhere, and to a heading that it has."""
    for link in LINK.findall(prose(page)):
        target, _, heading = link.partition("#")
        other = page.parent / target if target else page
        if other.name in GENERATED:
            continue
        assert other.exists(), target
        if heading and other.suffix == ".md":
            titles = re.findall(r"^#+ (.+)$", prose(other), re.M)
            anchors = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
            assert heading in anchors, (target, heading)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
