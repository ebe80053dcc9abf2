"""Writing a bundle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from ..._shared import replacing
from ..backbones import PolicyBackbone
from ..config.schema import Config
from .manifest import MANIFEST_KEY, read_manifest
from .onnx_loop import loop_steps
from .step_graph import StepGraph
from .trace import name_folded, nodes_of, trace
from .weights import halve


def _check(model: Any) -> None:
    """Refuse a graph that ONNX Runtime cannot run; the engine checks the rest."""
    import onnx

    for node in nodes_of(model.graph):
        if node.op_type == "GridSample":
            modes = [a.s.decode() for a in node.attribute if a.name == "mode"]
            # Opset 18 writes "bilinear" for volumes, which ONNX Runtime refuses or misreads.
            if modes not in ([], ["linear"]):
                raise RuntimeError(f"GridSample mode {modes} instead of 'linear'")
    onnx.checker.check_model(model, full_check=True)


def export_bundle(
    backbone: PolicyBackbone,
    config: Config,
    path: str | Path,
    metrics: dict[str, Any] | None = None,
    size: tuple[int, int, int] | None = None,
    half: bool = False,
) -> dict[str, Any]:
    """Write a bundle.

    Parameters
    ----------
    backbone : PolicyBackbone
        The trained network. Layers that serve training only are not written.
    config : Config
        The configuration of its run.
    path
        File to write; it appears complete or not at all.
    metrics : dict, optional
        Goes into the manifest as it is.
    size : (D, H, W), optional
        The only size that the bundle shall run on; by default any. Transformers need it, because
        their windows are laid out for one size.
    half : bool
        Use float16 layers, for GPUs. CPUs run such a bundle in float32.

    Returns
    -------
    dict
        The manifest.
    """
    import copy

    backbone = (
        copy.deepcopy(backbone).cpu().float().eval().to(memory_format=torch.contiguous_format)
    )
    backbone.drop_training_only()
    if size is not None:
        backbone.latent_shape(size)  # refuses a size that is no multiple
    elif not backbone.any_size:
        raise ValueError(
            f"backbone {backbone.name} is exported for one size: give it (--size D,H,W)"
        )
    min_size = config.data.min_size if size is None else size
    d, h, w = min_size
    model = trace(StepGraph(backbone, half), (d, h, w), size)
    name_folded(model, backbone)
    halve(model)
    # Debug metadata (a stack trace of every node) would take a third of the file and contain local
    # paths.
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
        *model.graph.initializer,
    ):
        del value.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    model.producer_name = "morphseek"
    loop_steps(model, backbone.views)
    _check(model)
    b = config.bundle
    manifest = {
        "format": 1,
        "name": b.name or Path(path).stem,
        "version": b.version,
        "backbone": config.model.backbone,
        "latent": {"channels": backbone.latent_channels, "stride": backbone.latent_stride},
        "size_multiple": backbone.size_multiple,
        "min_size": list(min_size),
        "size": None if size is None else list(size),
        "precision": "float16" if half else "float32",
        "spacing_mm": list(config.data.spacing),
        "intensity": {
            "method": "percentile",
            "low": config.data.percentiles[0],
            "high": config.data.percentiles[1],
            "out": [0, 1],
            "background": 0,
        },
        "modality": b.modality,
        "initial": b.initial,
        "steps": config.run.val_steps,
        "parametrisation": config.model.parametrisation,
        "training_data": [dataclasses.asdict(source) for source in b.training_data],
        "licence": b.licence,
        "credit": b.credit,
        "metrics": metrics or {},
        "parameters": backbone.parameter_count(),
    }
    manifest["sha256"] = hashlib.sha256(
        model.graph.SerializeToString(deterministic=True)
    ).hexdigest()
    entry = model.metadata_props.add()
    entry.key, entry.value = MANIFEST_KEY, json.dumps(manifest, ensure_ascii=False, sort_keys=True)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
        read_manifest(temporary)
    return manifest
