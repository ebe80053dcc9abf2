"""Fixtures of the training tests: a phantom data set, the real one if it is present, and small
networks.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

NEED = "training tests need the extra: pip install morphseek[training]"
torch = pytest.importorskip("torch", reason=NEED)
pytest.importorskip("monai", reason=NEED)

from training_helpers import REPOSITORY, TINY, write_phantom  # noqa: E402  (after the skips)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.fspath).parents:
            item.add_marker(pytest.mark.training)
            # warnings of PyTorch, MONAI and ONNX change with their versions
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def hippocampus() -> Path:
    """The real hippocampus volumes; $MORPHSEEK_DATA/hippocampus, or shared/data beside the
    repository.
    """
    root = Path(os.environ.get("MORPHSEEK_DATA", REPOSITORY.parent / "shared" / "data"))
    folder = root / "hippocampus"
    if not (folder / "split.json").exists():
        needs = "set MORPHSEEK_DATA to run this test"
        pytest.skip(f"REAL DATA ABSENT: no {folder}/split.json; {needs}")
    return folder


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory) -> Path:
    """Eight subjects in the split.json layout."""
    root = tmp_path_factory.mktemp("phantoms")
    rng = np.random.default_rng(7)
    names = [f"p{i}" for i in range(8)]
    for i, name in enumerate(names):
        files = (root / folder / f"{name}.nii.gz" for folder in ("images", "labels"))
        write_phantom(*files, rng.uniform(-2, 2, 3), seed=i)
    pairs = {"grpo": [[a, b] for a in names[:2] for b in names[:6] if a != b]}
    pairs["val"] = [["p6", "p7"]]
    pairs["test"] = [["p6", "p7"], ["p7", "p6"]]
    (root / "split.json").write_text(json.dumps({"train": names[:6], "pairs": pairs}))
    return root


@pytest.fixture
def tiny(phantoms):
    """Make a configuration for the phantoms from a preset and changes."""
    from morphseek.training.config import load

    def make(preset: str, **changes):
        options = dict(TINY["model.options"])
        if preset == "best":
            options["segmentation_classes"] = 2
        dotted = {k.replace("__", "."): v for k, v in changes.items()}
        own = {"data.path": str(phantoms), "model.options": options}
        return load(preset).replace(**(TINY | own | dotted))

    return make


@pytest.fixture
def start(tiny, tmp_path):
    """Start or continue a run, by a configuration or a preset with changes, in a folder."""
    from morphseek.training.run import Trainer

    def make(config, folder="", *, init=None, **changes) -> Trainer:
        if isinstance(config, str):
            config = tiny(config, **changes)
        return Trainer(config, tmp_path / folder, init=init, progress=False)

    return make
