"""From a network to an ONNX model with named weights."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backbones import PolicyBackbone
from .step_graph import StepGraph

OPSET = 20
#: Ending of the names of the attention's tables of relative positions.
TABLE = "relative_position_bias_table"


def trace(
    graph: StepGraph, min_size: tuple[int, int, int], size: tuple[int, int, int] | None
) -> Any:
    """Return the ONNX model of the step graph for one size or for any. It is traced with two
    trajectories: a single one would become a constant of the graph.
    """
    from torch.export import Dim

    backbone = graph.backbone
    m = backbone.size_multiple
    s = backbone.latent_stride
    spatial: dict[int, Any] = {}
    latent_dims: dict[int, Any] = {0: Dim("trajectories", min=2, max=4096)}
    if size is None:
        # Other than the minimum on every axis, so that the graph is not specialised to it.
        d, h, w = (m * (n // m + 1 + i) for i, n in enumerate(min_size))
        size = d, h, w
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
    shapes: dict[str, dict[int, Any]] = {
        "fixed": spatial,
        "moving": spatial,
        "u_prev": spatial,
        "epsilon": latent_dims,
        "tau": {},
    }
    if backbone.views:
        inputs["step_view"], shapes["step_view"] = torch.tensor(backbone.views[0]), {}
    # what it does not need, it tells the user that it lacks
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The inputs share their axes, so the exporter warns that axes are named more than once.
        warnings.filterwarnings("ignore", "# The axis name: .* will not be used")
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
    assert program is not None  # as always with dynamo=True
    return program.model_proto


def name_folded(model: Any, backbone: PolicyBackbone) -> None:
    """Restore the names of parameters that the exporter folded into constants, with an ending that
    says how they changed.

    Reshaped ones get no ending. Matrices of linear layers become ``NAME__transposed``, and tables
    of relative positions ``NAME__gathered``, with one value for every pair of voxels in a window.
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
                values, _gathered(value, state[index_of(key)], values.shape)
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


def index_of(key: str) -> str:
    """Return the name of the buffer that says which row of a table of relative positions belongs to
    which pair of voxels.
    """
    return key.removesuffix(TABLE) + "relative_position_index"


def _gathered(table: Tensor, index: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the attention bias (1, heads, n, n) of windows with n voxels, from a table (rows,
    heads); empty if ``shape`` is not that of a bias.
    """
    n = shape[-1] if len(shape) == 4 else 0
    return table[index[:n, :n]].permute(2, 0, 1)[None]


def nodes_of(graph: Any) -> Iterator[Any]:
    """Return every node of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)
