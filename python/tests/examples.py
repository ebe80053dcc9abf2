"""A plugin of pytest (-p examples) that provides what the docstrings' examples use: a pair of
phantoms, its registration, a template of two images, a series of two
frames, an echo-planar correction, and a folder with all of these as files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morphseek
from helpers import write_cine, write_pair
from morphseek import images, phantom, scoring, studies, transforms


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("examples")
    pair = phantom.make_pair(size=48)
    write_pair(folder, pair)
    write_cine(folder / "cine", 3)
    inside = pair.target_points()
    inside = inside[len(inside) // 2 :][:4]
    points = morphseek.Landmarks(inside, ["a", "b", "c", "d"])
    points.write(folder / "fixed_points.csv")
    result = morphseek.register(pair.fixed, pair.moving, refine=5, search=False)
    there = morphseek.Landmarks(result.transform_points(points.points), points.names)
    there.write(folder / "moving_points.csv")
    result.save(folder / "result")
    moved = [pair.fixed.like(np.roll(pair.fixed.array, n, axis=2)) for n in (0, 1)]
    template = morphseek.build_template(moved, iterations=0, threads=1)
    template.save(folder / "template")
    frames = np.stack([pair.fixed.array] * 2)
    series = morphseek.correct_motion(frames, folder / "motion", reference=0, threads=1)
    turned = pair.fixed.like(np.roll(pair.fixed.array, 1, axis=1))
    correction = morphseek.correct_epi(pair.fixed, turned, phase_encoding="j")
    modules = {"images": images, "phantom": phantom, "studies": studies}
    modules |= {"scoring": scoring, "transforms": transforms, "morphseek": morphseek, "np": np}
    modules |= {"os": os, "Path": Path}
    made = {"pair": pair, "result": result, "template": template, "series": series}
    return folder, {**made, "correction": correction, **modules}


@pytest.fixture(autouse=True)
def examples(
    doctest_namespace: dict[str, Any],
    shown: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Give each example these names and a copy of the folder to work in."""
    folder, names = shown
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    doctest_namespace.update(names)
