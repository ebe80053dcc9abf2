"""Diagnostics of cases with known answers."""

import json
import subprocess
import sys

import diagnostics as d
import numpy as np
import pytest
import torch
from test_policy import objective, pair

from morphseek.training.pairs import Sample


def test_variance_ratio_of_independent_dimensions_is_one(tiny):
    o = objective(tiny, "paper")
    found = d.variance_ratio(o.backbone, pair(), samples=400, tau=3.0)
    assert found["n"] == 8 * 2 * 2 * 3
    assert found["ratio"] == pytest.approx(1.0, abs=4 * found["standard_error"])
    assert found["standard_error"] < 0.1


def test_collapse_probe_tells_a_deaf_decoder(tiny):
    o = objective(tiny, "paper")
    alive = d.collapse_probe(o.backbone, pair(), samples=6, tau=3.0)
    with torch.no_grad():
        for p in o.backbone.dec4.up.parameters():
            p.zero_()  # the decoder then ignores z
    dead = d.collapse_probe(o.backbone, pair(), samples=6, tau=3.0)
    assert alive["dice_sd"] > 0.05 and dead["dice_sd"] == 0.0
    assert dead["dice_mean"] == pytest.approx(dead["dice_mu"])


def test_gradient_norms_scale_with_their_weights(tiny):
    norms = [
        d.gradient_norms(objective(tiny, "paper", loss__dice=w, loss__regularity=10 * w), pair())
        for w in (0.2, 0.4)
    ]
    for key, factor in (("dice", 2), ("regularity", 2), ("similarity", 1)):
        assert norms[0][key] > 0
        assert norms[1][key] == pytest.approx(factor * norms[0][key], rel=1e-3)
    assert "volume" not in norms[0]
    norms = [d.gradient_norms(objective(tiny, "paper", loss__volume=w), pair()) for w in (0.2, 0.4)]
    assert norms[1]["volume"] == pytest.approx(2 * norms[0]["volume"], rel=1e-3)
    assert norms[0]["volume"] > 0
    # The term `warm` contains them, so it changes, too.
    assert norms[1]["warm"] != pytest.approx(norms[0]["warm"], rel=1e-6)


def test_gradient_norms_have_what_the_run_uses(tiny):
    s = pair()
    s.truth, s.truth_mask = torch.ones(1, 3, *s.fixed.shape[2:]), torch.ones_like(s.fixed)
    norms = [
        d.gradient_norms(objective(tiny, "best", loss__segmentation=w, loss__truth=w), s)
        for w in (0.2, 0.4)
    ]
    for key in ("segmentation", "truth"):
        assert norms[0][key] > 0 and norms[1][key] == pytest.approx(2 * norms[0][key], rel=1e-3)
    assert "policy" not in norms[0]
    # LDVN divides the printed policy's gradient by sqrt(N).
    changes = [dict(policy__trajectories=3, policy__ldvn=kind) for kind in ("one", "sqrt")]
    one, root = (
        d.gradient_norms(objective(tiny, "paper", **change), s, 2.0)["policy"] for change in changes
    )
    assert root > 0 and one == pytest.approx(root * 96**0.5, rel=1e-2)
    o = objective(tiny, "policy", policy__trajectories=2, policy__target_sd=2.0)
    o.memory.scale = 2.0
    assert d.gradient_norms(o, s)["policy"] > 0 and o.memory.scale == 2.0
    o = objective(tiny, "warmup", loss__warm=0.5)
    o.stage = "warmup"
    norms = d.gradient_norms(o, s)
    assert "dice" not in norms and norms["warm"] > 0


def test_probes_see_the_pair_as_the_first_step_does(tiny):
    """A network that sees pairs mirrored gives on a pair the result that it gives, without
    mirroring, on the mirrored pair.
    """
    s = pair(2)
    other = Sample(**{k: v if v is None else v.flip(-1) for k, v in vars(s).items()})
    found = []
    for sample, views in ((s, [True]), (other, [])):
        o = objective(tiny, "paper", model__mirrored=views)
        probe = d.collapse_probe(o.backbone, sample, samples=2, tau=3.0)
        signal = d.policy_signal(o, [sample], (3,), rank=2)
        norms = d.gradient_norms(
            objective(tiny, "best", loss__segmentation=0.0, model__mirrored=views), sample
        )
        # The other terms have forward differences, which change under mirroring.
        terms = [norms[key] for key in ("similarity", "dice", "kl")]
        found.append([*probe.values(), *terms, *(r["cosine"] for r in signal)])
    assert found[0] == pytest.approx(found[1], rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("trajectories", [2, 5])
def test_the_signal_of_few_trajectories(tiny, trajectories):
    rows = d.policy_signal(objective(tiny, "paper"), [pair()], (trajectories,), rank=2)
    assert len(rows) == 6 and all(np.isfinite(r["cosine"]) for r in rows)


def test_diagnose_has_the_weights_of_the_checkpoints_iteration(start, tmp_path, phantoms):
    from click.testing import CliRunner

    trainer = start("best", loss__phases=[{"iteration": 5, "dice": 10.0}])
    found = []
    for iteration, kl_weight in ((4, 1e-3), (5, 1e-3), (5, 2e-3)):
        trainer.iteration, trainer.objective.kl_weight = iteration, kl_weight
        trainer._save()
        words = ["diagnose", tmp_path / "last.pt", "--data", phantoms, "--pairs", 1]
        r = CliRunner().invoke(d.app, [*map(str, words), "--to", str(tmp_path / "d.json")])
        assert r.exit_code == 0, r.output
        found.append(json.loads((tmp_path / "d.json").read_text())["gradient_norms"])
    share = 10.0 / trainer.config.loss.dice
    assert found[1]["dice"] == pytest.approx(share * found[0]["dice"], rel=1e-3)
    assert found[2]["kl"] == pytest.approx(2 * found[1]["kl"], rel=1e-3)


def test_signal_is_real_and_grows_with_j(tiny):
    o = objective(tiny, "paper")
    with torch.no_grad():
        # small fields: in the linear regime an estimator can be judged
        o.backbone.flow.weight.mul_(0.1)
    rows = d.policy_signal(o, [pair(i) for i in range(3)], (4, 32), target_sd=0.5, rank=2)
    cosine = {(r["noise"], r["advantage"], r["J"]): r["cosine"] for r in rows}
    assert len(cosine) == 12
    # With N = 96 dimensions and 32 samples a sound estimator is far from orthogonal; a wrong sign
    # would show as negative.
    assert all(0.04 < v < 1 for (_, _, j), v in cosine.items() if j == 32)
    assert cosine["white", "scalar", 32] > cosine["white", "scalar", 4] + 0.05


def test_histories_read_the_log(tmp_path):
    rows = [
        {"iteration": i, "sigma": 1.0, "mu_abs": 0.1 * i, "kl": 2.0, "soft_dice": 0.5, "loss": 1.0}
        for i in range(3)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert d.histories(tmp_path)["mu_abs"] == [0.0, 0.1, 0.2]


STEP = """
import sys, numpy as np, torch
from pathlib import Path
from morphseek.training.backbones import build_backbone
from morphseek.training.config import load
from morphseek.training.pairs import Sample
from morphseek.training.step import StepObjective

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024

torch.set_num_threads(1)
how = {"policy.trajectories": int(sys.argv[1]), "policy.sequential": sys.argv[2] == "True"}
config = load("paper").replace(**how, **{"policy.tau_init": 1.0, "model.backbone": "compact"})
step = StepObjective(build_backbone(config.model), config.loss, config.policy, "finetune", False)
size = (48, 48, 48)
images, ones = [torch.rand(1, 1, *size) for _ in range(2)], torch.ones(1, 1, *size)
labels = [(torch.rand(1, 2, *size) > 0.5).float() for _ in range(2)]
before = peak()
pair = Sample(*images, ones, ones, *labels, ones, ones)
step(pair, torch.zeros(1, 3, *size), tau=1.0, rng=np.random.default_rng(0)).loss.backward()
print(peak() - before)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_memory_does_not_grow_with_j():
    """One by one, eight times the trajectories need the same peak; all at once, clearly more."""

    def mib(trajectories, one_by_one):
        words = [sys.executable, "-c", STEP, str(trajectories), str(one_by_one)]
        return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    two, sixteen = mib(2, True), mib(16, True)
    assert sixteen < 1.3 * two + 10
    assert mib(16, False) > 1.5 * sixteen
