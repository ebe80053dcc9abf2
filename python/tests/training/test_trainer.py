"""Training runs: learning, resuming after a kill, several processes."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from morphseek.training.evaluate import evaluate_pairs
from morphseek.training.run import Trainer, average, load_backbone, precision
from morphseek.training.run.bar import Bar
from morphseek.training.run.log import histories


def final(folder):
    return torch.load(folder / "last.pt", weights_only=True)["model"]


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def test_training_registers_the_phantoms(tiny, tmp_path):
    changes = dict(run__val_every=40, run__val_steps=1, run__picture_every=1, run__keep_every=30)
    config = tiny(
        "best", run__iterations=80, run__steps=1, optim__lr=5e-3, optim__ema=0.9, **changes
    )
    trainer = Trainer(config, tmp_path, progress=False)
    last = trainer.run()
    assert last["val_dice"] > last["val_dice_t0"] + 0.05
    _, _, best = load_backbone(tmp_path / "best.pt")
    assert best["best"] >= last["val_dice"]
    kept = {
        path.name: load_backbone(path)[2]["iteration"] for path in tmp_path.glob("iteration-*.pt")
    }
    assert kept == {"iteration-30.pt": 30, "iteration-60.pt": 60}
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [r["iteration"] for r in rows] == list(range(1, 81))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert "loss" in events.Tags()["scalars"] and len(events.Tags()["images"]) == 1


def test_recognition_is_trained_first(tiny, tmp_path):
    options = {
        "widths": [8, 8, 8],
        "reader": [8, 8],
        "latent_channels": 8,
        "decoder": [8, 8],
        "segmentation_classes": 2,
    }
    changes = dict(
        model__backbone="siamese",
        model__options=options,
        optim__lr=1e-2,
        optim__warmup=1,
        optim__ema=0.5,
    )
    config = tiny(
        "best", run__iterations=46, run__pretrain=45, run__val_every=15, run__val_steps=1, **changes
    )
    trainer = Trainer(config, tmp_path, progress=False)
    flow = trainer.backbone.flow.weight.detach().clone()
    for _ in range(45):
        trainer.run_iteration()
    # The decoder has no loss, so it keeps its weights.
    assert torch.equal(trainer.backbone.flow.weight, flow)
    trainer.run_iteration()
    assert not torch.equal(trainer.backbone.flow.weight, flow)
    trainer = Trainer(config, tmp_path / "logged", progress=False)
    trainer.run()
    rows = [
        json.loads(line) for line in (tmp_path / "logged" / "log.jsonl").read_text().splitlines()
    ]
    found = {
        r["iteration"]: r["val_segmentation_dice"] for r in rows if "val_segmentation_dice" in r
    }
    assert sorted(found) == [15, 30, 45] and found[45] > 0.6
    assert "val_dice" in rows[-1]


def test_some_iterations_of_the_pretraining_register(tiny, tmp_path):
    options = {
        "widths": [8, 8, 8],
        "reader": [8, 8],
        "latent_channels": 8,
        "decoder": [8, 8],
        "segmentation_classes": 2,
    }
    changes = dict(model__backbone="siamese", model__options=options)
    config = tiny(
        "best", run__iterations=7, run__pretrain=6, run__pretrain_joint_every=3, **changes
    )
    trainer = Trainer(config, tmp_path, progress=False)
    assert ["soft_dice" in trainer.run_iteration() for _ in range(7)] == [
        True,
        False,
        False,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("preset", ["best", "paper"])
def test_every_step_has_its_view(tiny, tmp_path, monkeypatch, preset):
    views = dict(model__offsets=[[0, 0, 0], [1, 2, 3]], model__mirrored=[True, False, False, False])
    trainer = Trainer(
        tiny(preset, run__steps=3, **views, policy__trajectories=2), tmp_path, progress=False
    )
    seen, state = [], trainer.backbone.state
    monkeypatch.setattr(
        trainer.backbone,
        "state",
        lambda fixed, moving, view: seen.append(view) or state(fixed, moving, view),
    )
    trainer.run_iteration()
    assert seen == [(0, 0, 0, 1), (1, 2, 3, 0), (0, 0, 0, 0)]


def test_segmentation_is_compared_where_the_images_were_moved_to(tiny, tmp_path):
    trainer = Trainer(tiny("best"), tmp_path, progress=False)
    pair = trainer.pair(0, trainer.rng(0))
    u = torch.zeros(1, 3, *pair.fixed.shape[2:])
    maps = torch.cat((pair.fixed_map, pair.moving_map))[:, 0].long()
    moved = torch.roll(maps, (1, 2), (1, 3))  # the border is background
    logits = 20.0 * torch.nn.functional.one_hot(moved, 3).movedim(4, 1).float()[None]
    assert trainer.objective.segmentation_loss(logits, pair, u, (1, 0, 2, 0)) < 1e-3
    assert trainer.objective.segmentation_loss(logits, pair, u, None) > 0.1


def test_only_a_network_that_reads_single_images_can_be_pretrained(tiny, tmp_path):
    with pytest.raises(ValueError, match="siamese"):
        Trainer(tiny("best", run__iterations=2, run__pretrain=1), tmp_path, progress=False)


@pytest.mark.parametrize("preset", ["best", "paper", "policy"])
def test_resumed_run_ends_with_the_same_weights(tiny, tmp_path, preset):
    changes = dict(
        run__steps=2,
        run__checkpoint_minutes=1e-9,
        optim__ema=0.9,
        policy__refresh=3,
        policy__refresh_pairs=1,
        policy__trajectories=2,
    )
    whole = Trainer(tiny(preset, run__iterations=5, **changes), tmp_path / "whole", progress=False)
    whole.run()
    part = Trainer(tiny(preset, run__iterations=5, **changes), tmp_path / "part", progress=False)
    for _ in range(2):
        part.run_iteration()
    part._save()
    part.run_iteration()  # after the checkpoint: lost, and repeated
    again = Trainer(tiny(preset, run__iterations=5, **changes), tmp_path / "part", progress=False)
    assert again.iteration == 2
    again.run()
    a, b = (torch.load(tmp_path / n / "last.pt", weights_only=True) for n in ("whole", "part"))
    assert (
        same(a["model"], b["model"])
        and same(a["ema"], b["ema"])
        and a["updates"] == b["updates"] == 10
    )
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


def test_killed_at_any_moment(tiny, tmp_path):
    config = tiny("best", run__iterations=14, run__steps=1, run__checkpoint_minutes=1e-9)
    (tmp_path / "c.json").write_text(json.dumps(config.to_dict()))
    command = [sys.executable, "-c", _RUN, str(tmp_path / "c.json"), str(tmp_path / "run")]
    killed = subprocess.run(command, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    done = torch.load(tmp_path / "run" / "last.pt", weights_only=True)["iteration"]
    assert 4 <= done < 14, "the kill must come in the middle"
    Trainer(config, tmp_path / "run", progress=False).run()
    Trainer(config, tmp_path / "whole", progress=False).run()
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))
    iterations = [
        json.loads(line)["iteration"]
        for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    ]
    assert iterations == list(range(1, 15))


def test_a_run_killed_before_its_first_checkpoint_begins_anew(tiny, tmp_path):
    config = tiny("best", run__iterations=2, run__steps=1, run__val_every=1, run__val_steps=1)
    Trainer(config, tmp_path, progress=False).run()
    (tmp_path / "last.pt").unlink()
    again = Trainer(config.replace(**{"data.val": ""}), tmp_path, progress=False)
    again.run()
    assert [
        json.loads(line)["iteration"] for line in (tmp_path / "log.jsonl").read_text().splitlines()
    ] == [1, 2]
    assert not (tmp_path / "best.pt").exists()


def test_resuming_with_other_processes_is_refused(tiny, tmp_path):
    trainer = Trainer(tiny("best"), tmp_path, progress=False)
    trainer.world = 2
    trainer._save()
    with pytest.raises(ValueError, match=r"made by 2 process\(es\), not 1"):
        Trainer(tiny("best"), tmp_path, progress=False)
    old = torch.load(tmp_path / "last.pt", weights_only=True)
    del old["world"]
    torch.save(old, tmp_path / "last.pt")
    Trainer(tiny("best"), tmp_path, progress=False)


def test_indices_are_not_averaged(tiny, tmp_path, monkeypatch):
    """Such as a transformer's tables of relative positions: integers beside the weights."""
    from morphseek.training.run import checkpoint, loop

    def build(model):
        backbone = build_backbone(model)
        backbone.register_buffer("table", torch.arange(100))
        return backbone

    build_backbone = loop.build_backbone
    for module in (checkpoint, loop):
        monkeypatch.setattr(module, "build_backbone", build)
    trainer = Trainer(
        tiny("best", run__iterations=1, run__steps=1, optim__ema=0.9), tmp_path, progress=False
    )
    trainer.run_iteration()
    for iteration in (2, 4, 8):
        trainer.iteration = iteration
        trainer._save(f"iteration-{iteration}.pt")
    mean = average(
        [tmp_path / f"iteration-{iteration}.pt" for iteration in (2, 4, 8)], [0.3, 0.35, 0.35]
    )
    assert torch.equal(trainer.ema["table"], torch.arange(100)) and torch.equal(
        mean["model"]["table"], torch.arange(100)
    )
    assert mean["iteration"] == 8  # the iterations of one run


def test_resuming_with_another_configuration_is_refused(tiny, tmp_path):
    Trainer(tiny("best", run__iterations=1, run__steps=1), tmp_path, progress=False).run()
    with pytest.raises(ValueError, match="another configuration"):
        Trainer(
            tiny("best", run__iterations=1, run__steps=1, optim__lr=1.0), tmp_path, progress=False
        )


def test_fine_tuning_starts_from_the_warm_up(tiny, tmp_path):
    Trainer(tiny("warmup", run__iterations=2), tmp_path / "w", progress=False).run()
    t = Trainer(
        tiny("best", run__iterations=2),
        tmp_path / "f",
        init=tmp_path / "w" / "last.pt",
        progress=False,
    )
    w = final(tmp_path / "w")
    assert all(torch.equal(v, w[k]) for k, v in t.backbone.state_dict().items() if k in w)


@pytest.mark.parametrize(
    "key, then, now", [("parametrisation", "velocity", "displacement"), ("scale", 10.0, 5.0)]
)
def test_weights_that_would_mean_something_else_are_announced(
    tiny, tmp_path, caplog, key, then, now
):
    Trainer(tiny("warmup", **{f"model__{key}": then}), tmp_path, progress=False)._save()
    for value in (then, now):
        Trainer(
            tiny("best", **{f"model__{key}": value}),
            tmp_path / "f",
            init=tmp_path / "last.pt",
            progress=False,
        )
        assert (
            f"was trained with model.{key} = {then!r}, this run has {now!r}" in caplog.text
        ) == (value == now)


def test_schedules(tiny, tmp_path):
    c = tiny(
        "paper",
        run__iterations=100,
        run__steps=3,
        optim__warmup=10,
        optim__lr=1.0,
        optim__schedule="cosine",
        optim__final=0.1,
        policy__tau_every=10,
        run__steps_schedule=[[0, 1], [50, 2]],
    )
    t = Trainer(c, tmp_path, progress=False)
    assert [t.steps(v) for v in (0, 49, 50, 99)] == [1, 1, 2, 2]
    assert [t.temperature(v) for v in (0, 9, 10, 79, 80, 99)] == [10, 10, 9, 3, 2, 2]
    t.config.run.steps_schedule = [[50, 2], [0, 1]]
    assert [t.steps(v) for v in (0, 49, 50, 99)] == [1, 1, 2, 2]
    rate = [t.learning_rate(v) for v in range(100)]
    assert rate[0] == pytest.approx(0.1) and rate[10] == pytest.approx(1.0)
    assert rate[55] == pytest.approx(0.55, abs=0.01) and rate[99] == pytest.approx(0.1, abs=0.01)


def test_target_kl_schedule(tiny, tmp_path):
    t = Trainer(tiny("warmup", loss__kl_target=1.0, loss__kl=0.1), tmp_path, progress=False)
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
torch.save(t.objective.memory.state() | {"kl_weight": t.objective.kl_weight}, sys.argv[2] + f"/state{t.rank}.pt")
"""  # noqa: E501 a program


@pytest.mark.thorough
def test_two_processes_average_their_gradients(tiny, tmp_path):
    """With torchrun and gloo both ranks end with the same weights: those that one process gets from
    the mean of both gradients.
    """
    # The harder case: the policy step, which collects gradients piecewise and passes them on by a
    # surrogate.
    config = tiny(
        "paper",
        run__iterations=1,
        run__steps=1,
        data__val="",
        policy__trajectories=2,
        optim__clip=0.0,
        optim__ema=0.0,
    )
    (tmp_path / "c.json").write_text(json.dumps(config.to_dict()))
    (tmp_path / "rank.py").write_text(_RANK)
    out = tmp_path / "run"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "--log-dir",
        str(tmp_path / "log"),
        str(tmp_path / "rank.py"),
        str(tmp_path / "c.json"),
        str(out),
    ]
    subprocess.run(command, check=True, env=environment, timeout=200, capture_output=True)
    a, b = (torch.load(out / f"rank{r}.pt", weights_only=True) for r in (0, 1))
    assert same(a, b)

    single = Trainer(config, tmp_path / "single", progress=False)
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
    config = tiny(
        "policy",
        run__iterations=2,
        run__steps=1,
        data__val="",
        policy__trajectories=2,
        loss__kl_target=1e-4,
    )
    (tmp_path / "c.json").write_text(json.dumps(config.to_dict()))
    (tmp_path / "rank.py").write_text(_RANK)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "--log-dir",
        str(tmp_path / "log"),
        str(tmp_path / "rank.py"),
        str(tmp_path / "c.json"),
        str(tmp_path),
    ]
    subprocess.run(
        command,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=200,
        capture_output=True,
    )
    a, b = (torch.load(tmp_path / f"state{r}.pt", weights_only=True) for r in (0, 1))
    assert (
        torch.equal(a.pop("basis"), b.pop("basis")) and a == b and a["kl_weight"] != config.loss.kl
    )


@pytest.mark.parametrize("steps", [1, 2])
def test_evaluation_is_exact_on_a_known_shift(phantoms, steps):
    """A stand-in network that always returns the true shift must score a Dice of 1 after one step,
    not after two.
    """
    from morphseek.training.backbones import Encoded
    from morphseek.training.pairs import PairSource

    source = PairSource(phantoms, 2)
    source.case("p0")
    moved = source._cases["q"] = type(source.case("p0"))(**vars(source.case("p0")))
    moved.labels = torch.roll(moved.labels, (2, -1), (3, 4))

    class Shift(torch.nn.Module):
        size_multiple = 8

        def view(self, step):
            return None

        def state(self, fixed, moving, view):
            return Encoded(torch.zeros(1, 1, 1, 1, 1), torch.zeros(1, 1, 1, 1, 1), (fixed,))

        def step_field(self, z, encoded):
            return (
                torch.tensor([0.0, 2.0, -1.0])
                .view(1, 3, 1, 1, 1)
                .expand(1, 3, *encoded.skips[0].shape[2:])
            )

    (row,) = evaluate_pairs(Shift(), source, [("p0", "q")], (1, 1, 1), (24, 24, 24), steps)
    scores = [s["dice"] for s in row["steps"]]
    assert scores[0] < 0.9 and scores[1] == pytest.approx(1.0)
    if steps == 2:
        assert scores[2] < 0.9  # twice the shift is too far
    assert row["steps"][1]["njd"] == 0.0


@pytest.mark.parametrize(
    "key, value",
    [
        ("spacing", [2.0, 2.0, 2.0]),
        ("percentiles", [5.0, 60.0]),
        ("labels", 1),
        ("pairs", "grpo"),
        ("val", ""),
    ],
)
def test_resuming_on_other_data_is_refused(tiny, tmp_path, key, value):
    Trainer(tiny("warmup", run__iterations=1), tmp_path, progress=False).run()
    with pytest.raises(
        ValueError, match=rf"last.pt was made with another configuration \(data.{key}\)"
    ):
        Trainer(
            tiny("warmup", run__iterations=2, **{f"data__{key}": value}), tmp_path, progress=False
        )


def test_a_run_goes_on_where_its_data_was_moved(tiny, tmp_path, phantoms):
    Trainer(tiny("warmup", run__iterations=1), tmp_path / "run", progress=False).run()
    shutil.copytree(phantoms, tmp_path / "moved")
    moved = tiny("warmup", run__iterations=2, data__path=str(tmp_path / "moved"), data__test="val")
    assert Trainer(moved, tmp_path / "run", progress=False).iteration == 1


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
def test_fine_tuning_wants_every_label_file(tiny, bare, tmp_path, pairs, val, message):
    changes = dict(data__path=str(bare), data__pairs=pairs, data__val=val)
    with pytest.raises(ValueError, match=message):
        Trainer(tiny("best", **changes), tmp_path / "run", progress=False)
    Trainer(tiny("warmup", **changes), tmp_path / "run", progress=False)


def test_an_empty_list_is_refused(tiny, bare, tmp_path):
    (bare / "split.json").write_text(
        json.dumps({"alone": ["p0"], "pairs": {"none": [], "val": []}})
    )
    for pairs in ("none", "subjects:alone"):
        with pytest.raises(ValueError, match=f"data.pairs = '{pairs}' names no pair"):
            Trainer(
                tiny("warmup", data__path=str(bare), data__pairs=pairs),
                tmp_path / "run",
                progress=False,
            )


@pytest.mark.parametrize("labels", [0, 2])
def test_warm_up_without_labels_is_validated_without_dice(tiny, bare, tmp_path, labels):
    """p6 of the validation pair has no label file. So there is no Dice and no best.pt, whether or
    not labels are configured.
    """
    config = tiny(
        "warmup",
        run__iterations=2,
        run__val_every=1,
        run__val_steps=1,
        data__path=str(bare),
        data__labels=labels,
    )
    last = Trainer(config, tmp_path / "run", progress=True).run()
    assert last.keys() == {"val_njd_percent", "val_sdlogj"}
    assert (tmp_path / "run" / "last.pt").exists() and not (tmp_path / "run" / "best.pt").exists()


def test_dice_is_of_the_validation_pairs_with_labels(tiny, bare, tmp_path):
    (bare / "split.json").write_text(
        json.dumps(
            {
                "pairs": {
                    "warmup": [["p0", "p2"]],
                    "val": [["p6", "p7"], ["p0", "p7"]],
                    "one": [["p0", "p7"]],
                }
            }
        )
    )
    found = []
    for val in ("val", "one"):
        config = tiny(
            "warmup", run__iterations=1, run__val_steps=1, data__path=str(bare), data__val=val
        )
        found.append(Trainer(config, tmp_path / val, progress=False).run()["val_dice"])
    assert found[0] == found[1] > 0


def test_pretraining_must_leave_iterations(tiny, tmp_path):
    options = {"widths": [8, 8, 8], "reader": [8, 8], "latent_channels": 8, "decoder": [8, 8]}
    with pytest.raises(ValueError, match="run.pretrain = 5 leaves none of run.iterations = 5"):
        Trainer(
            tiny(
                "best",
                model__backbone="siamese",
                model__options=options,
                run__iterations=5,
                run__pretrain=5,
            ),
            tmp_path,
            progress=False,
        )


@pytest.mark.parametrize("backbone, extra", [("compact", {}), ("siamese", {"reader": [8, 8]})])
@pytest.mark.parametrize("given", [{}, {"segmentation_classes": 2}])
def test_the_segmentation_has_a_class_for_every_label(tiny, tmp_path, backbone, extra, given):
    options = {"widths": [8, 8, 8], "latent_channels": 8, "decoder": [8, 8]} | extra
    changes = dict(model__backbone=backbone, run__iterations=2, run__steps=1)
    first = Trainer(
        tiny("best", model__options=options | {"segmentation_classes": 2}, **changes),
        tmp_path / "two",
        progress=False,
    )
    first._save()
    config = tiny(
        "best",
        model__options=options | given,
        data__labels=1,
        run__pretrain=backbone == "siamese" and 1 or 0,
        **changes,
    )
    # From a network for two labels, whose head does not fit.
    trainer = Trainer(config, tmp_path / "one", init=tmp_path / "two" / "last.pt", progress=False)
    assert torch.equal(trainer.backbone.flow.weight, first.backbone.flow.weight)
    trainer.run()
    assert "segmentation" in json.loads(
        (tmp_path / "one" / "log.jsonl").read_text().splitlines()[-1]
    )
    found, config, _ = load_backbone(tmp_path / "one" / "last.pt")
    assert found.segmentation_classes == config.model.options["segmentation_classes"] == 1


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", "bf16", None])
def test_a_cpu_without_bf16_computes_in_float32(tiny, tmp_path, caplog, monkeypatch, name):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, name: True})
    trainer = Trainer(tiny("best", run__amp="bf16"), tmp_path, progress=False)
    assert trainer.precision((24, 24, 24)) == (name is not None)
    assert not caplog.records


@pytest.mark.parametrize("depth, fine", [(8, False), (16, False), (24, True)])
def test_grids_whose_gradients_bf16_gets_wrong_are_computed_in_float32(
    tiny, tmp_path, caplog, monkeypatch, depth, fine
):
    """Depths 8 and 16 leave two voxels at stride 4 or 8, where oneDNN's bf16 weight gradients are
    wrong on CPUs with avx512_bf16.
    """
    monkeypatch.setattr(precision, "computes_in_bf16", lambda: True)
    changes = dict(
        run__steps=1,
        run__amp="bf16",
        model__options={"widths": [8, 8, 16], "latent_channels": 16, "decoder": [8, 8]},
    )
    trainer = Trainer(tiny("best", **changes), tmp_path, progress=False)
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
        gradients.append(
            {
                k: p.grad.clone()
                for k, p in trainer.backbone.named_parameters()
                if p.grad is not None
            }
        )
        trainer.optimizer.zero_grad(set_to_none=True)
    for name in ("enc8.1.conv.weight", "fuse.0.conv.weight", "dec8.conv.weight"):
        found, truth = (g[name] for g in gradients)
        assert float((found - truth).norm() / truth.norm()) < 0.3, name


def test_each_pair_has_the_precision_of_its_grid(tiny, tmp_path, monkeypatch):
    trainer = Trainer(
        tiny(
            "policy", run__steps=1, run__amp="bf16", policy__trajectories=2, policy__refresh_pairs=1
        ),
        tmp_path,
        progress=False,
    )
    seen, state = [], trainer.backbone.state
    monkeypatch.setattr(trainer, "precision", lambda size: len(size) == 2)
    monkeypatch.setattr(
        trainer.backbone,
        "state",
        lambda *a: seen.append(torch.is_autocast_enabled("cpu")) or state(*a),
    )
    trainer.run_iteration()
    monkeypatch.setattr(trainer, "precision", lambda size: len(size) == 3)
    trainer.iteration = 0
    trainer.run_iteration()
    assert seen == [False, False, True, True]


@pytest.mark.parametrize("where", ["gradient", "loss"])
def test_a_step_that_is_not_finite_stops_the_run(tiny, tmp_path, monkeypatch, where):
    config = tiny(
        "best",
        run__iterations=4,
        run__steps=1,
        run__val_every=2,
        run__val_steps=1,
        run__checkpoint_minutes=1e-9,
    )
    trainer = Trainer(config, tmp_path, progress=False)
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
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2


def test_a_network_without_numbers_is_never_the_best(tiny, tmp_path, monkeypatch):
    trainer = Trainer(
        tiny("best", run__iterations=2, run__steps=1, run__val_every=1, run__val_steps=1),
        tmp_path,
        progress=False,
    )
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

    (row,) = [
        json.loads(line, parse_constant=refuse)
        for line in (tmp_path / "log.jsonl").read_text().splitlines()
    ]
    assert (
        row["odd"] is None
        and row["val_dice"] is None
        and row["val_njd_percent"] is None
        and row["loss"] > 0
    )


@pytest.mark.parametrize("backbone", ["voxelmorph-l", "transmorph", "nice-trans"])
@pytest.mark.parametrize(
    "weights",
    [{}, {"loss__segmentation": 0.0, "loss__phases": [{"iteration": 1, "segmentation": 0.3}]}],
)
def test_a_network_without_segmentation_is_refused_its_loss(tiny, tmp_path, backbone, weights):
    changes = dict(model__backbone=backbone, model__options={}, run__iterations=2, **weights)
    with pytest.raises(ValueError, match=f"loss.segmentation needs .* not {backbone}; set it to 0"):
        Trainer(tiny("best", **changes), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    if backbone == "voxelmorph-l":
        changes |= dict(loss__segmentation=0.0, loss__phases=[])
        Trainer(tiny("best", **changes), tmp_path / "run", progress=False)
        # A policy or a warm-up does not compute that loss either.
        Trainer(
            tiny("best", **changes | weights, run__stage="warmup"),
            tmp_path / "warm",
            progress=False,
        )


def test_the_noise_has_at_most_as_many_directions_as_channels(tiny, tmp_path):
    Trainer(tiny("policy", policy__rank=8), tmp_path / "run", progress=False)
    with pytest.raises(
        ValueError, match="'policy.rank' must be at most the network's 8 latent channels, not 9"
    ):
        Trainer(tiny("policy", policy__rank=9), tmp_path / "more", progress=False)


@pytest.mark.parametrize(
    "preset, changes, message",
    [
        (
            "policy",
            {"loss__segmentation": 0.3},
            "'loss.segmentation' cannot be combined with a policy .*'structured'",
        ),
        (
            "paper",
            {"loss__phases": [{"iteration": 1, "segmentation": 0.3}]},
            "'loss.segmentation' cannot be combined",
        ),
        ("policy", {"policy__trajectories": 1}, "'policy.trajectories' must be 2 or more, not 1"),
        ("paper", {"policy__trajectories": 1}, "'policy.trajectories' must be 2 or more, not 1"),
        (
            "best",
            {"data__limit": 3},
            "'data.limit' needs a list of pairs, and 'data.pairs' = 'subjects:train' is none",
        ),
    ],
)
def test_keys_that_would_have_no_effect_are_refused(tiny, tmp_path, preset, changes, message):
    with pytest.raises(ValueError, match=message):
        Trainer(tiny(preset, **changes), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_run_of_an_earlier_version_goes_on(tiny, tmp_path):
    """Checkpoints and logs up to 0.28.0 say visit where they say iteration now."""
    changes = {"run__steps": 1, "data__val": ""}
    Trainer(tiny("best", run__iterations=2, **changes), tmp_path, progress=False).run()
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    saved["visit"] = saved.pop("iteration")
    torch.save(saved, tmp_path / "last.pt")
    log = tmp_path / "log.jsonl"
    log.write_text(log.read_text().replace('"iteration"', '"visit"'))
    Trainer(tiny("best", run__iterations=3, **changes), tmp_path, progress=False).run()
    assert histories(tmp_path, ("loss",))["iteration"] == [1, 2, 3]


def test_tensorboard_keeps_the_iteration_that_a_run_goes_on_from(tiny, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for iterations in (10, 20):
        Trainer(
            tiny("best", run__iterations=iterations, run__steps=1, data__val=""),
            tmp_path,
            progress=False,
        ).run()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20]


def test_the_bar_shows_the_throughput(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    bar = Bar(2, 0, shown=True)
    with bar:
        bar.update(1, {"loss": 0.25}, {})
    assert re.search(r"\d\.\d\d iterations/s +loss 0\.25", capsys.readouterr().out)
