"""What a fresh install of the wheel must do: register a small pair, run a network, find ONNX
Runtime with no path set.

Run by the ctest "wheel" in an environment that has the wheel and its dependencies alone.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np


def blobs(shift: float) -> np.ndarray:
    """A body with a spot on it, moved along x by shift (the volume is 2 wide)."""
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in (24, 32, 28)), indexing="ij")
    body = np.exp(-((x - shift) ** 2 + 2 * y**2 + 1.5 * z**2) / 0.2)
    return (body + 0.5 * np.exp(-((x - shift - 0.3) ** 2 + y**2 + (z - 0.2) ** 2) / 0.02)).astype(
        np.float32
    )


def main() -> None:
    import morphseek

    assert "site-packages" in morphseek.__file__, morphseek.__file__

    fixed, moving = blobs(0.0), blobs(0.2)
    aligned = morphseek.register(fixed, moving, model="none", search="off", refine=0)
    error = np.abs(aligned.warped - fixed).mean() / np.abs(moving - fixed).mean()
    assert error < 0.35, f"alignment leaves {error:.0%} of the difference"

    # of another organ; what counts is that it runs
    deformed = morphseek.register(fixed, moving, model="hippocampus")
    assert deformed.metrics["model"] == "hippocampus" and deformed.metrics["steps"], (
        deformed.metrics
    )
    assert (
        deformed.displacement.shape == (3, *fixed.shape)
        and np.isfinite(deformed.displacement).all()
    )

    package = Path(morphseek.__file__).parent
    engines = [p.name for p in package.rglob("*") if p.suffix in (".so", ".pyd", ".dll", ".dylib")]
    assert len(engines) == 1, f"the engine is to be here once: {engines}"

    command = [Path(sys.executable).parent / "morphseek", "--help"]
    assert "register" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(
        f"morphseek {morphseek.__version__}: alignment leaves {error:.1%} of the difference; the"
        " network ran"
    )


if __name__ == "__main__":
    main()
