"""What the tests share: the extension's folder on the path, and the real Slicer core as the
application would have set it up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import slicer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "MorphSeek"))

# The application does this as it starts: with it, segmentations know their representations.
SEGMENTATIONS = slicer.vtkSlicerSegmentationsModuleLogic()
SEGMENTATIONS.SetMRMLScene(slicer.vtkMRMLScene())
