"""What a backbone is: an encoder-decoder opened at its top feature by a Gaussian policy.

A registration network predicts ``field = D(E(fixed, moving))``. :class:`PolicyBackbone` cuts it at
the top encoder feature ``f_L``: two 1x1x1 convolutions read the mean and the log standard deviation
of a factorised Gaussian from it, a latent ``z`` is drawn, and the decoder continues from ``z`` in
place of ``f_L``.

To add a backbone, write one file: subclass :class:`PolicyBackbone`, set the class attributes,
implement :meth:`~PolicyBackbone.encode` and :meth:`~PolicyBackbone.decode`, and decorate the class
with :func:`register`. In a package of your own, name the module in its metadata, and
``model.backbone = "mine"`` finds it::

    [project.entry-points."morphseek.backbones"]
    mine = "my_package.my_module"
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from ..spatial import from_view, integrate_velocity, to_view, upsample_field

__all__ = ["BACKBONES", "Encoded", "PolicyBackbone", "SplitConv", "build", "prepare", "register"]

GROUP = "morphseek.backbones"  # the group of the entry points


class _Registry(dict[str, "type[PolicyBackbone]"]):
    """Backbones by name; one that is missing is searched for among the entry points."""

    def __missing__(self, name: str) -> type[PolicyBackbone]:
        for point in importlib.metadata.entry_points(group=GROUP, name=name):
            entry = point.load()  # the class, or a module that registers it
            if isinstance(entry, type) and name not in self:
                register(name)(entry)
            if name in self:
                return self[name]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


BACKBONES = _Registry()


def register(name: str) -> Callable[[type[PolicyBackbone]], type[PolicyBackbone]]:
    """Class decorator: make a backbone available to configs under ``name``."""

    def add(cls: type[PolicyBackbone]) -> type[PolicyBackbone]:
        BACKBONES[name] = cls
        cls.name = name
        return cls

    return add


def build(name: str, **options: Any) -> PolicyBackbone:
    """Make the backbone registered under ``name``; ``options`` go to its constructor."""
    backbone = BACKBONES.get(name)
    if backbone is None:
        further = {point.name for point in importlib.metadata.entry_points(group=GROUP)}
        raise ValueError(
            f"unknown backbone {name!r}; known: {', '.join(sorted(further | BACKBONES.keys()))}"
        )
    return backbone(**options)


def known(ability: str) -> list[str]:
    """Return the names of the registered backbones whose class attribute `ability` is true."""
    return sorted(name for name, backbone in BACKBONES.items() if getattr(backbone, ability))


@dataclass
class Encoded:
    """The result of one pass of the encoder, for any number of trajectories.

    Attributes
    ----------
    mu, log_sigma : (B, C_L, d, h, w)
        Parameters of the latent policy, float32.
    skips : tuple of Tensors
        What the decoder needs besides ``z``: the results of its convolutions' skip halves.
    view : sequence of 4 int, or Tensor of shape (4,), optional
        How the encoder saw the images, see :meth:`PolicyBackbone.view`; undone for the field.
    """

    mu: Tensor
    log_sigma: Tensor
    skips: tuple[Tensor, ...]
    view: Sequence[int] | Tensor | None = None


class SplitConv(nn.Module):
    """``conv(cat(up, skip))`` as ``conv_up(up) + conv_skip(skip)``.

    Convolution is linear, so the halves of its kernel that read the skip connection can be applied
    once per state and added to each trajectory's own half: with J trajectories the skip half costs
    1/J.

    Parameters
    ----------
    up, skip, out : int
        Channels of the upsampled input, of the skip connection and of the result.
    """

    def __init__(self, up: int, skip: int, out: int):
        super().__init__()
        self.up = nn.Conv3d(up, out, 3, padding=1)
        self.skip = nn.Conv3d(skip, out, 3, padding=1, bias=False)

    def prepare(self, skip: Tensor) -> Tensor:
        """Apply the skip half, (B, out, ...). Run it once per state."""
        return self.skip(skip)

    def forward(self, up: Tensor, prepared: Tensor) -> Tensor:
        """Add a trajectory's half to a prepared skip half; if ``prepared`` has a batch of one, it
        serves all trajectories.
        """
        return self.up(up) + prepared


def prepare(merges: nn.ModuleList, skips: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Apply the skip halves of a decoder's :class:`SplitConv`, one for each level."""
    levels = cast("Iterable[SplitConv]", merges)
    return tuple(merge.prepare(skip) for merge, skip in zip(levels, skips, strict=True))


def _pointwise(conv: nn.Conv3d, x: Tensor) -> Tensor:
    """Apply a 1x1x1 convolution as a matrix product; PyTorch's float32 convolution of one volume on
    one thread is slow.
    """
    weight = conv.weight.reshape(conv.out_channels, conv.in_channels)
    assert conv.bias is not None  # for the type checker
    return torch.einsum("oc,bcdhw->bodhw", weight, x) + conv.bias.view(1, -1, 1, 1, 1)


def _views(
    offsets: Sequence[Sequence[int]], mirrored: Sequence[bool]
) -> tuple[tuple[int, int, int, int], ...]:
    """Return the views of the shortest period of steps after which both lists repeat; none if both
    are empty.
    """
    if not offsets and not mirrored:
        return ()
    offsets, mirrored = offsets or [(0, 0, 0)], mirrored or [False]
    period = math.lcm(len(offsets), len(mirrored))
    moved = [(z, y, x) for z, y, x in offsets]
    return tuple((*moved[t % len(moved)], int(mirrored[t % len(mirrored)])) for t in range(period))


class PolicyBackbone(nn.Module):
    """Encoder-decoder with a Gaussian latent policy at the top feature.

    Parameters
    ----------
    scale : float
        ``mu = scale * tanh(W_mu f_L)``.
    log_sigma_range : (float, float)
        Clip of ``log sigma``. The clip stops the gradient at its bounds.
    log_sigma_init : float
        Initial bias of the log-sigma head. The paper leaves it at 0, so that sigma is 1 after
        warm-up (only the KL term trains it there) and the noise is the temperature itself.
    parametrisation : {"velocity", "displacement"}
        What the decoder's three channels are: a stationary velocity, integrated by scaling and
        squaring (folds almost never), or the displacement itself (the paper).
    squarings : int
        Scaling-and-squaring steps.
    heads : bool
        Without the heads the latent is ``f_L`` itself and sigma is 1: the plain network, to measure
        what the heads cost.
    offsets : sequence of (z, y, x)
        By how many voxels the images are shifted for the network, in each step in turn; the step's
        field is shifted back. A network with strides of 2 to 8 reads an image a little differently
        when it is shifted by a voxel. Steps with different shifts correct each other's errors;
        steps with the same one repeat them. Empty: never shifted.
    mirrored : sequence of bool
        Whether the network sees the images mirrored left to right (along x), in each step in turn,
        for the same reason; the step's field is mirrored back. The network must have been trained
        on mirrored pairs. Empty: never.

    Attributes
    ----------
    name : str
        Set by :func:`register`.
    latent_channels, latent_stride : int
        Channels of ``f_L`` and its stride against the image grid.
    size_multiple : int
        Image sizes must be multiples of this.
    any_size : bool
        Whether one exported graph serves every size.
    field_stride : int
        1 if the decoder ends at full resolution, 2 if at half of it (the field is then upsampled
        linearly).
    can_segment : bool
        Whether it takes ``segmentation_classes`` and has ``step_field_and_segmentation``.
    can_pretrain : bool
        Whether it has ``segment``, which labels single images.
    training_only : tuple of str
        Attributes that serve training only: they are not exported, and weights may lack them.
    """

    name: ClassVar[str] = ""
    can_segment: ClassVar[bool] = False
    can_pretrain: ClassVar[bool] = False
    training_only: ClassVar[tuple[str, ...]] = ()
    latent_channels: int
    latent_stride: int
    size_multiple: int
    any_size: bool = True
    field_stride: int = 1

    def __init__(
        self,
        scale: float = 10.0,
        log_sigma_range: tuple[float, float] = (-10.0, 3.0),
        log_sigma_init: float = 0.0,
        parametrisation: str = "velocity",
        squarings: int = 7,
        heads: bool = True,
        offsets: Sequence[Sequence[int]] = (),
        mirrored: Sequence[bool] = (),
    ):
        super().__init__()
        if parametrisation not in ("velocity", "displacement"):
            raise ValueError(
                f"parametrisation must be 'velocity' or 'displacement', not {parametrisation!r}"
            )
        self.scale = float(scale)
        self.log_sigma_range = (float(log_sigma_range[0]), float(log_sigma_range[1]))
        self.log_sigma_init = float(log_sigma_init)
        self.parametrisation = parametrisation
        self.squarings = int(squarings)
        self.heads = bool(heads)
        self.set_views(offsets, mirrored)

    def add_heads(self) -> None:
        """Append the two 1x1x1 heads; a subclass calls this at the end of its constructor."""
        if not self.heads:
            return
        c = self.latent_channels
        self.mu_head = nn.Conv3d(c, c, 1)
        self.log_sigma_head = nn.Conv3d(c, c, 1)
        assert self.mu_head.bias is not None and self.log_sigma_head.bias is not None
        # Small weights keep tanh in its linear range and sigma near its initial value at the start.
        nn.init.normal_(self.mu_head.weight, std=1.0 / (self.scale * c**0.5))
        nn.init.zeros_(self.mu_head.bias)
        nn.init.normal_(self.log_sigma_head.weight, std=1e-3)
        nn.init.constant_(self.log_sigma_head.bias, self.log_sigma_init)

    def add_flow(self, channels: int, std: float) -> None:
        """Append the decoder's last convolution, to three components. Its initial weights are
        small, so that training starts near the identity.
        """
        self.flow = nn.Conv3d(channels, 3, 3, padding=1)
        assert self.flow.bias is not None
        nn.init.normal_(self.flow.weight, std=std)
        nn.init.zeros_(self.flow.bias)

    # -- what a backbone implements ----------------------------------------------------------------

    def encode(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the top feature ``f_L`` (B, C_L, d, h, w) and the decoder's prepared skips."""
        raise NotImplementedError

    def decode(self, z: Tensor, skips: tuple[Tensor, ...]) -> Tensor:
        """Return the three-channel output (J, 3, D/s, H/s, W/s), s = ``field_stride``, from latents
        (J, C_L, d, h, w).
        """
        raise NotImplementedError

    def step_field_and_segmentation(self, z: Tensor, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Return :meth:`step_field` and the auxiliary logits, (1, 2, K + 1, D, H, W), of the fixed
        image and of the warped moving one. Only if :attr:`can_segment`.
        """
        raise NotImplementedError

    def segment(self, images: Tensor) -> Tensor:
        """Return the logits of the labels of single images (B, 1, D, H, W): (B, K + 1, D, H, W).
        Only if :attr:`can_pretrain`.
        """
        raise NotImplementedError

    # -- what the rest of the package calls --------------------------------------------------------

    def set_views(self, offsets: Sequence[Sequence[int]], mirrored: Sequence[bool]) -> None:
        """Set how the steps see the images, as by the constructor. The weights are unchanged."""
        if any(len(offset) != 3 for offset in offsets):
            raise ValueError(f"offsets must have three numbers each, not {offsets}")
        self.views = _views(offsets, mirrored)

    def view(self, step: int) -> tuple[int, int, int, int] | None:
        """Return how a step (from 0) sees the images: the shift in voxels along z, y, x, and 1 if
        they are mirrored first; None: unchanged.
        """
        return self.views[step % len(self.views)] if self.views else None

    def state(
        self, fixed: Tensor, moving: Tensor, view: Sequence[int] | Tensor | None = None
    ) -> Encoded:
        """Run the encoder and the heads once.

        Parameters
        ----------
        fixed, moving : (B, 1, D, H, W)
            Normalised images on one grid; ``moving`` is already warped by the current state.
        view
            From :meth:`view`.
        """
        if view is not None:
            fixed, moving = to_view(fixed, view), to_view(moving, view)
        f_l, skips = self.encode(fixed, moving)
        # The heads run in float32: log-likelihoods sum tens of thousands of terms of mu and sigma.
        with torch.autocast(device_type=f_l.device.type, enabled=False):
            f_l = f_l.float()
            if not self.heads:
                return Encoded(f_l, torch.zeros_like(f_l), skips, view)
            mu = torch.tanh(_pointwise(self.mu_head, f_l)) * self.scale
            log_sigma = torch.clamp(_pointwise(self.log_sigma_head, f_l), *self.log_sigma_range)
        return Encoded(mu, log_sigma, skips, view)

    def step_field(self, z: Tensor, encoded: Encoded) -> Tensor:
        """Return the step's displacement ``phi`` on the full grid.

        Parameters
        ----------
        z : (J, C_L, d, h, w)
            Latents, one per trajectory.
        encoded
            From :meth:`state`.

        Returns
        -------
        Tensor of shape (J, 3, D, H, W)
            Voxels, float32.
        """
        return self.finish_field(self.decode(z, encoded.skips), encoded.view)

    def finish_field(self, raw: Tensor, view: Sequence[int] | Tensor | None = None) -> Tensor:
        """Integrate and upsample the decoder's output (J, 3, D/s, H/s, W/s) and undo its view:
        ``phi`` (J, 3, D, H, W), voxels.
        """
        with torch.autocast(device_type=raw.device.type, enabled=False):
            # Fields are always float32: in 16 bits coordinates are off by up to whole voxels.
            field = raw.float()
            if self.parametrisation == "velocity":
                field = integrate_velocity(field, self.squarings)
            if self.field_stride == 2:
                field = upsample_field(field)
            if view is not None:
                field = from_view(field, view)
        return field

    def drop_training_only(self) -> None:
        """Remove the layers that serve training only, before an export."""
        for name in self.training_only:
            if hasattr(self, name):
                delattr(self, name)

    def latent_shape(self, size: tuple[int, int, int]) -> tuple[int, int, int, int]:
        """Return (C_L, d, h, w) for an image of ``size`` = (D, H, W)."""
        for n in size:
            if n % self.size_multiple:
                raise ValueError(
                    f"image size {tuple(size)} is not a multiple of {self.size_multiple}"
                )
        d, h, w = (n // self.latent_stride for n in size)
        return self.latent_channels, d, h, w

    def parameter_count(self) -> int:
        """Return the number of parameters of the whole network, the heads included."""
        return sum(p.numel() for p in self.parameters())

    def head_parameter_count(self) -> int:
        """Return the number of parameters of the two heads."""
        if not self.heads:
            return 0
        return sum(p.numel() for h in (self.mu_head, self.log_sigma_head) for p in h.parameters())
