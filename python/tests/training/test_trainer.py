"""Training runs: learning, resuming after a kill, several processes."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from helpers import refused
from morphseek.training.evaluate import evaluate_pairs
from morphseek.training.pairs import PairSource
from morphseek.training.run import Trainer, average, load_backbone, precision
from morphseek.training.run.bar import Bar
from training_helpers import Shift

SMALL = {"widths": [8, 8, 8], "latent_channels": 8, "decoder": [8, 8]}
SIAMESE = {
    "model__backbone": "siamese",
    "model__options": SMALL | {"reader": [8, 8], "segmentation_classes": 2},
}


def final(folder):
    return torch.load(folder / "last.pt", weights_only=True)["model"]


def rows_of(folder, **options):
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line, **options) for line in lines]


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def test_training_registers_the_phantoms(start, tmp_path):
    changes = dict(run__val_every=40, run__val_steps=1, run__picture_every=1, run__keep_every=30)
    changes |= dict(run__iterations=80, run__steps=1, optim__lr=5e-3, optim__ema=0.9)
    last = start("best", **changes).run()
    assert last["val_dice"] > last["val_dice_t0"] + 0.05
    _, _, best = load_backbone(tmp_path / "best.pt")
    assert best["best"] >= last["val_dice"]
    kept = {
        path.name: load_backbone(path)[2]["iteration"] for path in tmp_path.glob("iteration-*.pt")
    }
    assert kept == {"iteration-30.pt": 30, "iteration-60.pt": 60}
    assert [r["iteration"] for r in rows_of(tmp_path)] == list(range(1, 81))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert "loss" in events.Tags()["scalars"] and len(events.Tags()["images"]) == 1


def test_recognition_is_trained_first(start, tiny, tmp_path):
    changes = SIAMESE | dict(optim__lr=1e-2, optim__warmup=1, optim__ema=0.5)
    changes |= dict(run__iterations=46, run__pretrain=45, run__val_every=15, run__val_steps=1)
    config = tiny("best", **changes)
    trainer = start(config)
    flow = trainer.backbone.flow.weight.detach().clone()
    for _ in range(45):
        trainer.run_iteration()
    # The decoder has no loss, so it keeps its weights.
    assert torch.equal(trainer.backbone.flow.weight, flow)
    trainer.run_iteration()
    assert not torch.equal(trainer.backbone.flow.weight, flow)
    trainer = start(config, "logged")
    trainer.run()
    rows = rows_of(tmp_path / "logged")
    found = {
        r["iteration"]: r["val_segmentation_dice"] for r in rows if "val_segmentation_dice" in r
    }
    assert sorted(found) == [15, 30, 45] and found[45] > 0.6
    assert "val_dice" in rows[-1]


def test_some_iterations_of_the_pretraining_register(start):
    changes = SIAMESE | dict(run__iterations=7, run__pretrain=6, run__pretrain_joint_every=3)
    trainer = start("best", **changes)
    registers = ["soft_dice" in trainer.run_iteration() for _ in range(7)]
    assert [i for i in range(7) if registers[i]] == [0, 3, 6]


@pytest.mark.parametrize("preset", ["best", "paper"])
def test_every_step_has_its_view(start, monkeypatch, preset):
    views = dict(model__offsets=[[0, 0, 0], [1, 2, 3]], model__mirrored=[True, False, False, False])
    trainer = start(preset, run__steps=3, **views, policy__trajectories=2)
    seen, state = [], trainer.backbone.state
    monkeypatch.setattr(trainer.backbone, "state", lambda *a: seen.append(a[2]) or state(*a))
    trainer.run_iteration()
    assert seen == [(0, 0, 0, 1), (1, 2, 3, 0), (0, 0, 0, 0)]


def test_segmentation_is_compared_where_the_images_were_moved_to(start):
    trainer = start("best")
    pair = trainer.pair(0, trainer.rng(0))
    u = torch.zeros(1, 3, *pair.fixed.shape[2:])
    maps = torch.cat((pair.fixed_map, pair.moving_map))[:, 0].long()
    moved = torch.roll(maps, (1, 2), (1, 3))  # the border is background
    logits = 20.0 * torch.nn.functional.one_hot(moved, 3).movedim(4, 1).float()[None]
    assert trainer.objective.segmentation_loss(logits, pair, u, (1, 0, 2, 0)) < 1e-3
    assert trainer.objective.segmentation_loss(logits, pair, u, None) > 0.1


@pytest.mark.parametrize("preset", ["best", "paper", "policy"])
def test_resumed_run_ends_with_the_same_weights(start, tmp_path, preset):
    changes = dict(run__steps=2, run__checkpoint_minutes=1e-9, optim__ema=0.9)
    changes |= dict(policy__refresh=3, policy__refresh_pairs=1, policy__trajectories=2)
    whole = start(preset, "whole", run__iterations=5, **changes)
    whole.run()
    part = start(preset, "part", run__iterations=5, **changes)
    for _ in range(2):
        part.run_iteration()
    part._save()
    part.run_iteration()  # after the checkpoint: lost, and repeated
    again = start(preset, "part", run__iterations=5, **changes)
    assert again.iteration == 2
    again.run()
    a, b = (torch.load(tmp_path / n / "last.pt", weights_only=True) for n in ("whole", "part"))
    assert same(a["model"], b["model"]) and same(a["ema"], b["ema"])
    assert a["updates"] == b["updates"] == 10
    assert not same(a["model"], a["ema"])


_RUN = """
import json, os, signal, sys, threading
from morphseek.training.config import Config
from morphseek.training.run import Trainer
class Killed(Trainer):  # in its sixth iteration or soon after, however fast the machine is
    def run_iteration(self):
        if self.iteration == 5:
            threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return super().run_iteration()
Killed(Config.from_dict(json.load(open(sys.argv[1]))), sys.argv[2], progress=False).run()
"""


def test_killed_at_any_moment(start, tiny, tmp_path):
    config = tiny("best", run__iterations=14, run__steps=1, run__checkpoint_minutes=1e-9)
    (tmp_path / "c.json").write_text(json.dumps(config.to_dict()))
    command = [sys.executable, "-c", _RUN, str(tmp_path / "c.json"), str(tmp_path / "run")]
    killed = subprocess.run(command, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    done = torch.load(tmp_path / "run" / "last.pt", weights_only=True)["iteration"]
    assert 4 <= done < 14, "the kill must come in the middle"
    start(config, "run").run()
    start(config, "whole").run()
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))
    assert [r["iteration"] for r in rows_of(tmp_path / "run")] == list(range(1, 15))


def test_a_run_killed_before_its_first_checkpoint_begins_anew(start, tiny, tmp_path):
    config = tiny("best", run__iterations=2, run__steps=1, data__val="")
    start(config).run()
    (tmp_path / "last.pt").unlink()
    again = start(config)
    again.run()
    assert [r["iteration"] for r in rows_of(tmp_path)] == [1, 2]


@pytest.mark.parametrize("name", ["best.pt", "iteration-2.pt"])
def test_checkpoints_of_another_run_stay(start, tiny, tmp_path, name):
    changes = dict(run__iterations=2, run__steps=1, run__val_steps=1, run__keep_every=2)
    start(tiny("best", **changes)).run()
    for other in {"best.pt", "iteration-2.pt", "last.pt"} - {name}:
        (tmp_path / other).unlink()
    refused(ValueError, f"holds {name} of another run", start, tiny("best", **changes))
    assert (tmp_path / name).exists()


def test_resuming_from_other_weights_is_refused(start, tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        start("warmup", name, run__iterations=1, run__seed=seed)._save()
    init = tmp_path / "a" / "last.pt"
    start("best", "c", run__iterations=1, init=init).run()
    assert start("best", "c", run__iterations=1, init=init).is_done
    says = "started from other weights"
    refused(
        ValueError, says, start, "best", "c", run__iterations=1, init=init.parents[1] / "b/last.pt"
    )
    (tmp_path / "c" / "last.pt").write_bytes(b"nothing")
    refused(ValueError, "is no checkpoint", start, "best", "c", run__iterations=1)


def test_a_folder_takes_one_run_at_a_time(start, tmp_path):
    """Two would write over each other's checkpoints and log."""
    first, second = (start("warmup", "run", run__iterations=1, run__seed=k) for k in range(2))
    run_iteration = first.run_iteration

    def meanwhile():
        refused(OSError, "another call of morphseek is writing to .*run", second.run)
        assert json.loads((tmp_path / "run" / "config.json").read_text())["run"]["seed"] == 0
        return run_iteration()

    first.run_iteration = meanwhile
    first.run()
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "pairs, val, test, message",
    [
        ("grpo", "grpo", "test", "p0, p1, p2, p3, p4 stand in data.pairs"),
        ("grpo", "val", "grpo", "p0, p1, p2, p3, p4 stand in .* the list 'grpo'"),
        # one file by two names
        ("grpo", "ending.csv", "test", "p1.nii.gz stand in .* the list 'ending.csv'"),
        ("grpo", "path.csv", "test", "images/p1.nii.gz stand in .* the list 'path.csv'"),
        ("same.csv", "val", "test", "names p2 twice"),
        ("subjects:twins", "val", "test", "names a volume twice"),
        ("gone.csv", "val", "test", "no image 'p9'"),
    ],
)
def test_people_stand_in_one_list_once(start, phantoms, tmp_path, pairs, val, test, message):
    root = shutil.copytree(phantoms, tmp_path / "data")
    rows = {"path": "images/p1.nii.gz,p7", "ending": "p1.nii.gz,p7", "same": "p2,p2"}
    for name, row in (rows | {"gone": "p0,p9"}).items():
        (root / f"{name}.csv").write_text(f"fixed,moving\n{row}\n")
    lists = json.loads((root / "split.json").read_text())
    (root / "split.json").write_text(json.dumps(lists | {"twins": ["p0", "p1", "p0"]}))
    (root / "images" / "p9.nii.gz").unlink(missing_ok=True)
    changes = dict(data__path=str(root), data__pairs=pairs, data__val=val, data__test=test)
    refused((ValueError, OSError), message, start, "warmup", **changes)


@pytest.mark.parametrize("seed", range(2))
def test_logs_of_known_and_other_motions_are_joined(start, seed):
    """Known motions have an error of points, which others have not."""
    changes = dict(known__share=0.5, loss__truth=1.0, loss__segmentation=0.0, run__steps=1)
    trainer = start("best", **changes, optim__accumulate=4)
    trainer.rng = lambda iteration: np.random.default_rng(seed)
    assert np.isfinite(trainer.run_iteration()["truth"])


def test_a_checkpoint_has_its_own_score(start, tmp_path):
    changes = dict(run__iterations=3, run__steps=1, run__val_steps=1, run__val_every=2)
    trainer = start("best", run__keep_every=1, **changes)
    last = trainer.run()
    scores = [
        torch.load(tmp_path / f"iteration-{i}.pt", weights_only=True)["val_dice"] for i in (1, 2, 3)
    ]
    assert scores[0] is None and scores[1] is not None and scores[2] == last["val_dice"]


def test_resuming_with_other_processes_is_refused(start, tmp_path):
    trainer = start("best")
    trainer.world = 2
    trainer._save()
    refused(ValueError, r"made by 2 process\(es\), not 1", start, "best")
    old = torch.load(tmp_path / "last.pt", weights_only=True)
    del old["world"]
    torch.save(old, tmp_path / "last.pt")
    start("best")


def test_indices_are_not_averaged(start, tmp_path, monkeypatch):
    """Such as a transformer's tables of relative positions: integers beside the weights."""
    from morphseek.training.run import checkpoint, loop

    def build(model):
        backbone = build_backbone(model)
        backbone.register_buffer("table", torch.arange(100))
        return backbone

    build_backbone = loop.build_backbone
    for module in (checkpoint, loop):
        monkeypatch.setattr(module, "build_backbone", build)
    trainer = start("best", run__iterations=1, run__steps=1, optim__ema=0.9)
    trainer.run_iteration()
    for iteration in (2, 4, 8):
        trainer.iteration = iteration
        trainer._save(f"iteration-{iteration}.pt")
    paths = [tmp_path / f"iteration-{iteration}.pt" for iteration in (2, 4, 8)]
    mean = average(paths, [0.3, 0.35, 0.35])
    for table in (trainer.ema["table"], mean["model"]["table"]):
        assert torch.equal(table, torch.arange(100))
    assert mean["iteration"] == 8  # the iterations of one run


def test_fine_tuning_starts_from_the_warm_up(start, tmp_path):
    start("warmup", "w", run__iterations=2).run()
    t = start("best", "f", init=tmp_path / "w" / "last.pt", run__iterations=2)
    w = final(tmp_path / "w")
    assert all(torch.equal(v, w[k]) for k, v in t.backbone.state_dict().items() if k in w)


@pytest.mark.parametrize(
    "key, then, now", [("parametrisation", "velocity", "displacement"), ("scale", 10.0, 5.0)]
)
def test_weights_that_would_mean_something_else_are_announced(
    start, tmp_path, caplog, key, then, now
):
    start("warmup", **{f"model__{key}": then})._save()
    for value in (then, now):
        start("best", "f", init=tmp_path / "last.pt", **{f"model__{key}": value})
        said = f"was trained with model.{key} = {then!r}, this run has {now!r}" in caplog.text
        assert said == (value == now)


def test_schedules(start):
    changes = dict(run__iterations=100, run__steps=3, run__steps_schedule=[[0, 1], [50, 2]])
    changes |= dict(optim__warmup=10, optim__lr=1.0, optim__schedule="cosine", optim__final=0.1)
    t = start("paper", **changes, policy__tau_every=10)
    assert [t.steps(v) for v in (0, 49, 50, 99)] == [1, 1, 2, 2]
    assert [t.temperature(v) for v in (0, 9, 10, 79, 80, 99)] == [10, 10, 9, 3, 2, 2]
    t.config.run.steps_schedule = [[50, 2], [0, 1]]
    assert [t.steps(v) for v in (0, 49, 50, 99)] == [1, 1, 2, 2]
    rate = [t.learning_rate(v) for v in range(100)]
    assert rate[0] == pytest.approx(0.1) and rate[10] == pytest.approx(1.0)
    assert rate[55] == pytest.approx(0.55, abs=0.01) and rate[99] == pytest.approx(0.1, abs=0.01)


def test_target_kl_schedule(start):
    t = start("warmup", loss__kl_target=1.0, loss__kl=0.1)
    t._adapt_kl({"kl": 3.0})
    assert t.objective.kl_weight == pytest.approx(0.15)
    t._adapt_kl({"kl": 1.0})
    assert t.objective.kl_weight == pytest.approx(0.15)
    t._adapt_kl({"kl": 0.1})
    assert t.objective.kl_weight == pytest.approx(0.1)


_RANK = """
import json, os, sys, torch
from morphseek.training.config import Config
from morphseek.training.run import Trainer
t = Trainer(Config.from_dict(json.load(open(sys.argv[1]))), sys.argv[2], progress=False)
t.run()
torch.save(t.backbone.state_dict(), sys.argv[2] + f"/rank{t.rank}.pt")
torch.save(vars(t.objective.memory) | {"kl_weight": t.objective.kl_weight}, sys.argv[2] + f"/state{t.rank}.pt")
"""  # noqa: E501 a program


def in_two_processes(config, folder):
    """Run a configuration by torchrun with gloo; return the run's folder."""
    (folder / "c.json").write_text(json.dumps(config.to_dict()))
    (folder / "rank.py").write_text(_RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = ["--log-dir", folder / "log", folder / "rank.py", folder / "c.json", folder / "run"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command += map(str, words)
    subprocess.run(command, check=True, env=environment, timeout=200, capture_output=True)
    return folder / "run"


@pytest.mark.thorough
def test_two_processes_average_their_gradients(start, tiny, tmp_path):
    """With torchrun and gloo both ranks end with the same weights: those that one process gets from
    the mean of both gradients.
    """
    # The harder case: the policy step, which collects gradients piecewise and passes them on by a
    # surrogate.
    changes = dict(data__val="", policy__trajectories=2, optim__clip=0.0, optim__ema=0.0)
    config = tiny("paper", run__iterations=1, run__steps=1, **changes)
    out = in_two_processes(config, tmp_path)
    a, b = (torch.load(out / f"rank{r}.pt", weights_only=True) for r in (0, 1))
    assert same(a, b)

    single = start(config, "single")
    total = None
    for rank in (0, 1):
        single.rank = single.supply.rank = rank
        single.world = single.supply.world = 2
        rng = single.rng(0)
        pair = single.pair(0, rng)
        u = torch.zeros(1, 3, *pair.fixed.shape[2:])
        single.objective(pair, u, tau=single.temperature(0), rng=rng).loss.backward()
        found = [p.grad.clone() for p in single.backbone.parameters()]
        single.optimizer.zero_grad(set_to_none=True)
        total = found if total is None else [x + y for x, y in zip(total, found, strict=True)]
    for group in single.optimizer.param_groups:
        group["lr"] = single.learning_rate(0)
    for p, g in zip(single.backbone.parameters(), total, strict=True):
        p.grad = g / 2
    single.optimizer.step()
    for k, v in single.backbone.state_dict().items():
        # The first Adam step is about lr * sign(g): where g is nearly 0 rounding decides the sign,
        # so compare the bulk.
        close = ((a[k] - v).abs() <= 0.05 * single.learning_rate(0) + 1e-7).float().mean()
        assert close > 0.98, k


@pytest.mark.thorough
def test_two_processes_share_the_policy(tiny, tmp_path):
    """The checkpoint has the policy's state once, so it must be the same in both processes, or a
    resumed run would differ.
    """
    changes = dict(data__val="", policy__trajectories=2, loss__kl_target=1e-4)
    config = tiny("policy", run__iterations=2, run__steps=1, **changes)
    out = in_two_processes(config, tmp_path)
    a, b = (torch.load(out / f"state{r}.pt", weights_only=True) for r in (0, 1))
    assert torch.equal(a.pop("basis"), b.pop("basis")) and a == b
    assert a["kl_weight"] != config.loss.kl


@pytest.mark.parametrize("steps", [1, 2])
def test_evaluation_is_exact_on_a_known_shift(phantoms, steps):
    """The network that returns the true shift has a Dice of 1 after one step, not after two."""
    source = PairSource(phantoms, 2)
    source.case("p0")
    moved = source._cases["q"] = type(source.case("p0"))(**vars(source.case("p0")))
    moved.labels = torch.roll(moved.labels, (2, -1), (3, 4))

    shift, grid = Shift(0.0, 2.0, -1.0), ((1, 1, 1), (24, 24, 24))
    (row,) = evaluate_pairs(shift, source, [("p0", "q")], *grid, steps)
    scores = [s["dice"] for s in row["steps"]]
    assert scores[0] < 0.9 and scores[1] == pytest.approx(1.0)
    if steps == 2:
        assert scores[2] < 0.9  # twice the shift is too far
    assert row["steps"][1]["njd"] == 0.0


@pytest.mark.parametrize(
    "key, value",
    [
        ("data.spacing", [2.0, 2.0, 2.0]), ("data.percentiles", [5.0, 60.0]), ("data.labels", 1),
        ("data.pairs", "grpo"), ("data.val", ""), ("optim.lr", 1.0),
    ],
)  # fmt: skip
def test_resuming_with_another_configuration_is_refused(start, key, value):
    start("warmup", run__iterations=1).run()
    says = rf"last.pt was made with another configuration \({key}\)"
    refused(ValueError, says, start, "warmup", run__iterations=2, **{key.replace(".", "__"): value})


def test_a_run_goes_on_where_its_data_was_moved(start, tiny, tmp_path, phantoms):
    start("warmup", "run", run__iterations=1).run()
    shutil.copytree(phantoms, tmp_path / "moved")
    moved = tiny("warmup", run__iterations=2, data__path=str(tmp_path / "moved"), data__test="val")
    assert start(moved, "run").iteration == 1


@pytest.fixture
def bare(phantoms, tmp_path):
    """The phantoms without the labels of one training and one validation volume."""
    root = shutil.copytree(phantoms, tmp_path / "bare")
    for name in ("p1", "p6"):
        (root / "labels" / f"{name}.nii.gz").unlink()
    return root


@pytest.mark.parametrize(
    "pairs, val, message",
    [
        ("subjects:train", "", r"1 of 6 volumes have no label file \(p1\)"),
        ("grpo", "val", r"2 of 8 volumes have no label file \(p1, p6\)"),
    ],
)
def test_fine_tuning_wants_every_label_file(start, bare, pairs, val, message):
    changes = dict(data__path=str(bare), data__pairs=pairs, data__val=val)
    refused(ValueError, message, start, "best", "run", **changes)
    start("warmup", "run", **changes)


def test_an_empty_list_is_refused(start, bare):
    lists = {"alone": ["p0"], "pairs": {"none": [], "val": []}}
    (bare / "split.json").write_text(json.dumps(lists))
    for pairs in ("none", "subjects:alone"):
        with pytest.raises(ValueError, match=f"data.pairs = '{pairs}' names no pair"):
            start("warmup", "run", data__path=str(bare), data__pairs=pairs)


@pytest.mark.parametrize("labels", [0, 2])
def test_warm_up_without_labels_is_validated_without_dice(tiny, bare, tmp_path, labels):
    """p6 of the validation pair has no label file. So there is no Dice and no best.pt, whether or
    not labels are configured.
    """
    changes = dict(run__val_every=1, run__val_steps=1, data__path=str(bare), data__labels=labels)
    config = tiny("warmup", run__iterations=2, **changes)
    last = Trainer(config, tmp_path / "run", progress=True).run()
    assert last.keys() == {"val_njd_percent", "val_sdlogj"}
    assert (tmp_path / "run" / "last.pt").exists() and not (tmp_path / "run" / "best.pt").exists()


def test_a_pair_without_any_label_has_no_dice(start, bare, caplog):
    """It would count as a Dice of 0."""
    empty = bare / "labels" / "p6.nii.gz"
    sitk.WriteImage(0 * sitk.ReadImage(str(bare / "labels" / "p7.nii.gz")), str(empty))
    changes = dict(data__path=str(bare), data__pairs="one.csv", run__iterations=1)
    (bare / "one.csv").write_text("fixed,moving\np2,p3\n")
    trainer = start("best", "run", **changes, run__val_every=1)
    assert "val_dice" not in trainer.run()
    assert f"{empty}: no voxel has a label" in caplog.text


def test_dice_is_of_the_validation_pairs_with_labels(start, bare):
    lists = {"val": [["p6", "p7"], ["p0", "p7"]], "one": [["p0", "p7"]]}
    (bare / "split.json").write_text(json.dumps({"train": ["p2", "p3"], "pairs": lists}))
    found = []
    for val in ("val", "one"):
        changes = dict(run__iterations=1, run__val_steps=1, data__path=str(bare), data__val=val)
        found.append(start("warmup", val, **changes).run()["val_dice"])
    assert found[0] == found[1] > 0


@pytest.mark.parametrize("backbone, extra", [("compact", {}), ("siamese", {"reader": [8, 8]})])
@pytest.mark.parametrize("given", [{}, {"segmentation_classes": 2}])
def test_the_segmentation_has_a_class_for_every_label(
    start, tiny, tmp_path, backbone, extra, given
):
    options = SMALL | extra
    changes = dict(model__backbone=backbone, run__iterations=2, run__steps=1)
    first = start("best", "two", model__options=options | {"segmentation_classes": 2}, **changes)
    first._save()
    changes |= dict(data__labels=1, run__pretrain=int(backbone == "siamese"))
    config = tiny("best", model__options=options | given, **changes)
    # From a network for two labels, whose head does not fit.
    trainer = start(config, "one", init=tmp_path / "two" / "last.pt")
    assert torch.equal(trainer.backbone.flow.weight, first.backbone.flow.weight)
    trainer.run()
    assert "segmentation" in rows_of(tmp_path / "one")[-1]
    found, config, _ = load_backbone(tmp_path / "one" / "last.pt")
    assert found.segmentation_classes == config.model.options["segmentation_classes"] == 1


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", "bf16", None])
def test_a_cpu_without_bf16_computes_in_float32(start, caplog, monkeypatch, name):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, name: True})
    trainer = start("best", run__amp="bf16")
    assert trainer.precision((24, 24, 24)) == (name is not None)
    assert not caplog.records


@pytest.mark.parametrize("depth, fine", [(8, False), (16, False), (24, True)])
def test_grids_whose_gradients_bf16_gets_wrong_are_computed_in_float32(
    start, caplog, monkeypatch, depth, fine
):
    """Depths 8 and 16 leave two voxels at stride 4 or 8, where oneDNN's bf16 weight gradients are
    wrong on CPUs with avx512_bf16.
    """
    monkeypatch.setattr(precision, "computes_in_bf16", lambda: True)
    options = {"widths": [8, 8, 16], "latent_channels": 16, "decoder": [8, 8]}
    trainer = start("best", run__steps=1, run__amp="bf16", model__options=options)
    pair = trainer.pair(0, trainer.rng(0)).to("cpu")
    pair = type(pair)(
        **{k: v if v is None else v[:, :, :depth].contiguous() for k, v in vars(pair).items()}
    )
    assert [trainer.precision((depth, 24, 24)) for _ in range(2)] == [fine, fine]
    assert [r.name for r in caplog.records] == ([] if fine else ["morphseek.training"])
    gradients = []
    for amp in (trainer.precision((depth, 24, 24)), False):
        trainer.objective.amp = amp
        trainer.objective(pair, torch.zeros(1, 3, depth, 24, 24)).loss.backward()
        weights = trainer.backbone.named_parameters()
        gradients.append({k: p.grad.clone() for k, p in weights if p.grad is not None})
        trainer.optimizer.zero_grad(set_to_none=True)
    for name in ("enc8.1.conv.weight", "fuse.0.conv.weight", "dec8.conv.weight"):
        found, truth = (g[name] for g in gradients)
        assert float((found - truth).norm() / truth.norm()) < 0.3, name


def test_each_pair_has_the_precision_of_its_grid(start, monkeypatch):
    changes = dict(policy__trajectories=2, policy__refresh_pairs=1)
    trainer = start("policy", run__steps=1, run__amp="bf16", **changes)
    seen, state = [], trainer.backbone.state
    monkeypatch.setattr(trainer, "precision", lambda size: len(size) == 2)
    half = torch.is_autocast_enabled
    monkeypatch.setattr(trainer.backbone, "state", lambda *a: seen.append(half("cpu")) or state(*a))
    trainer.run_iteration()
    monkeypatch.setattr(trainer, "precision", lambda size: len(size) == 3)
    trainer.iteration = 0
    trainer.run_iteration()
    assert seen == [False, False, True, True]


@pytest.mark.parametrize("where", ["gradient", "loss"])
def test_a_step_that_is_not_finite_stops_the_run(start, tmp_path, monkeypatch, where):
    changes = dict(run__iterations=4, run__steps=1, run__val_every=2, run__val_steps=1)
    trainer = start("best", **changes, run__checkpoint_minutes=1e-9)
    step = trainer.step_module

    def spoilt(*a, **k):
        result = step(*a, **k)
        if trainer.iteration == 2:
            if where == "loss":
                result.logs["loss"] = torch.tensor(math.nan)
            else:
                result.loss = result.loss * math.inf
        return result

    trainer.step_module = spoilt
    with pytest.raises(
        FloatingPointError,
        match=r"iteration 2: the loss is .*run.amp=none, a lower optim.lr .*--init .*last.pt",
    ):
        trainer.run()
    assert all(p.isfinite().all() for p in trainer.backbone.state_dict().values())
    _, _, last = load_backbone(tmp_path / "last.pt")
    assert last["iteration"] == 2 and last["best"] > 0
    assert len(rows_of(tmp_path)) == 2


def test_a_network_without_numbers_is_never_the_best(start, tmp_path, monkeypatch):
    trainer = start("best", run__iterations=2, run__steps=1, run__val_every=1, run__val_steps=1)
    update = trainer._update

    def broken(logs):
        update(logs)
        logs["odd"] = math.inf
        with torch.no_grad():
            trainer.backbone.flow.bias.fill_(math.nan)
            (trainer.ema or trainer.backbone.state_dict())["flow.bias"].fill_(math.nan)

    monkeypatch.setattr(trainer, "_update", broken)
    with pytest.raises(FloatingPointError):
        trainer.run()
    assert not (tmp_path / "best.pt").exists() and trainer.best == -math.inf

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    (row,) = rows_of(tmp_path, parse_constant=refuse)
    assert [row[key] for key in ("odd", "val_dice", "val_njd_percent")] == [None] * 3
    assert row["loss"] > 0


@pytest.mark.parametrize("backbone", ["voxelmorph-l", "transmorph", "nice-trans"])
@pytest.mark.parametrize(
    "weights",
    [{}, {"loss__segmentation": 0.0, "loss__phases": [{"iteration": 1, "segmentation": 0.3}]}],
)
def test_a_network_without_segmentation_is_refused_its_loss(start, tmp_path, backbone, weights):
    changes = dict(model__backbone=backbone, model__options={}, run__iterations=2, **weights)
    with pytest.raises(ValueError, match=f"loss.segmentation needs .* not {backbone}; set it to 0"):
        start("best", "run", **changes)
    assert not (tmp_path / "run").exists()
    if backbone == "voxelmorph-l":
        changes |= dict(loss__segmentation=0.0, loss__phases=[])
        start("best", "run", **changes)
        # A policy or a warm-up does not compute that loss either.
        start("best", "warm", **changes | weights, run__stage="warmup")


@pytest.mark.parametrize(
    "preset, changes, message",
    [
        ("policy", dict(loss__segmentation=0.3), "'loss.segmentation' cannot .* 'structured'"),
        (
            "paper", dict(loss__phases=[{"iteration": 1, "segmentation": 0.3}]),
            "'loss.segmentation' cannot be combined",
        ),
        ("policy", dict(policy__trajectories=1), "'policy.trajectories' must be 2 or more, not 1"),
        ("paper", dict(policy__trajectories=1), "'policy.trajectories' must be 2 or more, not 1"),
        ("best", dict(data__limit=3), "'data.limit' needs .* 'data.pairs' = 'subjects:train' is"),
        ("best", dict(run__iterations=2, run__pretrain=1), "siamese"),
        (
            "best", SIAMESE | dict(run__iterations=5, run__pretrain=5),
            "run.pretrain = 5 leaves none of run.iterations = 5",
        ),
        (
            "policy", dict(policy__rank=9),
            "'policy.rank' must be at most the network's 8 latent channels, not 9",
        ),
    ],
)  # fmt: skip
def test_keys_that_do_not_fit_are_refused(start, tmp_path, preset, changes, message):
    refused(ValueError, message, start, preset, "run", **changes)
    assert not (tmp_path / "run").exists()


def test_tensorboard_keeps_the_iteration_that_a_run_goes_on_from(start, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for iterations in (10, 20):
        start("best", run__iterations=iterations, run__steps=1, data__val="").run()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20]


def test_the_bar_shows_the_throughput(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    bar = Bar(2, 0, shown=True)
    with bar:
        bar.show(1, {"loss": 0.25}, {})
    assert re.search(r"\d\.\d\d iterations/s +loss 0\.25", capsys.readouterr().out)
