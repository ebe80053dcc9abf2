"""What the MorphSeek module does. `slicer` and `vtk` are imported where they are used; all but the
last two lines need no Qt and no slicer.app.

request       what is asked for; options: presets and choices; validation: why it cannot run yet
registration  runs a request: start(), poll(), cancel(); a Qt timer or a loop drives it
job           the worker's inputs, and nodes made of its answer
process       the worker process (`python -m morphseek.worker`), its files, and questions to it
geometry      MRML volumes <-> arrays in LPS
outputs       result -> nodes
transfer      segmentations, label maps and landmarks through a transform
compare       layout, checkerboard and places in the slice views
install       the Python package, once, with consent
batch         a list of pairs; presets: a user's own; sample: the made-up pair
parameters    the panel's choices, saved with the scene
panel         the panel; package_, options_, result_ and review_section: its parts
"""
