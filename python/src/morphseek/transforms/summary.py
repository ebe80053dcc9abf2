"""Describe a transform, and find its faults."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import SimpleITK as sitk

from .._engine import bindings
from .._grid import Grid
from .linear import linear_part
from .parts import field_on, grid_of_field, is_field, matrix_of, parts_of, vectors_of

_RIGID = 1e-4  # by how much scales may differ from one, and axes from right angles


def fault(transform: sitk.Transform) -> str:
    """Return what makes a 3-D transform useless, as what follows its name in a sentence; or ""."""
    for part in parts_of(transform):
        if is_field(part):
            image = sitk.DisplacementFieldTransform(part).GetDisplacementField()
            vectors = sitk.GetArrayViewFromImage(image)
            if not np.isfinite(vectors.sum()):
                wrong = int((~np.isfinite(vectors).all(axis=-1)).sum())
                return f"has no number (NaN or Inf) as displacement of {wrong} voxels; make it anew"
        elif not np.isfinite([*part.GetParameters(), *part.GetFixedParameters()]).all():
            return "has parameters that are no numbers (NaN or Inf); make it anew"
        elif part.IsLinear():
            matrix = linear_part(part)[:3, :3]
            if abs(np.linalg.det(matrix)) < 1e-12:
                return (
                    f"has the matrix {matrix.round(6).tolist()}, which is singular: it maps space"
                    " to a plane; correct it"
                )
    return ""


def summary(transform: sitk.Transform, grid: Grid | None) -> dict[str, Any]:
    """Return what :meth:`Transform.summary` does."""
    parts = parts_of(transform)
    linear = [part for part in parts if part.IsLinear()]
    facts: dict[str, Any] = {
        "kind": _kind(matrix_of(parts)) if len(linear) == len(parts) else "deformable",
        "parts": [_named(part) for part in reversed(parts)],
        "space": "LPS, mm",
    }
    if linear:
        facts["linear"] = _matrix(matrix_of(linear))
    if grid is None:
        return facts
    facts["grid"] = {key: list(value) for key, value in dataclasses.asdict(grid).items()}
    field = bindings.from_mm(field_on(transform, grid), grid)
    facts.update(bindings.regularity(field, grid))
    if parts and is_field(parts[-1]):
        lengths = np.linalg.norm(vectors_of(parts[-1])[0], axis=-1)
        lengths[tuple(slice(1, -1) if n > 1 else slice(None) for n in lengths.shape)] = 0
        facts["border_mm"] = float(lengths.max())  # the longest one where the field ends
    return facts


def _named(part: sitk.Transform) -> str:
    if not is_field(part):
        return str(part.GetName())
    grid = grid_of_field(part)
    size, spacing = (" x ".join(f"{v:g}" for v in a) for a in (grid.size, grid.spacing))
    return f"{part.GetName()}, {size} vectors of {spacing} mm"


def _matrix(matrix: np.ndarray) -> dict[str, Any]:
    a = matrix[:3, :3]
    u, scales, v = np.linalg.svd(a)
    rotation = u @ v * np.sign(np.linalg.det(u @ v))
    angle = np.degrees(np.arccos(np.clip((np.trace(rotation) - 1) / 2, -1, 1)))
    return {
        "matrix": matrix.tolist(),
        "determinant": float(np.linalg.det(a)),
        "rotation_degrees": float(angle),
        "scales": scales.tolist(),
        "translation_mm": matrix[:3, 3].tolist(),
    }


def _kind(matrix: np.ndarray) -> str:
    a = matrix[:3, :3]
    if np.allclose(a, np.eye(3), atol=1e-9):
        return "identity" if np.allclose(matrix[:3, 3], 0, atol=1e-9) else "translation"
    scales = np.linalg.svd(a, compute_uv=False)
    if np.ptp(scales) > _RIGID:
        return "affine"
    mirrored = " with a mirror" if np.linalg.det(a) < 0 else ""
    return ("rigid" if abs(scales[0] - 1) < _RIGID else "similarity") + mirrored


def rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a summary as what a person reads: names and values."""
    lines = [("kind", facts["kind"]), ("space", facts["space"])]
    lines += [("parts" if not k else "", name) for k, name in enumerate(facts["parts"])]
    if of := facts.get("linear"):
        lines += [
            ("rotation", f"{of['rotation_degrees']:.2f} degrees"),
            ("scales", ", ".join(f"{s:.4f}" for s in of["scales"])),
            ("translation", ", ".join(f"{t:.2f}" for t in of["translation_mm"]) + " mm"),
        ]
    if grid := facts.get("grid"):
        size, spacing = (" x ".join(f"{v:g}" for v in grid[key]) for key in ("size", "spacing"))
        middle = ", ".join(f"{v:.1f}" for v in Grid(**grid).center)
        most, mean = facts["displacement_max_mm"], facts["displacement_mean_mm"]
        lines += [
            ("grid", f"{size} voxels of {spacing} mm around {middle}"),
            ("displacement", f"{most:.2f} mm at most, {mean:.2f} mm on average"),
            ("Jacobian", f"{facts['jacobian_min']:.3f} to {facts['jacobian_max']:.3f}"),
            ("folding (NJD)", f"{facts['njd_percent']:.4f} %"),
        ]
    if facts.get("border_mm", 0) > 0:
        border = f"up to {facts['border_mm']:.2f} mm; ITK's readers take none beyond it"
        lines.append(("at the border", border))
    return lines
