"""Weights in a bundle: written as float16, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backbones import PolicyBackbone
from .trace import index_of

#: Smaller initialisers stay float32: biases and norms take little space and keep their precision.
MIN_HALF_SIZE = 512


def halve(model: Any) -> None:
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


def bundle_weights(path: str | Path, backbone: PolicyBackbone) -> dict[str, Tensor]:
    """Return the weights in a bundle as float32, for ``backbone.load_state_dict(...,
    strict=False)``.

    Weights that were rounded to float16 for the file stay rounded. A bundle lacks layers that serve
    training only. It has only the rows of a table of relative positions that its size needs; the
    others are taken from ``backbone``.
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
            if mark == "gathered" and index_of(key) in own and values.shape[1] == own[key].shape[1]:
                n = values.shape[-1]
                table = own[key].detach().float().cpu().clone()
                table[own[index_of(key)][:n, :n].cpu()] = values[0].permute(1, 2, 0)
                values = table
            # The exporter may have folded a parameter's reshape into it.
            fits = key in own and values.numel() == own[key].numel()
            weights[key] = values.reshape(own[key].shape) if fits else values
    if not weights:
        raise ValueError(f"{path} is no MorphSeek bundle: it has no weights of a backbone")
    # Integer buffers, such as those that say which voxels are neighbours, are not in the file.
    return {k: v for k, v in own.items() if not v.is_floating_point()} | weights
