"""Presets as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import morphseek
from helpers import QUICK, blob
from morphseek import errors


def test_there_and_back(tmp_path: Path):
    path = tmp_path / "ours.json"
    morphseek.save_preset(path, **QUICK, smoothness=2.5)
    assert morphseek.load_preset(path)["refine"] == 0
    for given in (path, str(path)):
        found = morphseek.register(blob(), blob(shift=0.1), preset=given, initial="none")
        assert found.options["search"] == "off" and float(found.options["smoothness"]) == 2.5
        assert found.options["initial"] == "none" and "preset" not in found.options


@pytest.mark.parametrize(
    "content, error, said",
    [
        ({"similarty": "ncc"}, errors.InvalidArgumentError, "similarty"),
        ({"steps": 17}, errors.InvalidArgumentError, "steps"),
        ([1], errors.InputUnreadableError, "no JSON object"),
        (None, errors.InputUnreadableError, "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, content, error: type[Exception], said: str):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(error, match=rf"bad\.json.*{said}"):
        morphseek.register(blob(), blob(), preset=path)
