"""``morphseek register`` and ``morphseek apply`` as tasks of pydra 1.0: ``pip install
morphseek[pydra]``, Python 3.11.

pydra runs a workflow of such tasks over a cohort, on many processes or on a cluster's scheduler,
and does nothing twice. The command must be on PATH, or the task's ``executable`` says where it is.

>>> from morphseek.hosts.pydra import Register
>>> Register(fixed=".", moving=".", refine=0, threads=2).cmdline.split(" ", 4)[4]
'--refine 0 --threads 2 --out ...'
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .. import Verdict
from .._features import missing
from ..info import schema

os.environ["NO_ET"] = "1"  # pydra would look for updates

try:
    import attrs
    from fileformats.generic import Directory, File, FsObject
    from pydra.compose import shell
    from pydra.utils.typing import MultiInputObj
except ModuleNotFoundError as error:
    raise missing("pydra", error) from None


class NiftiGz(File):  # type: ignore[misc]
    """A file whose ending has two parts: of another, pydra numbers copies before the last one."""

    ext = ".nii.gz"


_FILES = {
    "fixed_mask": "where not zero, the fixed image counts",
    "moving_mask": "where not zero, the moving image counts",
    "rigid_regions": "label map of the fixed image: each label moves as one body",
    "fixed_labels": "label map of the fixed image, for Dice",
    "moving_labels": "label map to be brought along",
    "fixed_landmarks": "points that steer, where landmark_error says how exact they are",
    "moving_landmarks": "the same points in the moving image",
    "initial_transform": "where the registration starts, fixed to moving",
}


def _flag(name: str) -> str:
    """Return how an input stands in the command: of a bare flag pydra leaves out the value 0."""
    return f"--{name.replace('_', '-')} {{{name}}}"


def _option(name: str, option: dict[str, Any]) -> Any:
    """Return the field of an option's schema; None leaves it to the engine's default."""
    ways = option.get("anyOf", [option])
    types = {each for way in ways for each in _listed(way.get("type", "string"))}
    words = [word for way in ways for word in way.get("enum", ())]
    kind: Any = str
    flag, more = _flag(name), dict[str, Any]()
    if "boolean" in types and set(words) == {"on", "off"}:
        flag, kind = f"--{name.replace('_', '-')}", bool
    elif words and "number" in types:  # which the command checks
        kind = str | float
    elif words and not any("pattern" in way for way in ways):
        more["allowed_values"] = words
    elif types & {"integer", "number"}:
        kind = int if "integer" in types else float
    if "maximum" in option:
        within = attrs.validators.and_(
            attrs.validators.ge(option["minimum"]), attrs.validators.le(option["maximum"])
        )
        more["validator"] = attrs.validators.optional(within)
    return shell.arg(
        type=kind | None, default=None, argstr=flag, help=option["description"], **more
    )


def _listed(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def _path(name: str, says: str) -> Any:
    return shell.arg(type=FsObject | None, default=None, argstr=_flag(name), help=says)


def _transform(out: Any) -> File:
    return File(Path(out) / "transform.h5")


def _warped(out: Any) -> NiftiGz:
    return NiftiGz(Path(out) / "warped.nii.gz")


def _report(out: Any) -> File:
    return File(Path(out) / "report.json")


def _warped_labels(out: Any) -> NiftiGz | None:
    path = Path(out) / "warped_labels.nii.gz"
    return NiftiGz(path) if path.is_file() else None


def _judged(out: Any) -> Verdict | None:
    return Verdict.of(json.loads(_report(out).fspath.read_text(encoding="utf-8")))


def _verdict(out: Any) -> str:
    verdict = _judged(out)
    return verdict.grade if verdict else "unknown"


def _reasons(out: Any) -> list[str]:
    verdict = _judged(out)
    return list(verdict.reasons) if verdict else []


def _estimated_error(out: Any) -> float | None:
    verdict = _judged(out)
    return verdict.error_mm if verdict else None


Register = shell.define(
    ["morphseek", "register"],
    name="Register",
    inputs={
        "fixed": shell.arg(
            type=FsObject, position=1, argstr="", help="image onto which the other is brought"
        ),
        "moving": shell.arg(
            type=FsObject, position=2, argstr="", help="image that is brought onto the fixed one"
        ),
        **{name: _path(name, says) for name, says in _FILES.items()},
        **{
            name: _option(name, each)
            for name, each in schema.options()["properties"].items()
            if name != "cache"
        },
    },
    outputs={
        "out": shell.outarg(
            type=Directory, path_template="registered", argstr="--out", help="folder to write"
        ),
        "transform": shell.out(type=File, callable=_transform, help="transform, fixed to moving"),
        "warped": shell.out(
            type=NiftiGz, callable=_warped, help="the moving image on the fixed grid"
        ),
        "report": shell.out(type=File, callable=_report, help="what was measured, as JSON"),
        "warped_labels": shell.out(
            type=NiftiGz | None, callable=_warped_labels, help="the moving labels on the fixed grid"
        ),
        "verdict": shell.out(
            type=str,
            callable=_verdict,
            help="good; check: look at the result before you use it; failed: do not use it",
        ),
        "reasons": shell.out(type=list[str], callable=_reasons, help="why the verdict is not good"),
        "estimated_error": shell.out(
            type=float | None,
            callable=_estimated_error,
            help="estimated mean distance of points from where they belong, mm",
        ),
    },
)
"""Register two images: a task with the engine's options as inputs. What is no input goes to
``append_args``, as ``["--report", "none"]``.
"""

Apply = shell.define(
    ["morphseek", "apply"],
    name="Apply",
    inputs={
        "transform": shell.arg(
            type=MultiInputObj[File],
            argstr="--transform...",
            help="transforms, fixed to moving, in the order in which a point of the reference goes"
            " through them",
        ),
        "image": shell.arg(
            type=FsObject,
            argstr="--input",
            help="image, label map, points, surface or tracts to carry across",
        ),
        "reference": _path("reference", "image whose grid the result gets"),
        "interpolation": shell.arg(
            type=str | None,
            default=None,
            argstr="--interpolation",
            allowed_values=["linear", "cubic", "sinc", "nearest", "label"],
            help="nearest or label for label maps",
        ),
        "background": shell.arg(
            type=float | None,
            default=None,
            argstr=_flag("background"),
            help="value outside the image",
        ),
        "inverse": shell.arg(
            type=bool, default=False, argstr="--inverse", help="use the inverse of the whole"
        ),
        "modulate": shell.arg(
            type=bool, default=False, argstr="--modulate", help="keep sums over regions"
        ),
    },
    outputs={
        "out": shell.outarg(
            type=NiftiGz | File,
            path_template="applied.nii.gz",
            argstr="--out-file",
            help="file to write; what has points needs a name of its own kind, as tracts.trk",
        )
    },
)
"""Carry an image, or what has points, across by transforms."""
