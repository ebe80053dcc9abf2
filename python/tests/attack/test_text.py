"""Untrusted names neither control a terminal nor become formulas in a spreadsheet."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import morphseek
from helpers import QUICK, Command


def test_a_name_does_not_colour_the_terminal(command: Command, tmp_path: Path):
    evil = tmp_path / "a\x1b[31m\u202eb.nii.gz"
    said = command("register", evil, evil, "--out", tmp_path / "out", expect=3)
    assert "a\\x1b[31m\\u202eb.nii.gz does not exist" in said
    assert "\x1b" not in said and "\u202e" not in said


def test_a_name_is_no_formula(files: dict[str, Path], tmp_path: Path):
    moving = tmp_path / "=cmd.nii.gz"
    shutil.copy(files["moving"], moving)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"fixed,moving,id\n{files['fixed']},=cmd.nii.gz,@one\n")
    morphseek.register_cohort(pairs, tmp_path / "out", **QUICK)
    (row,) = csv.DictReader((tmp_path / "out" / "summary.csv").read_text().splitlines())
    assert row["moving"] == "'=cmd.nii.gz" and row["id"] == "'@one"
    assert float(row["njd_percent"]) >= 0
