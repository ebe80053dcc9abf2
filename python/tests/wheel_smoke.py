"""What a fresh install of the wheel must do: register a small pair, run a network, find ONNX Runtime with no path set.

Run by the ctest "wheel" in an environment that has the wheel and its dependencies alone.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np

import morphseek

assert "site-packages" in morphseek.__file__, morphseek.__file__

z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in (24, 32, 28)), indexing="ij")


def blob(shift: float) -> np.ndarray:
    body = np.exp(-((x - shift) ** 2 + 2 * y**2 + 1.5 * z**2) / 0.2)
    return (body + 0.5 * np.exp(-((x - shift - 0.3) ** 2 + y**2 + (z - 0.2) ** 2) / 0.02)).astype(np.float32)


fixed, moving = blob(0.0), blob(0.2)
aligned = morphseek.register(fixed, moving, model="none", refine=0, initial="affine")
error = np.abs(aligned.warped - fixed).mean() / np.abs(moving - fixed).mean()
assert error < 0.2, f"alignment leaves {error:.0%} of the difference"

deformed = morphseek.register(fixed, moving)  # the default: through the network, so through ONNX Runtime
assert deformed.metrics["model"] != "none", deformed.metrics
assert deformed.displacement.shape == (3, *fixed.shape)

library = ctypes.CDLL(str(Path(morphseek.__file__).parent / "lib" / "libmorphseek.so.1"))
library.ms_version.restype = ctypes.c_char_p
assert library.ms_version().decode() == morphseek.__version__

command = subprocess.run([Path(sys.executable).parent / "morphseek", "--help"], capture_output=True, text=True, check=True)
assert "register" in command.stdout
print(f"morphseek {morphseek.__version__}: aligned to {error:.1%} of the difference; model {deformed.metrics['model']}")
