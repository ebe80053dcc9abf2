"""MorphSeek: deformable registration of 3-D medical images.

>>> import morphseek
>>> pair = morphseek.phantom.make_pair(size=48)
>>> result = morphseek.register(pair.fixed, pair.moving, model="none", refine=0, search=False)
>>> result.displacement().shape
(3, 48, 48, 48)

:func:`register` registers a pair; its :class:`Registration` warps images, labels and points,
and its :class:`Verdict` says whether it can be trusted.
:func:`register_pairs` registers and scores many pairs, :func:`compare` compares two such studies,
:func:`correct_motion` registers the frames of a time series, :func:`build_template` makes the mean
of many images, :func:`propagate_labels` carries labels of atlases over.
:mod:`morphseek.images` and :mod:`morphseek.transforms` read and write, :mod:`morphseek.scoring`
measures overlap, :mod:`morphseek.errors` lists what can go wrong. The names are in
``__init__.pyi``, and load when they are first used.
"""

import os

import lazy_loader

# Two of the libraries beneath us call home unless told otherwise before they load: ONNX Runtime
# (telemetry; here for the training, the engine sees to its own) and nipype (a look for updates).
# MorphSeek promises that no connection is opened, whatever was set.
os.environ.update(ORT_DISABLE_TELEMETRY="1", NIPYPE_NO_ET="1")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
