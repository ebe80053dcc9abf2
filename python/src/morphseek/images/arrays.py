"""Arrays, of numpy and of others: they have voxels and no place in space."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard

import numpy as np

from .. import errors

_CPU = (1, 3)  # DLPack's devices whose memory the CPU reads: its own, and what CUDA pinned of it


class Tensor(Protocol):
    """A tensor of PyTorch or another library, as far as it is needed here."""

    @property
    def shape(self) -> Any: ...

    def __array__(self) -> Any: ...


def is_placed(source: Any) -> bool:
    """Whether it is an image of nibabel, MONAI, itk or xarray, which knows where it lies."""
    knows = hasattr(source, "affine") or hasattr(source, "GetLargestPossibleRegion")
    return knows or has_axes(source)


def has_axes(source: Any) -> bool:
    """Whether it is a DataArray of xarray with axes that somebody named."""
    names = map(str, getattr(source, "dims", ()) if hasattr(source, "coords") else ())
    return not all(name.startswith("dim_") for name in names)


def is_array(source: Any) -> TypeGuard[np.ndarray | Tensor]:
    """Whether it is a numpy array or a tensor (DLPack, ``__array__``): it has no geometry."""
    if isinstance(source, np.ndarray):
        return True
    shares = hasattr(source, "__dlpack__") or hasattr(source, "__array__")
    return shares and hasattr(source, "shape") and not is_placed(source)


def as_array(source: Any, name: str) -> np.ndarray:
    """Return numpy's array, shared where it can be, NaN where masked; refuse a GPU's memory."""
    if isinstance(source, np.ndarray):
        return _unmasked(source) if hasattr(source, "filled") else source
    if hasattr(source, "detach"):  # of PyTorch, which hands over nothing that has a gradient
        source = source.detach()
    try:
        if hasattr(source, "__dlpack_device__") and source.__dlpack_device__()[0] not in _CPU:
            raise errors.InvalidArgumentError(
                f"{name} is a tensor on a GPU or another device; give a copy in the CPU's memory,"
                " tensor.cpu()"
            )
        return np.asarray(source) if hasattr(source, "__array__") else np.from_dlpack(source)
    except errors.InvalidArgumentError:
        raise
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise errors.InvalidArgumentError(
            f"{name}: the {type(source).__name__} cannot be read as an array ({error}); give a"
            " numpy array, such as of float32"
        ) from None


def is_masked(source: Any) -> bool:
    """Whether it is a masked array that hides something; ``numpy.ma`` is slow to load."""
    return isinstance(source, np.ndarray) and bool(np.any(getattr(source, "mask", False)))


def _unmasked(source: Any) -> np.ndarray:
    if not is_masked(source):
        return np.asarray(source.data)
    if source.dtype.kind in "biu":
        source = source.astype(np.float32 if source.dtype.itemsize < 4 else np.float64)
    return np.asarray(source.filled(np.nan) if source.dtype.kind in "fc" else source.data)


def check_labels(values: np.ndarray, name: str, bits: int = 53) -> None:
    """Refuse the first value that is not whole, or beyond 2^bits, where floats skip numbers."""
    whole = np.isfinite(values) & (values == np.rint(values))
    if not whole.all():
        raise errors.InvalidArgumentError(
            f"the {name} have the value {values[~whole][0]}; labels must be whole numbers:"
            " resample them by nearest neighbours; save a NIfTI that is scaled (scl_slope, as"
            " nibabel stores floats in an integer type) as whole numbers, a picture in plain grey"
        )
    for value in map(int, values):
        if abs(value) > 1 << bits:
            raise errors.InvalidArgumentError(
                f"the {name} have the value {value}; labels must lie within +-2^{bits}, renumber"
                " them"
            )
