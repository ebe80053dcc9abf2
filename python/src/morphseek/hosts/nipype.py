"""The command-line module ``MorphSeekRegistration`` (plugin/) as a nipype interface: ``pip install
morphseek[nipype]``.

nipype runs a workflow of such nodes over a cohort on many processes or, by its plugins, on a
cluster's scheduler (SLURM, SGE, Dask). The executable must be on PATH. plugin/examples/cohort.py is
a worked example.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .. import Verdict
from .._features import missing
from ..info import schema

try:
    from nipype.interfaces.base import CommandLine, CommandLineInputSpec, File, TraitedSpec, traits
except ModuleNotFoundError as error:
    raise missing("nipype", error) from None


def _trait(name: str, option: dict[str, Any]) -> Any:
    """Return the trait of an option's schema; left undefined, the engine's default holds."""
    info = {"argstr": f"--{name} %s", "desc": option["description"]}
    if "enum" in option:
        return traits.Enum(*option["enum"], **info)
    ways = option.get("anyOf", ())
    if numbers := [way for way in ways if way.get("type") == "number"]:
        return traits.Either(traits.Enum(*ways[0]["enum"]), _range(numbers[0], float), **info)
    if any(way.get("type") == "boolean" for way in ways):  # the program takes the words
        return traits.Enum(*ways[0]["enum"], **info)
    types = option.get("type", "string")
    if "string" in types:
        return traits.Str(**info)
    return _range(option, int if "integer" in types else float, **info)


def _range(option: dict[str, Any], kind: type, **info: Any) -> Any:
    if "maximum" not in option:
        return (traits.Int if kind is int else traits.Float)(**info)
    return traits.Range(low=kind(option["minimum"]), high=kind(option["maximum"]), **info)


def _input(flag: str, says: str) -> Any:
    return File(exists=True, argstr=f"--{flag} %s", desc=says)


def _output(flag: str, source: str, ending: str, says: str) -> Any:
    """Return the trait of a file that is named after an input."""
    return File(
        argstr=f"--{flag} %s", name_source=source, name_template=f"%s_{ending}",
        keep_extension=False, desc=says,
    )  # fmt: skip


class _Inputs(CommandLineInputSpec):  # type: ignore[misc]
    fixed = File(
        exists=True, mandatory=True, position=0, argstr="%s",
        desc="image onto which the other is brought",
    )  # fmt: skip
    moving = File(
        exists=True, mandatory=True, position=1, argstr="%s",
        desc="image that is brought onto the fixed one",
    )  # fmt: skip
    fixed_mask = _input("fixed-mask", "where not zero, the fixed image counts")
    moving_mask = _input("moving-mask", "where not zero, the moving image counts")
    rigid = _input("rigid", "label map of the fixed image: each label moves as one body")
    moving_labels = _input("moving-labels", "label map to be brought along")
    initial_transform = _input(
        "initial-transform", "where the registration starts, fixed to moving"
    )
    model_directory = traits.Directory(
        exists=True, argstr="--model-directory %s", desc="a further folder of models"
    )
    runtime_library = _input("runtime-library", "the ONNX Runtime library")
    warped = _output(
        "output-volume", "moving", "warped.nii.gz", "the moving image on the fixed grid"
    )
    transform = _output(
        "output-transform", "moving", "transform.h5", "the displacement field, fixed to moving"
    )
    report = _output("report", "moving", "report.json", "what was measured, as JSON")
    warped_labels = _output(
        "output-labels", "moving_labels", "warped.nii.gz", "the moving labels on the fixed grid"
    )


#: The option that a node's n_procs sets, as nipype calls it.
_NAMES = {"threads": "num_threads"}
InputSpec = type(
    "InputSpec",
    (_Inputs,),
    {
        "__doc__": "The module's inputs: files, and the engine's options.",
        # otherwise pickle does not find the class, and workers get their nodes by it
        "__module__": __name__,
        **{
            _NAMES.get(name, name): _trait(name, each)
            for name, each in schema.options()["properties"].items()
        },
    },
)


class OutputSpec(TraitedSpec):  # type: ignore[misc]
    """The module's outputs."""

    warped = File(exists=True, desc="the moving image on the fixed grid")
    transform = File(exists=True, desc="the displacement field, fixed to moving")
    report = File(exists=True, desc="what was measured, as JSON")
    warped_labels = File(
        desc="the moving labels on the fixed grid; undefined without moving labels"
    )
    verdict = traits.Str(
        desc="good; check: look at the result before you use it; failed: do not use it"
    )
    reasons = traits.List(traits.Str, desc="why the verdict is not good")
    estimated_error = traits.Float(
        desc="estimated mean distance of points from where they belong, mm"
    )


class MorphSeekRegistration(CommandLine):  # type: ignore[misc]
    """Register two images by the executable ``MorphSeekRegistration``.

    Examples
    --------
    >>> from morphseek.hosts.nipype import MorphSeekRegistration
    >>> node = MorphSeekRegistration(preset="fast", num_threads=2)
    >>> node.inputs.trait("refine").desc.split(". ")[-1]
    '0 switches them off.'
    """

    _cmd = "MorphSeekRegistration"
    input_spec = InputSpec
    output_spec = OutputSpec

    def _list_outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = super()._list_outputs()
        report = Path(outputs["report"])
        if report.is_file():  # it is asked before the run, too
            verdict = Verdict.of(json.loads(report.read_text(encoding="utf-8")))
            outputs["verdict"] = verdict.grade if verdict else "unknown"
            if verdict:
                outputs["reasons"] = list(verdict.reasons)
                outputs["estimated_error"] = verdict.error_mm
        return outputs
