"""Images in and out: one :class:`Image` for numpy, SimpleITK, ITK, nibabel, files and DICOM
folders.

Arrays are C-contiguous with axes (z, y, x); spacing and origin are in the order (x, y, z), in LPS
millimetres, as ITK's. Files are read and written by SimpleITK. Every file is written in a temporary
folder beside its place and moved there when it is complete.
"""

from .._grid import Grid
from .convert import read, read_on
from .files import read_frames, read_vectors
from .image import Image, ImageLike, Volume
from .named import label_names
from .sequence import write_sequence
from .writers import write, write_vectors

__all__ = [
    "Grid",
    "Image",
    "ImageLike",
    "Volume",
    "label_names",
    "read",
    "read_frames",
    "read_on",
    "read_vectors",
    "write",
    "write_sequence",
    "write_vectors",
]


def __dir__() -> list[str]:
    return __all__.copy()
