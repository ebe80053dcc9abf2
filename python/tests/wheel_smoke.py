"""Checks what a fresh installation of the wheel must do.

The ctest "wheel" runs this in an environment that has only the wheel and its dependencies: the main
job works, and a network says which extra to install. Then the test installs that extra and runs
this with the argument "network": the network runs without any path set.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def blobs(shift: float) -> np.ndarray:
    """Return a body with a spot on it, moved along x by shift (the volume is 2 wide)."""
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in (24, 32, 28)), indexing="ij")
    body = np.exp(-((x - shift) ** 2 + 2 * y**2 + 1.5 * z**2) / 0.2)
    return (body + 0.5 * np.exp(-((x - shift - 0.3) ** 2 + y**2 + (z - 0.2) ** 2) / 0.02)).astype(
        np.float32
    )


LIMIT_MB = 425
"""MB that site-packages may hold beside pip: SimpleITK has 260, Pillow 21 (engine/RATIONALE.md)."""


def run(*arguments: str) -> str:
    command = [Path(sys.executable).parent / "morphseek", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main_job(folder: Path) -> None:
    """Register files, apply the transform and run a list of pairs, by the command."""
    import morphseek

    for name, shift in (("fixed", 0.0), ("moving", 0.2)):
        morphseek.images.write(folder / f"{name}.nii.gz", morphseek.Image(blobs(shift)))
    fixed, moving = str(folder / "fixed.nii.gz"), str(folder / "moving.nii.gz")
    quick = ["--search", "off", "--refine", "0", "--quiet"]
    run("register", fixed, moving, "--out", str(folder / "out"), *quick)
    report = folder / "out" / "report.html"
    assert report.stat().st_size > 10_000
    run(
        "apply", "--transform", str(folder / "out" / "transform.h5"), "--input", moving,
        "--reference", fixed, "-o", str(folder / "again.nii.gz"),
    )  # fmt: skip
    pairs = folder / "pairs.csv"
    pairs.write_text("id,fixed,moving\na,fixed.nii.gz,moving.nii.gz\n", encoding="utf-8")
    run("pairs", str(pairs), "--out", str(folder / "batch"), *quick)
    assert (folder / "batch" / "index.html").exists()


def installed_mb() -> float:
    """Return the size of site-packages without pip, its tools and Python's compiled files."""
    import morphseek

    place = Path(morphseek.__file__).parents[1]
    return (
        sum(
            path.lstat().st_size
            for path in place.rglob("*")
            if path.is_file()
            and path.relative_to(place).parts[0] not in ("pip", "setuptools", "pkg_resources")
            and path.suffix != ".pyc"
        )
        / 1e6
    )


def main(network: bool) -> None:
    import morphseek

    assert "site-packages" in morphseek.__file__, morphseek.__file__

    fixed, moving = blobs(0.0), blobs(0.2)
    aligned = morphseek.register(fixed, moving, model="none", search=False, refine=0)
    error = np.abs(aligned.warped - fixed).mean() / np.abs(moving - fixed).mean()
    assert error < 0.35, f"alignment leaves {error:.0%} of the difference"

    report = json.loads(run("info", "doctor", "--json"))
    assert report["well"], report
    ready = {feature["name"]: feature["ready"] for feature in report["features"]}
    assert ready["registration"] and ready["network"] == network, report["features"]
    if network:
        # of another organ and for two people: the test is only that it runs where it is asked for
        deformed = morphseek.register(fixed, moving, model="hippocampus", search=False, refine=0)
        assert deformed.metrics["model"] == "hippocampus" and deformed.metrics["steps"], (
            deformed.metrics
        )
        assert (
            deformed.displacement().shape == (3, *fixed.shape)
            and np.isfinite(deformed.displacement()).all()
        )
    else:
        for package in ("onnxruntime", "nibabel", "matplotlib", "scipy"):
            assert importlib.util.find_spec(package) is None, package
        models = morphseek.devices()["devices"]
        assert not any(device["usable"] for device in models)
        assert json.loads(run("info", "models", "--json")), "the list needs no runtime"
        heard: list[str] = []
        try:
            morphseek.register(
                fixed, moving, model="hippocampus", progress=lambda p: heard.append(p.message)
            )
        except morphseek.errors.RuntimeMissingError as missing:
            assert "pip install 'morphseek[network]'" in str(missing), missing
        else:
            raise AssertionError("a network ran without ONNX Runtime")
        assert set(heard) <= {"looking at the volumes"}, f"it is told after the work: {heard}"
        with tempfile.TemporaryDirectory() as folder:
            main_job(Path(folder))
        assert installed_mb() < LIMIT_MB, f"{installed_mb():.0f} MB"

    package = Path(morphseek.__file__).parent
    engines = [p.name for p in package.rglob("*") if p.suffix in (".so", ".pyd", ".dll", ".dylib")]
    assert len(engines) == 1, f"the engine is to be here once: {engines}"

    assert "register" in run("--help")
    print(
        f"morphseek {morphseek.__version__}, {installed_mb():.0f} MB installed: alignment leaves"
        f" {error:.1%} of the difference{'; the network ran' if network else ''}"
    )


if __name__ == "__main__":
    os.environ.pop("MORPHSEEK_ORT_LIBRARY", None)
    main(sys.argv[1:] == ["network"])
