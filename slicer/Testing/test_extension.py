"""Checks what the extensions catalogue and Slicer's build require of the folder."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest
from MorphSeekLib.options import PRESETS
from PySide6 import QtGui

EXTENSION = Path(__file__).resolve().parents[1]

# From slicer-extension-catalog-entry-schema-v1.0.1: the required keys, and all that are allowed.
REQUIRED = {"$schema", "category", "scm_url"}
ALLOWED = REQUIRED | {
    "scm_revision",
    "scm_type",
    "build_dependencies",
    "build_subdirectory",
    "enabled",
    "tier",
}


def test_catalogue_entry() -> None:
    entry = json.loads((EXTENSION / "MorphSeek.json").read_text(encoding="utf-8"))
    assert REQUIRED <= entry.keys() <= ALLOWED
    assert re.fullmatch(
        r"https://raw\.githubusercontent\.com/Slicer/Slicer/main/Schemas/slicer-extension-catalog-entry-schema-v1\.0\.\d\.json#",
        entry["$schema"],
    )
    assert entry["category"] == "Registration" and entry["scm_url"].startswith("https://")
    assert entry["build_dependencies"] == [] and entry["tier"] in range(1, 6)


@pytest.mark.parametrize(
    "name",
    ["HOMEPAGE", "CATEGORY", "CONTRIBUTORS", "DESCRIPTION", "ICONURL", "SCREENSHOTURLS", "DEPENDS"],
)
def test_extension_variables(name: str) -> None:
    text = (EXTENSION / "CMakeLists.txt").read_text(encoding="utf-8")
    (value,) = re.findall(rf'set\(EXTENSION_{name} "([^"]+)"\)', text)
    if name.endswith(("URL", "URLS")):  # the address leads to a file of this folder
        for address in value.split():
            assert (EXTENSION / address.partition("/slicer/")[2]).is_file()


def test_what_the_catalogue_looks_for() -> None:
    """The folder will be the root of the catalogue's repository. The catalogue checks its licence,
    its project's name and its line endings.
    """
    ours = EXTENSION.parent / "LICENSE"
    assert (EXTENSION / "LICENSE.txt").read_bytes() == ours.read_bytes()
    cmake = (EXTENSION / "CMakeLists.txt").read_text(encoding="utf-8")
    assert re.findall(r"project\s*\(\s*([^\s)]+)", cmake)[0] == "MorphSeek"
    page = (EXTENSION / "README.md").read_text(encoding="utf-8")
    for needed in ("Apache License 2.0", "Sample Data", "To cite"):
        assert needed in page, needed
    for path in EXTENSION.rglob("*"):
        if path.is_file() and path.suffix not in (".png", ".pyc"):
            assert b"\r" not in path.read_bytes(), path
    assert (EXTENSION / "MorphSeek.json").read_bytes().endswith(b"}\n")


SCRIPTS = sorted((EXTENSION / "MorphSeek").rglob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_load_in_every_slicer(path: Path) -> None:
    """In Slicer 5.8, which has Python 3.9, the panel must open to say what it needs. At file scope,
    only what Slicer brings is imported.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    brought = {"slicer", "vtk", "qt", "ctk", "numpy", "MorphSeekLib", *sys.stdlib_module_names}
    for node in tree.body:
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= brought
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").partition(".")[0] in brought
        else:  # file scope holds only definitions and constants
            assert not isinstance(node, (ast.For, ast.While, ast.With)), ast.dump(node)


def test_icon() -> None:
    icon = QtGui.QImage(str(EXTENSION / "MorphSeek" / "Resources" / "Icons" / "MorphSeek.png"))
    assert (icon.width(), icon.height()) == (128, 128) and icon.hasAlphaChannel()


def test_pictures_are_small() -> None:
    for picture in (EXTENSION / "Screenshots").iterdir():
        assert picture.suffix == ".png" and picture.stat().st_size < 200_000


def test_links_of_the_user_s_page_lead_somewhere() -> None:
    page = (EXTENSION / "README.md").read_text(encoding="utf-8")
    targets = [
        target.partition("#")[0]
        for target in re.findall(r"\]\(([^)]+)\)", page)
        if "://" not in target
    ]
    assert targets
    for target in targets:
        assert not target or (EXTENSION / target).exists(), target


def test_the_user_s_page_explains_every_preset() -> None:
    page = (EXTENSION / "README.md").read_text(encoding="utf-8")
    assert re.findall(
        r"^\| ([^|]+) \|", page.partition("| preset |")[2].partition("\n\n")[0], re.MULTILINE
    ) == list(PRESETS)
