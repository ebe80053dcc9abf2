"""Helpers that the package's tests share beside fixtures: volumes, transforms, the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from click.testing import CliRunner, Result

from morphseek import errors, images
from morphseek._engine.table import for_engine
from morphseek.cli import app
from morphseek.images import Image
from morphseek.phantom import PhantomPair
from pace import limit

BUNDLES = Path(__file__).parents[2] / "engine" / "internal" / "network" / "testdata"
# options of the cheapest registration
QUICK = {"model": "none", "refine": 0, "search": False, "initial": "com"}
FLAGS = [f"--{name}={for_engine(value)}" for name, value in QUICK.items()]  # of the command


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


# a matrix that scales, shears and moves
LINEAR = np.array(
    [[1.05, 0.06, 0.01, 1.5], [-0.04, 0.93, 0.02, -2.0], [0.01, 0.03, 1.02, 1.0], [0, 0, 0, 1]]
)


def affine_of(matrix: Any) -> sitk.AffineTransform:
    """Return SimpleITK's transform of a matrix of three or four rows."""
    matrix = np.asarray(matrix, float)
    return sitk.AffineTransform(matrix[:3, :3].ravel().tolist(), matrix[:3, 3].tolist())


def field_of(displacement: np.ndarray, image: Image) -> sitk.DisplacementFieldTransform:
    """Return SimpleITK's transform of displacements at an image's voxels, mm."""
    field = sitk.GetImageFromArray(displacement.astype(np.float64), isVector=True)
    return sitk.DisplacementFieldTransform(image.grid.place(field))


def bend(image: Image, size: float = 2.0, length: float = 7.0) -> np.ndarray:
    """Return smooth displacements at an image's voxels, mm, that are zero at the border."""
    sines = (np.sin(np.pi * np.arange(n) / (n - 1)) for n in image.array.shape)
    window = np.einsum("i,j,k->ijk", *sines)
    return size * np.sin(image.grid.points() / length + [0, 1, 2]) * window[..., None]


def by_itk(transform: sitk.Transform, points: np.ndarray) -> np.ndarray:
    """Return where SimpleITK's transform brings points."""
    return np.array([transform.TransformPoint(p) for p in np.asarray(points).tolist()])


def field_by_itk(transform: sitk.Transform, image: Image) -> np.ndarray:
    """Return a transform's displacements at an image's voxels, mm, by SimpleITK."""
    grid = image.grid
    how = (grid.size, grid.origin, grid.spacing, grid.direction)
    field = sitk.TransformToDisplacementField(transform, sitk.sitkVectorFloat64, *how)
    return sitk.GetArrayFromImage(field)


def resampled(
    moving: Any, reference: Any, transform: sitk.Transform, how: int = sitk.sitkLinear,
    background: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """Return the voxels that SimpleITK's resampling of an image onto another's grid gives."""
    one, other = (i if isinstance(i, sitk.Image) else i.to_sitk() for i in (moving, reference))
    return sitk.GetArrayFromImage(sitk.Resample(one, other, transform, how, background))


def run(*words: Any, code: int = 0) -> Result:
    """Run the command in this process, and check its exit code."""
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == code, done.output
    return done


def run_json(*words: Any, code: int = 0) -> dict[str, Any]:
    return json.loads(run(*words, "--json", code=code).stdout)


def refused(
    error: type[Exception], says: str, call: Callable[..., Any], /, *arguments: Any, **options: Any
) -> None:
    """Check that a call raises an error whose message has a pattern."""
    with pytest.raises(error, match=says):
        call(*arguments, **options)


unreadable = partial(refused, errors.InputUnreadableError)
invalid = partial(refused, errors.InvalidArgumentError)


def write_pair(folder: Path, pair: PhantomPair) -> dict[str, Path]:
    """Write the images and labels of a pair; return the files by their names."""
    paths = {}
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        paths[name] = folder / f"{name}.nii.gz"
        images.write(paths[name], getattr(pair, name))
    return paths


def write_cine(folder: Path, frames: int, slices: int = 6, leave_out: int = -1) -> list[np.ndarray]:
    """Write a series whose slices come back frame after frame, 1.5 s apart, out of order."""
    folder.mkdir()
    volumes = [(1000 * blob((slices, 16, 20), 0.1 * k)).astype(np.int16) for k in range(frames)]
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    number = 0
    for k, volume in enumerate(volumes):
        for s in range(slices):
            number += 1
            if number == leave_out:
                continue
            image = sitk.GetImageFromArray(volume[s : s + 1])
            image.SetSpacing((2, 2, 3))
            tags = {
                "0008|0060": "MR", "0020|000e": "1.2.3.4", "0020|000d": "1.2.3",
                "0008|0018": f"1.2.3.4.{number}", "0020|0013": str(number),
                "0020|0032": f"-10\\5\\{3 * s}", "0020|0037": "1\\0\\0\\0\\1\\0",
                "0018|1060": str(1500 * k), "0020|0100": str(k + 1),
            }  # fmt: skip
            for key, value in tags.items():
                image.SetMetaData(key, value)
            writer.SetFileName(str(folder / f"{997 * number % 1009:04}.dcm"))
            writer.Execute(image)
    return volumes


class Command:
    """Runs the command with its own cache folder: in this process, which has loaded the libraries,
    or apart, in one of its own. A changed environment takes one of its own, too.
    """

    def __init__(self, cache: Path, *, apart: bool = False):
        self._own = {"XDG_CACHE_HOME": str(cache), "COLUMNS": "160", "NO_COLOR": "1"}
        self._plain = {**os.environ, **self._own}
        self.environment = dict(self._plain)
        self._apart = apart

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

    def __call__(self, *arguments: Any, expect: int = 0, cwd: Path | None = None) -> str:
        if self._apart or self.environment != self._plain:
            process = self.start(*arguments, cwd=cwd)
            out, err = process.communicate(timeout=limit(120))
            code = process.returncode
        else:
            code, out, err = self._here(list(map(str, arguments)), cwd)
        assert code == expect, f"exit code {code}, not {expect}\n{out}\n{err}"
        return out + err

    def _here(self, words: list[str], cwd: Path | None) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["morphseek", *words])
            if cwd is not None:
                patch.chdir(cwd)
            runner = CliRunner(env=self._own)
            done = runner.invoke(app, words, prog_name="morphseek")
        said = done.stderr
        if done.exception and not isinstance(done.exception, SystemExit):
            said += "".join(traceback.format_exception(done.exception))
        return done.exit_code, done.stdout, said

    def json(self, *arguments: Any, expect: int = 0) -> dict[str, Any]:
        return json.loads(self(*arguments, "--json", expect=expect).strip().splitlines()[-1])
