"""What readers and writers of ITK's formats share."""

from __future__ import annotations

import re
import threading

# ITK's HDF5 is not made for threads, and SimpleITK runs it outside Python's lock
hdf5_lock = threading.Lock()


def itk_reason(error: Exception) -> str:
    """Return what an ITK exception says, without the source lines before it."""
    text = re.split(r"(?:ITK|sitk::)\s?ERROR: ", str(error).strip())[-1]
    if text.startswith("Unable to determine ImageIO reader"):
        return "its format is none that ITK knows; convert it to .nii.gz, .nrrd or .mha"
    return " ".join(text.split())


# which ITK gives to one library
HDF5 = (".h5", ".hdf5", ".hdf", ".he5", ".hd5", ".hdf4", ".he2", ".he4", ".h4", ".hd4")
