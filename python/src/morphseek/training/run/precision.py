"""Decides where bf16 is correct and faster."""

from __future__ import annotations

import logging

import torch
from torch import nn

from ..backbones import PolicyBackbone


class Precision:
    """Whether a network computes in bf16, for each size of grid.

    On CPUs with bf16 instructions oneDNN computes the weight gradient of some convolutions wrongly:
    those of stride 1 whose kernel is longer than the first axis. Grids on which the network has
    such a convolution are computed in float32. So is everything on CPUs without these instructions,
    where bf16 is slower than float32.
    """

    def __init__(self, backbone: PolicyBackbone, amp: str, device: torch.device):
        self._backbone, self._amp, self._device = backbone, amp, device
        self._bf16: dict[tuple[int, ...], bool] = {}

    def __call__(self, size: tuple[int, ...]) -> bool:
        """Whether bf16 is used on a grid of this size (D, H, W)."""
        if self._amp != "bf16" or self._device.type != "cpu":
            return self._amp == "bf16"
        if not computes_in_bf16():
            return False
        if size not in self._bf16:
            self._bf16[size] = not short_convolutions(self._backbone, size)
            if not self._bf16[size] and sum(not good for good in self._bf16.values()) == 1:
                logging.getLogger("morphseek.training").warning(
                    "grid %s: computed in float32, since on a CPU the gradients of run.amp ="
                    " 'bf16' are wrong where a level of the network is only two voxels deep;"
                    " another size along z avoids that",
                    "x".join(map(str, size)),
                )
        return self._bf16[size]


def computes_in_bf16() -> bool:
    """Whether this CPU has instructions for bf16; true if PyTorch cannot tell."""
    find = getattr(torch.cpu, "get_capabilities", None)
    if find is None:
        return True
    capabilities = find()
    # x86-64, and ARM
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


@torch.no_grad()
def short_convolutions(backbone: PolicyBackbone, size: tuple[int, ...]) -> bool:
    """Whether the network, on a grid of this size (D, H, W), has convolutions of stride 1 whose
    kernel is longer than their first axis.
    """
    short = []

    def look(layer: nn.Conv3d, given: tuple[torch.Tensor]) -> None:
        short.append(layer.stride[0] == 1 and 1 < given[0].shape[2] < layer.kernel_size[0])

    hooks = [
        layer.register_forward_pre_hook(look)
        for layer in backbone.modules()
        if isinstance(layer, nn.Conv3d)
    ]
    was_training = backbone.training
    # Dropout would draw random numbers and so change the run.
    backbone.eval()
    try:
        zeros = torch.zeros((1, 1, *size))
        encoded = backbone.state(zeros, zeros)
        backbone.step_field(encoded.mu, encoded)
    finally:
        backbone.train(was_training)
        for hook in hooks:
            hook.remove()
    return any(short)
