"""What the MorphSeek module does, without a window: no Qt, no slicer.app; `slicer` and `vtk` are
imported where they are used.

request       what is asked for, the presets, and why a request cannot run yet
registration  runs a request: start(), poll(), cancel(); a Qt timer or a loop drives it
process       the worker process (`python -m morphseek.worker`) and its files
geometry      MRML volumes <-> arrays in LPS
outputs       result -> nodes
transfer      segmentations, label maps and landmarks through a transform
install       the Python package, once, with consent
batch         a study list
"""
