"""The tutorial runs from end to end on phantoms, with short stages."""

import json
import subprocess
import sys

import pytest

from training_helpers import REPOSITORY


@pytest.mark.thorough
def test_tutorial(phantoms, tmp_path):
    script = REPOSITORY / "python" / "docs" / "training" / "tutorial.py"
    short = [
        'model.options={"widths": [4, 4, 8], "latent_channels": 8, "decoder": [8, 8]}',
        "data.min_size=[24, 24, 24]",
        "run.val_every=2",
        "run.val_pairs=1",
        "run.threads=1",
        'run.amp="none"',
    ]
    command = [
        sys.executable,
        str(script),
        "--data",
        str(phantoms),
        "--out",
        str(tmp_path),
        "--pairs",
        "4",
        "--warmup-iterations",
        "2",
        "--finetune-iterations",
        "2",
    ]
    for item in short:
        command += ["--set", item]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "T = 3: Dice" in done.stdout and "% registered" in done.stdout
    for name in ("curves.png", "pair.png"):
        assert (tmp_path / name).stat().st_size > 5000
    report = json.loads((tmp_path / "registered" / "report.json").read_text())
    assert (
        report["model"].startswith("tutorial")
        and (tmp_path / "registered" / "warped.nii.gz").exists()
    )
