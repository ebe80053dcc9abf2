"""Puts the extension's folder on the path and sets the Slicer core up as the application does."""

from __future__ import annotations

import sys
from pathlib import Path

import slicer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "MorphSeek"))

# The application does this at start: it registers the representations of segmentations.
SEGMENTATIONS = slicer.vtkSlicerSegmentationsModuleLogic()
SEGMENTATIONS.SetMRMLScene(slicer.vtkMRMLScene())
