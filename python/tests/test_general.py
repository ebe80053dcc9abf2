"""The benchmark of a general network: its configuration, a step of batched pairs, the arithmetic of
its curve, and its messages for bad input.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import general  # noqa: E402

SMALL = {
    "data.min_size": [16, 16, 16], "run.iterations": 1, "run.steps_schedule": [],
    "synthetic.val_pairs": 1, "optim.accumulate": 2,
}  # fmt: skip


def test_one_step_of_the_configuration(tmp_path: Path):
    """The configuration loads and is as the page says, and one iteration changes the weights."""
    torch = pytest.importorskip("torch", reason="needs morphseek[training]")
    from morphseek.training.config import load
    from morphseek.training.run import Trainer

    config = load(BENCHMARKS / "general.toml")
    assert config.model.options["mind"] and config.model.parametrisation == "velocity"
    assert config.run.val_steps == 3 and config.optim.together
    trainer = Trainer(config.replace(**SMALL), tmp_path, progress=False)
    before = {k: v.clone() for k, v in trainer.backbone.state_dict().items()}
    logs = trainer.run_iteration()
    assert logs["truth"] > 0 and trainer.updates == 1
    after = trainer.backbone.state_dict()
    assert any(not torch.equal(before[k], after[k]) for k in before)


def test_pairs_together_are_pairs_apart(tmp_path: Path):
    """The gradient of a batch is the mean of the pairs' gradients. The distance to the truth is
    left out, because its mean is over other voxels.
    """
    torch = pytest.importorskip("torch", reason="needs morphseek[training]")
    from morphseek.training.config import load
    from morphseek.training.run import Trainer

    grads = []
    for together in (False, True):
        config = load(BENCHMARKS / "general.toml").replace(
            **SMALL,
            **{"optim.together": together, "loss.truth": 0.0, "optim.clip": 0.0, "optim.ema": 0.0},
        )
        trainer = Trainer(config, tmp_path / str(together), progress=False)
        found: dict[str, torch.Tensor] = {}

        def keep(logs: dict[str, object], of: Trainer = trainer, to: dict = found) -> None:
            to.update(
                {k: p.grad.clone() for k, p in of.backbone.named_parameters() if p.grad is not None}
            )

        trainer._update = keep  # type: ignore[method-assign]
        trainer.run_iteration()
        grads.append(found)
    assert grads[0].keys() == grads[1].keys() and grads[0]
    for name, one in grads[0].items():
        torch.testing.assert_close(grads[1][name], one, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("change", [{"data.pairs": "warmup"}, {"policy.kind": "structured"}])
def test_together_is_refused_where_it_cannot_be(change: dict[str, str]):
    pytest.importorskip("torch", reason="needs morphseek[training]")
    from morphseek.training.config import ConfigError, load
    from morphseek.training.run.setup import check_run

    with pytest.raises(ConfigError, match="optim.together"):
        check_run(load(BENCHMARKS / "general.toml").replace(**change))


def test_extrapolation_of_a_known_curve():
    """Every kind falls as minutes^-0.5 from its own height, and the goal is the curve's value at
    100 minutes. The fitted line must find these, whatever kinds are drawn.
    """
    minutes, heights = np.array([5.0, 10.0, 20.0]), np.array([0.9, 1.2, 2.0])
    shares = heights / np.sqrt(minutes)[:, None]
    line, at = general.extrapolated(minutes, shares, heights / 10)
    assert line == pytest.approx((-0.5, np.log(heights).mean()))
    assert at == pytest.approx((100, 100, 100))
    assert np.isinf(general.extrapolated(minutes, 1 / shares, heights / 10)[1]).all()


def test_table_by_hand():
    """For two pairs of a kind, the geometric mean of 1/2 and 1/8 is 1/4. A pair that a method lacks
    is left out.
    """
    rows = [
        {"kind": "x", "seed": 1, "pair": p, "method": m, "error": e, "dice": d}
        for p, m, e, d in [
            ("a", "affine", 4, 0.5),
            ("a", "search", 2, 0.7),
            ("b", "affine", 8, 0.6),
            ("b", "search", 1, 0.9),
            ("c", "affine", 1, 0.1),
        ]
    ]
    share, dice = (general.by_kind(rows, ["affine", "search"], what) for what in ("error", "dice"))
    assert share["search"] == pytest.approx([0.25]) and dice["search"] == pytest.approx([0.8])
    assert "| search | 25 (25 to 25) |  | 0.800 (0.800 to 0.800) |  |" in general.summary(
        share, dice
    )


@pytest.mark.thorough
def test_nothing_measured_is_said(tmp_path: Path):
    command = [sys.executable, str(BENCHMARKS / "general.py"), "--run", str(tmp_path), "--out"]
    finished = subprocess.run(
        [*command, str(tmp_path / "out"), "--for", "0", "--minutes", "5", "--kinds", "=torso CT"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "1000"},
    )
    assert finished.returncode == 2, finished.stderr
    assert "has not reached 5 minutes" in finished.stderr and "rows.jsonl" in finished.stderr
