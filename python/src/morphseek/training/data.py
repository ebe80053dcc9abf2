"""Old names of :mod:`.pairs`; they still work, with a warning."""

from __future__ import annotations

from .._moved import moved

__getattr__ = moved(
    __name__,
    {
        "Augmentation": "training.config.Augmentation",
        "Case": "training.pairs.Case",
        "DataError": "training.pairs.DataError",
        "Grid": "training.pairs.Grid",
        "PairSource": "training.pairs.PairSource",
        "Sample": "training.pairs.Sample",
        "make_grid": "training.pairs.make_grid",
        "make_sample": "training.pairs.make_sample",
        "read_case": "training.pairs.read_case",
        "read_pairs": "training.pairs.read_pairs",
        "read_people": "training.pairs.read_people",
        "rotation": "training.pairs.rotation",
        "start_transform": "training.pairs.start_transform",
    },
)
