"""The tutorial runs from end to end on phantoms, with short stages."""

import json
import subprocess
import sys

import pytest

from training_helpers import REPOSITORY, TINY


@pytest.mark.thorough
def test_tutorial(phantoms, tmp_path):
    script = REPOSITORY / "python" / "docs" / "training" / "tutorial.py"
    keys = ("model.options", "data.min_size", "run.threads", "run.amp")
    short = {key: TINY[key] for key in keys} | {"run.val_every": 2, "run.val_pairs": 1}
    words = "--pairs 4 --warmup-iterations 2 --finetune-iterations 2".split()
    command = [sys.executable, script, "--data", phantoms, "--out", tmp_path, *words]
    for key, value in short.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "T = 3: Dice" in done.stdout and "% registered" in done.stdout
    for name in ("curves.png", "pair.png"):
        assert (tmp_path / name).stat().st_size > 5000
    report = json.loads((tmp_path / "registered" / "report.json").read_text())
    assert report["model"].startswith("tutorial")
    assert (tmp_path / "registered" / "warped.nii.gz").exists()
