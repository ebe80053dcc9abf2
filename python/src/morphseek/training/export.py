"""Export of a trained network as a bundle: one ONNX file that carries its manifest.

The graph is one refinement step, everything included: it warps the *original* moving image by the
current state, encodes once, draws ``z = mu + tau * sigma * epsilon``, decodes every trajectory,
integrates, composes and scores. A caller keeps fields on its device and runs the graph T times.

============  =========================
====================================================================== input         shape (float32)
meaning
============  =========================
====================================================================== ``fixed``     (1, 1, D, H, W)
normalised image ``moving``    (1, 1, D, H, W)            normalised original moving image, on the
fixed image's network grid ``u_prev``    (1, 3, D, H, W)            current state, voxels, channel c
along array axis c (z, y, x) ``epsilon``   (J, C, d, h, w)            standard normal noise ``tau``
(1,)                       temperature; 0 gives z = mu ``step_view`` (4,) int64                 of
this step: offset along z, y, x, voxels, and 1 where mirrored; only where the network has views
============  =========================
======================================================================

============== =========================
====================================================================== output         shape
(float32)           meaning
============== =========================
====================================================================== ``u``          (J, 3, D, H,
W)           ``phi(x) + u_prev(x + phi(x))`` ``warped``     (J, 1, D, H, W)           moving o (x +
u); 0 outside the moving grid ``reward``     (J,)                      mean local NCC (window 9)
over voxels with fixed > 0, minus NJD in percent ``mu``         (1, C, d, h, w)           mean of
the latent policy ``log_sigma``  (1, C, d, h, w)           its log standard deviation ``njd``
(J,)                      percent of the voxels where ``u`` folds
============== =========================
======================================================================

In the file the step stands in a loop (:mod:`.loop`): one more input, ``steps``, makes one run take
T of them, and the view follows from the step's number.

Weights are stored as float16 and cast to float32 in the graph, so the arithmetic is float32 and the
file half the size. With ``half`` the network's layers work in float16 as well; images, the policy's
heads, and everything about fields (integration, composition, sampling, reward) stay float32: a
coordinate of 200 in float16 is off by up to 0.06 voxel.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .backbones import PolicyBackbone
from .config import Config, Model
from .loop import loop_steps
from .losses import local_ncc_map
from .objective import build_backbone
from .spatial import compose, njd_fraction, warp

__all__ = ["StepGraph", "export_bundle", "graph_sha256", "random_backbone", "read_manifest"]

OPSET = 20
MANIFEST_KEY = "morphseek_manifest"
#: Smaller initialisers stay float32: biases and norms weigh nothing and keep their precision.
MIN_HALF_SIZE = 512
#: Ending of the names of attention's tables of relative positions.
TABLE = "relative_position_bias_table"


class StepGraph(nn.Module):
    """The exported computation; see the module's tables for inputs and outputs.

    Parameters
    ----------
    backbone : PolicyBackbone
    half : bool
        Convert the layers of ``backbone``, but for the heads, to float16.
    """

    def __init__(self, backbone: PolicyBackbone, half: bool = False):
        super().__init__()
        self.backbone = backbone
        self.eval()
        self.dtype = torch.float16 if half else torch.float32
        if half:
            backbone.half()
            for head in (backbone.mu_head, backbone.log_sigma_head) if backbone.heads else ():
                head.float()

    def forward(
        self,
        fixed: Tensor,
        moving: Tensor,
        u_prev: Tensor,
        epsilon: Tensor,
        tau: Tensor,
        step_view: Tensor | None = None,
    ):
        e = self.backbone.state(
            fixed.to(self.dtype), warp(moving, u_prev).to(self.dtype), step_view
        )
        z = e.mu + tau * torch.exp(e.log_sigma) * epsilon
        u = compose(self.backbone.step_field(z.to(self.dtype), e), u_prev)
        warped = warp(moving, u)
        njd = 100.0 * njd_fraction(u)
        return u, warped, label_free_reward(fixed, warped, njd), e.mu, e.log_sigma, njd


def label_free_reward(fixed: Tensor, warped: Tensor, njd: Tensor) -> Tensor:
    """Judge of a trajectory where there are no labels.

    Parameters
    ----------
    fixed : (1, 1, D, H, W)
    warped : (J, 1, D, H, W)
    njd : (J,)
        Percent of the voxels where the trajectory's field folds.

    Returns
    -------
    Tensor of shape (J,)
        Mean local NCC (window 9) over the voxels with ``fixed > 0``, minus the NJD.
    """
    mask = (fixed > 0).to(fixed.dtype)
    ncc = local_ncc_map(fixed, warped)
    mean = (ncc * mask).sum(dim=(1, 2, 3, 4)) / mask.sum().clamp_min(1.0)
    return mean - njd


def random_backbone(model: Model, seed: int) -> PolicyBackbone:
    """The network of a configuration with random weights, as float16 numbers. It moves voxels; a
    fresh one hardly does.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        backbone = build_backbone(model).eval()
        nn.init.normal_(backbone.flow.weight, std=backbone.flow.weight[0].numel() ** -0.5)
        for p in backbone.parameters():
            p.copy_(p.half().float())
    return backbone


def _trace(graph: StepGraph, min_size: tuple[int, int, int], size: tuple[int, int, int] | None):
    """ONNX model of the step graph for one size, or under dynamic sizes. Two trajectories: one
    would be burnt in.
    """
    from torch.export import Dim

    backbone = graph.backbone
    m = backbone.size_multiple
    s = backbone.latent_stride
    spatial, latent_dims = {}, {0: Dim("trajectories", min=2, max=4096)}
    if size is None:
        # Unlike the minimum on every axis, so that nothing is specialised to it.
        size = tuple(m * (n // m + 1 + i) for i, n in enumerate(min_size))
        dims = [
            Dim(name, min=2, max=4096) for name in ("depth_units", "height_units", "width_units")
        ]
        spatial = {i + 2: m * d for i, d in enumerate(dims)}
        latent_dims |= {i + 2: (m // s) * d if m != s else d for i, d in enumerate(dims)}
    latent = backbone.latent_shape(size)
    inputs = {
        "fixed": torch.rand(1, 1, *size),
        "moving": torch.rand(1, 1, *size),
        "u_prev": torch.zeros(1, 3, *size),
        "epsilon": torch.randn(2, *latent),
        "tau": torch.ones(1),
    }
    shapes = {
        "fixed": spatial,
        "moving": spatial,
        "u_prev": spatial,
        "epsilon": latent_dims,
        "tau": {},
    }
    if backbone.views:
        inputs["step_view"], shapes["step_view"] = torch.tensor(backbone.views[0]), {}
    program = torch.onnx.export(
        graph,
        tuple(inputs.values()),
        dynamo=True,
        opset_version=OPSET,
        external_data=False,
        input_names=list(inputs),
        output_names=["u", "warped", "reward", "mu", "log_sigma", "njd"],
        dynamic_shapes=shapes,
        verbose=False,
    )
    return program.model_proto


def _name_folded(model, backbone: PolicyBackbone) -> None:
    """Give parameters that the exporter folded into a constant their names back, marked with what
    happened to them.

    Reshaped ones need no mark. Matrices of linear layers come out as ``NAME__transposed``, and
    tables of relative positions as ``NAME__gathered``, a value for every pair of voxels in a
    window.
    """
    from onnx import numpy_helper

    graph = model.graph
    known = {t.name for t in graph.initializer}
    loose = {
        t.name: numpy_helper.to_array(t)
        for t in graph.initializer
        if not t.name.startswith("backbone.")
    }
    names = {}
    state = backbone.state_dict()
    for key, value in state.items():
        if f"backbone.{key}" in known:
            continue
        own = value.numpy()
        for name, values in loose.items():
            if name in names or values.dtype != own.dtype:
                continue
            if np.array_equal(values.ravel(), own.ravel()):
                names[name] = f"backbone.{key}"
            elif own.ndim == 2 and np.array_equal(values.T, own):
                names[name] = f"backbone.{key}__transposed"
            elif key.endswith(TABLE) and np.array_equal(
                values, _gathered(value, state[_index(key)], values.shape)
            ):
                names[name] = f"backbone.{key}__gathered"
            else:
                continue
            break
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for value in graph.value_info:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)


def _index(key: str) -> str:
    """Name of the buffer that says which row of a table of relative positions belongs to which pair
    of voxels.
    """
    return key.removesuffix(TABLE) + "relative_position_index"


def _gathered(table: Tensor, index: Tensor, shape: Sequence[int]) -> Tensor:
    """The attention bias (1, heads, n, n) of windows with n voxels, from a table (rows, heads);
    empty where ``shape`` is none.
    """
    n = shape[-1] if len(shape) == 4 else 0
    return table[index[:n, :n]].permute(2, 0, 1)[None]


def _halve(model) -> None:
    """Store the large float32 initialisers as float16 behind a Cast."""
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    casts = []
    for index, tensor in enumerate(graph.initializer):
        if tensor.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size < MIN_HALF_SIZE:
            continue
        if np.abs(values).max() > 65000:
            raise ValueError(f"weight {tensor.name} does not fit float16")
        name = tensor.name
        graph.initializer[index].CopyFrom(
            numpy_helper.from_array(values.astype(np.float16), f"{name}__half")
        )
        casts.append(
            helper.make_node(
                "Cast", [f"{name}__half"], [name], f"{name}__cast", to=TensorProto.FLOAT
            )
        )
    for offset, node in enumerate(casts):
        graph.node.insert(offset, node)


def _nodes(graph):
    """Every node of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _check(model) -> None:
    """Refuse a graph that the engine must not run."""
    import onnx
    from onnx import TensorProto

    versions = {o.domain: o.version for o in model.opset_import}
    if versions.get("", 0) < OPSET:
        raise RuntimeError(f"opset {versions.get('')} in the exported graph, {OPSET} is needed")
    for node in _nodes(model.graph):
        if node.domain not in ("", "ai.onnx"):
            raise RuntimeError(f"operator {node.domain}::{node.op_type} is not a standard one")
        if node.op_type == "GridSample":
            modes = [a.s.decode() for a in node.attribute if a.name == "mode"]
            # Opset 18 writes "bilinear" on volumes, which ONNX Runtime then refuses or misreads.
            if modes not in ([], ["linear"]):
                raise RuntimeError(f"GridSample mode {modes} instead of 'linear'")
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise RuntimeError(f"{tensor.name} is stored outside the file")
    if model.functions:
        raise RuntimeError("local functions are left in the graph")
    onnx.checker.check_model(model, full_check=True)


def graph_sha256(path: str | Path) -> str:
    """SHA-256 of the graph as it stands in the file: the raw payload of field 7 of the serialised
    ModelProto.
    """
    data = memoryview(Path(path).read_bytes())
    at, digest = 0, None

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            varint()
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError(f"{path}: truncated")
            if number == 7:
                if digest is not None:
                    raise ValueError(f"{path}: two graphs in one file")
                digest = hashlib.sha256(data[at : at + size]).hexdigest()
            at += size
        else:
            raise ValueError(f"{path}: not an ONNX file")
    if digest is None:
        raise ValueError(f"{path}: no graph in the file")
    return digest


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of a bundle."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    for entry in model.metadata_props:
        if entry.key == MANIFEST_KEY:
            return json.loads(entry.value)
    raise ValueError(f"{path} is no MorphSeek bundle: metadata key {MANIFEST_KEY!r} is missing")


def bundle_weights(path: str | Path, backbone: PolicyBackbone) -> dict[str, Tensor]:
    """The weights in a bundle, float32, as ``backbone.load_state_dict(..., strict=False)`` takes
    them.

    What was rounded to float16 for the file stays so. Layers that serve training only are not in a
    bundle. Of a table of relative positions a bundle has the rows that its size needs; the others
    are ``backbone``'s.
    """
    import onnx
    from onnx import numpy_helper

    own = backbone.state_dict()
    weights = {}
    for tensor in onnx.load(str(path), load_external_data=False).graph.initializer:
        name = tensor.name.removesuffix("__half")
        if name.startswith("backbone."):
            key, _, mark = name.removeprefix("backbone.").partition("__")
            values = torch.from_numpy(numpy_helper.to_array(tensor).astype(np.float32))
            if mark == "transposed":
                values = values.T
            if mark == "gathered" and _index(key) in own and values.shape[1] == own[key].shape[1]:
                n = values.shape[-1]
                table = own[key].detach().float().cpu().clone()
                table[own[_index(key)][:n, :n].cpu()] = values[0].permute(1, 2, 0)
                values = table
            # The exporter may have folded a parameter's reshape into it.
            fits = key in own and values.numel() == own[key].numel()
            weights[key] = values.reshape(own[key].shape) if fits else values
    if not weights:
        raise ValueError(f"{path} is no MorphSeek bundle: it has no weights of a backbone")
    # Which voxels are neighbours is no weight, and not in the file.
    return {k: v for k, v in own.items() if not v.is_floating_point()} | weights


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
        Of its run.
    path
        File to write; it appears complete or not at all.
    metrics : dict, optional
        Goes into the manifest as it is.
    size : (D, H, W), optional
        The only size that the bundle shall run on; any, where it is left out. Transformers need it:
        their windows are laid out for one size.
    half : bool
        float16 layers, for GPUs. CPUs run such a bundle too, in float32.

    Returns
    -------
    dict
        The manifest.
    """
    import copy

    backbone = (
        copy.deepcopy(backbone).cpu().float().eval().to(memory_format=torch.contiguous_format)
    )
    if getattr(backbone, "segmentation_classes", 0):
        del backbone.segmentation_head
        backbone.segmentation_classes = 0
    if size is not None:
        backbone.latent_shape(size)  # refuses a size that is no multiple
    elif not backbone.any_size:
        raise ValueError(
            f"backbone {backbone.name} is exported for one size: give it (--size D,H,W)"
        )
    min_size = config.data.min_size if size is None else size
    model = _trace(StepGraph(backbone, half), min_size, size)
    _name_folded(model, backbone)
    _halve(model)
    # Debug metadata (stack traces of every node) would be a third of the file and would name local
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(model.SerializeToString(deterministic=True))
    try:
        if graph_sha256(temporary) != manifest["sha256"]:
            raise RuntimeError("the graph's bytes in the file are not those that were hashed")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return manifest
