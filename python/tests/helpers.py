"""Helpers that the package's tests share beside fixtures: small volumes and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from morphseek import images
from morphseek._engine.table import for_engine
from morphseek.images import Image
from morphseek.phantom import PhantomPair
from pace import limit

BUNDLES = Path(__file__).parents[2] / "engine" / "internal" / "network" / "testdata"
# options of the cheapest registration
QUICK = {"model": "none", "refine": 0, "search": False, "initial": "com"}
FLAGS = [f"--{name}={for_engine(name, value)}" for name, value in QUICK.items()]  # of the command


class _Tensor:
    """What all tensors have."""

    def __init__(self, array: np.ndarray):
        self._array, self.shape = array, array.shape

    def __iter__(self) -> Iterator[Any]:
        return (type(self)(part) for part in self._array)

    def __len__(self) -> int:
        return len(self._array)


class ArrayTensor(_Tensor):
    """A tensor that numpy reads, as JAX's."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._array if dtype is None else self._array.astype(dtype)


class GradientTensor(ArrayTensor):
    """One that numpy reads once it is detached, as PyTorch's with a gradient."""

    def detach(self) -> ArrayTensor:
        return ArrayTensor(self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


class DLPackTensor(_Tensor):
    """One that hands over its memory by DLPack alone."""

    def __dlpack__(self, **how: Any) -> Any:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


TENSORS = (ArrayTensor, GradientTensor, DLPackTensor)


def oblique(array: np.ndarray) -> Image:
    """Return an image on an oblique, anisotropic grid."""
    a, b = 0.3, -0.2
    rz = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    rx = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    return Image(array, (0.8, 1.3, 2.5), (-31.0, 12.5, 7.0), tuple((rz @ rx).ravel().tolist()))


def blob(
    shape: tuple[int, int, int] = (20, 24, 28), shift: float = 0.0, noise: float = 0.01
) -> np.ndarray:
    """Return a smooth body with a smaller one in it, float32."""
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    body = np.exp(-((x - shift) ** 2 + 2 * y**2 + 1.5 * z**2) / 0.2) + 0.5 * np.exp(
        -((x - shift - 0.3) ** 2 + y**2 + (z - 0.2) ** 2) / 0.02
    )
    return (body + np.random.default_rng(5).normal(0, noise, shape)).astype(np.float32)


def write_pair(folder: Path, pair: PhantomPair) -> dict[str, Path]:
    """Write the images and labels of a pair; return the files by their names."""
    paths = {}
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        paths[name] = folder / f"{name}.nii.gz"
        images.write(paths[name], getattr(pair, name))
    return paths


class Command:
    """Runs ``python -m morphseek`` with its own cache folder."""

    def __init__(self, cache: Path):
        self.environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "COLUMNS": "160",
            "NO_COLOR": "1",
        }

    def start(self, *arguments: Any, **how: Any) -> subprocess.Popen:
        command = [sys.executable, "-m", "morphseek", *map(str, arguments)]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **how,
        )

    def __call__(self, *arguments: Any, expect: int = 0, **how: Any) -> str:
        process = self.start(*arguments, **how)
        out, err = process.communicate(timeout=limit(120))
        assert process.returncode == expect, (
            f"exit code {process.returncode}, not {expect}\n{out}\n{err}"
        )
        return out + err

    def json(self, *arguments: Any, expect: int = 0) -> dict[str, Any]:
        return json.loads(self(*arguments, "--json", expect=expect).strip().splitlines()[-1])
