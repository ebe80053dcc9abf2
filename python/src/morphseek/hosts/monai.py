"""Registration as transforms of MONAI: ``pip install morphseek[monai]``.

:class:`Register` takes tensors, :class:`Registerd` a dictionary. Images are MetaTensors
(1, X, Y, Z) with their affine.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import Registration, errors, images, register
from .._features import missing

try:
    import torch
    from monai.data.meta_tensor import MetaTensor
    from monai.transforms.transform import Transform
except ModuleNotFoundError as error:
    raise missing("monai", error) from None

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .. import Options

_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])  # from LPS, and back


class Register(Transform):
    """Register `moving` onto `fixed`, by the options of :func:`morphseek.register`.

    Examples
    --------
    >>> import torch
    >>> from monai.data import MetaTensor
    >>> import morphseek
    >>> from morphseek.hosts.monai import Register
    >>> body = torch.from_numpy(morphseek.phantom.make_pair(size=32).fixed.float32().T.copy())
    >>> f, m = (MetaTensor(i[None], affine=torch.eye(4)) for i in (body, body.roll(2, 0)))
    >>> out = Register(model="none", refine=0, search=False)(f, m)
    >>> out["warped"].shape == f.shape, out["ddf"].shape == (3, *f.shape[1:])
    (True, True)
    """

    def __init__(self, **options: Unpack[Options]):
        self.options = options

    def __call__(  # type: ignore[override]
        self, fixed: Any, moving: Any, labels: Any = None
    ) -> dict[str, Any]:
        """Return ``warped``, ``ddf`` and, of the moving image's label map, ``labels``.

        Parameters
        ----------
        fixed, moving : ImageLike
            MetaTensors, or anything that :func:`morphseek.register` takes.
        labels : ImageLike, optional
            Label map of the moving image.

        Returns
        -------
        dict
            ``warped`` and ``labels``: MetaTensors (1, X, Y, Z) on the fixed image's grid. ``ddf``:
            float32 (3, X, Y, Z), voxels of the moving image, for ``monai.networks.blocks.Warp``;
            None where the images differ in size, which that block does not take.

        Raises
        ------
        morphseek.errors.MorphSeekError
            An image or an option cannot be used; the registration fails.
        """
        result = register(fixed, moving, **self.options)
        out = {"warped": _meta(result.warped, result.grid), "ddf": None}
        if result.grid.size == result.moving_grid.size:
            out["ddf"] = displacement(result)
        if labels is not None:
            # an array lies on the moving image
            image = images.read_on(labels, result.moving_grid, "moving labels")
            carried = result.apply(image, interpolation="nearest")
            out["labels"] = _meta(carried.array, result.grid)
        return out


class Registerd(Transform):
    """:class:`Register` for dictionaries.

    Parameters
    ----------
    fixed, moving, labels : hashable
        Keys of the images and, if there is one, of the moving image's label map.
    warped, warped_labels, ddf : hashable
        Keys that are written. ``ddf=None`` leaves the displacement out.
    **options : Options
        Of :func:`morphseek.register`.
    """

    def __init__(
        self,
        fixed: Hashable = "fixed",
        moving: Hashable = "moving",
        labels: Hashable | None = None,
        *,
        warped: Hashable = "warped",
        warped_labels: Hashable = "warped_labels",
        ddf: Hashable | None = "ddf",
        **options: Unpack[Options],
    ):
        self.keys = (fixed, moving, labels)
        self.outputs = {"warped": warped, "labels": warped_labels, "ddf": ddf}
        self.register = Register(**options)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the dictionary with what was made."""
        for key in self.keys:
            if key is not None and key not in data:
                raise errors.InvalidArgumentError(
                    f"the dictionary has no {key!r}; it has {', '.join(map(repr, data))}"
                )
        fixed, moving, labels = (None if key is None else data[key] for key in self.keys)
        results = self.register(fixed, moving, labels)
        if self.outputs["ddf"] is not None and results["ddf"] is None:
            raise errors.InvalidArgumentError(
                "the images differ in size, and MONAI's Warp takes no displacement between them;"
                " bring moving to fixed by ResampleToMatchd first, or give ddf=None"
            )
        keys = self.outputs
        return {**data, **{keys[k]: v for k, v in results.items() if keys[k] is not None}}


def displacement(result: Registration) -> Any:
    """Return the displacement as MONAI's ``Warp`` takes it: float32 (3, X, Y, Z), from a voxel of
    the fixed image to the place in the moving image that it shows, in voxels.
    """
    index = np.moveaxis(np.indices(result.grid.shape)[::-1], 0, -1).astype(np.float64)
    shift = result.moving_grid.to_index(result.grid.points() + result.displacement_mm()) - index
    return torch.from_numpy(np.ascontiguousarray(shift.transpose(3, 2, 1, 0), dtype=np.float32))


def _meta(array: np.ndarray, grid: images.Grid) -> Any:
    voxels = torch.from_numpy(np.array(array.T, order="C"))[None]
    affine = torch.from_numpy(_RAS @ grid.index_to_physical)
    return MetaTensor(voxels, affine=affine, meta={"space": "RAS"})
