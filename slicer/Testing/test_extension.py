"""What the extensions catalogue and Slicer's build need of the folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from MorphSeekLib.request import PRESETS
from PySide6 import QtGui

EXTENSION = Path(__file__).resolve().parents[1]

# Of slicer-extension-catalog-entry-schema-v1.0.1: required, and all that may be there.
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
    if name.endswith(("URL", "URLS")):  # the file behind the address is in this folder
        assert (EXTENSION / value.partition("/slicer/")[2]).is_file()


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
