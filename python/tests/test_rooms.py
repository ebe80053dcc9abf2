"""Names that moved to other subpackages are still found and say where they are now."""

from __future__ import annotations

import importlib

import pytest

import morphseek

OLD = {
    "io": "Image read write_image read_transform write_transform ImageLike index_to_physical",
    "transform": "DenseTransform resample_identity",
    "registration": "load OUTPUTS",
    "evaluation": "LabelScore score_labels mean_dice PairScore Evaluation evaluate read_pairs",
    "batch": "run Batch Outcome register_into",
    "phantom": "LABELS PhantomPair make_pair",
}


@pytest.mark.parametrize("module, name", [(m, n) for m, ns in OLD.items() for n in ns.split()])
def test_old_names_warn_and_work(module: str, name: str):
    old = importlib.import_module(f"morphseek.{module}")
    with pytest.warns(DeprecationWarning, match=rf"morphseek\.{module}\.{name} is now") as warned:
        value = getattr(old, name)
    (said,) = warned
    assert said.filename == __file__
    place, _, new = str(said.message).rpartition(" ")[2].rpartition(".")
    assert getattr(importlib.import_module(place), new) is value


def test_old_modules_are_attributes():
    for module in ("batch", "evaluation", "io", "phantom", "transform"):
        assert getattr(morphseek, module).__name__ == f"morphseek.{module}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        morphseek.io.nothing  # noqa: B018
