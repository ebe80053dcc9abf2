"""``morphseek train``: three commands from pairs to a bundle, and the errors that users meet."""

import json
import shutil
import signal
from unittest import mock

import ablate
import diagnostics
import onnx
import pytest
import SimpleITK as sitk
import torch
from click.testing import CliRunner

from morphseek.training.cli import app
from morphseek.training.export import read_manifest
from morphseek.training.run import Trainer, load_backbone
from training_helpers import TINY

RESEARCH = {  # commands of the scripts beside the package
    "diagnose": diagnostics.app,
    "run": ablate.app,
    "tables": ablate.app,
}
SHORT = TINY | {"run.val_every": 3, "run.iterations": 3}


def sets(**keys):
    """Return a short run's ``--set`` options with other values of some keys."""
    keys = SHORT | {key.replace("__", "."): value for key, value in keys.items()}
    return [word for key, v in keys.items() for word in ("--set", f"{key}={json.dumps(v)}")]


@pytest.fixture
def call(phantoms, tmp_path):
    """Run a line, in which {t} is the test's folder and {d} the data; return the output."""

    def run(line, *more, code=0):
        words = line.replace("{d}", f"--data {phantoms}").replace("{t}", str(tmp_path)).split()
        done = CliRunner().invoke(RESEARCH.get(words[0], app), [*words, *more])
        assert done.exit_code == code, (line, done.output, done.exception)
        assert "Traceback" not in done.output
        return done.output

    return run


def test_three_commands_make_a_bundle(call, tmp_path, recwarn):
    text = call("warmup warmup --out {t}/w -q {d}", *sets())
    assert "done: 3 iterations, 3 optimiser steps" in text and "validation Dice" in text
    paper = dict(policy__trajectories=2, run__steps=1, model__parametrisation="velocity")
    call("finetune paper --out {t}/f --init {t}/w/best.pt -q {d}", *sets(**paper))
    options = TINY["model.options"] | {"reader": [8, 8]}
    other = sets(model__backbone="siamese", model__options=options)
    text = call("finetune best --out {t}/g --init {t}/f/best.pt -q {d}", *other, code=2)
    assert "its network is compact, the configured one siamese" in text
    assert not (tmp_path / "g").exists()
    (tmp_path / "name.toml").write_text(
        'base = "paper"\n[bundle]\nname = "phantom"\nlicence = "CC0-1.0"\n'
    )
    views = "--set model.mirrored=[false,true]"
    call(
        "export {t}/name.toml --checkpoint {t}/f/best.pt --out {t}/b.onnx"
        f" --set data.test=val {views} {{d}}"
    )
    assert not [w for w in recwarn if "axis name" in str(w.message)]
    # the steps were given views
    assert "first" in {i.name for i in onnx.load(tmp_path / "b.onnx").graph.initializer}
    own = "--set data.spacing=[2,2,2] --set bundle.name=x"
    text = call("export best --checkpoint {t}/f/best.pt --out {t}/c.onnx " + own, code=2)
    assert "--set data.spacing: the network and its run come from the checkpoint" in text
    m = read_manifest(tmp_path / "b.onnx")
    assert (m["name"], m["licence"]) == ("phantom", "CC0-1.0")
    assert m["metrics"]["test_pairs"] == 1 and 0 < m["metrics"]["test_dice"] <= 1

    assert "T = 2: Dice" in call("evaluate {t}/f/best.pt {d} --steps 2 --to {t}/e.json")
    rows = json.loads((tmp_path / "e.json").read_text())
    assert len(rows) == 2 and len(rows[0]["steps"]) == 3

    names = ("w/last.pt", "f/best.pt", "mean.pt")
    call("average {t}/w/last.pt {t}/f/best.pt --share 3 --share 1 --out {t}/mean.pt")
    a, b, m = (load_backbone(tmp_path / name)[0].state_dict() for name in names)
    for key in a:
        assert torch.allclose(m[key], 0.75 * a[key] + 0.25 * b[key], atol=1e-6), key
    call("evaluate {t}/mean.pt {d} --steps 1")
    changed = torch.load(tmp_path / "f" / "best.pt", weights_only=True)
    changed["config"]["model"]["parametrisation"] = "displacement"
    torch.save(changed, tmp_path / "displacement.pt")
    text = call("average {t}/f/best.pt {t}/displacement.pt --out {t}/mean.pt", code=2)
    assert "different networks" in text
    call("average {t}/f/best.pt {t}/f/best.pt --out {t}", code=6)
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}*"))

    assert "gone" in call("diagnose {t}/f/best.pt --data {t}/gone", code=3)
    text = call("diagnose {t}/f/best.pt {d} --pairs 1")
    for words in ("samples at tau", "Var(sum X_i)", "gradient norms", "sigma over the run"):
        assert words in text


@pytest.mark.parametrize(
    "line, code, message",
    [
        ("warmup nothing {o}", 2, "no preset 'nothing'"),
        ("warmup best {o} --set run.vists=3", 2, "run.vists"),
        ("finetune best {o} --data {t}/gone", 3, "does not exist"),
        ("finetune best {o}", 2, "no data folder"),
        ("finetune best {o} {d} --set data.labels=0", 2, "needs labels"),
        ("finetune best {o} {d} --set iterations=3", 2, "write SECTION.KEY"),
        (
            "finetune best {o} {d} --set run.iterations=500",
            2,
            "run.pretrain = 2700 leaves none of run.iterations = 500",
        ),
        (
            "finetune paper {o} {d} --set run.device=abacus",
            2,
            "PyTorch has no device 'abacus' here",
        ),
        ("finetune policy {o} {d} --set policy.refresh=0", 2, "policy.refresh"),
        ("export paper {o} --random 0", 2, "ends in .onnx"),
        ("export paper {o}.onnx", 2, "either --checkpoint or --random"),
        ("export paper {o}.onnx --random 0 --set model.backbone=nice-trans", 2, "--size D,H,W"),
        ("export paper {o}.onnx --random 0 --size 24,20,24", 2, "not a multiple of 8"),
        ("export paper {o}.onnx --random 0 --size 24,32", 2, "--size 24,32: give 3 whole numbers"),
        ('export paper {o}.onnx --random 0 --set model.options={"x":1}', 2, "model.options"),
        ("export paper {o}.onnx --checkpoint {t}", 3, "Is a directory"),
        ("evaluate {t}/no.pt {d}", 2, "is no checkpoint"),
        ("evaluate gone.pt {d}", 3, "gone.pt"),
        ("evaluate gone.pt {d} --to {t}/nowhere/x.json", 2, "there is no folder"),
        ("average {t}/only.pt {o}", 2, "at least two checkpoints"),
        ("average a.pt b.pt --share 1 {o}", 2, "as many shares"),
        ("average a.pt b.pt --share nan --share 1 {o}", 2, "as many shares"),
        ("average gone.pt gone.pt {o}", 3, "gone.pt"),
        ("diagnose gone.pt {d} --trajectories 1,4", 2, "give one or more whole numbers above 1"),
        ("diagnose gone.pt {d} --pairs 0", 2, "--pairs"),
        ("tables {t}", 2, "no results"),
        ("run everything {o} {d}", 2, "unknown group"),
        ("run steps {o} {d} --arms t1,t9", 2, "unknown arm 't9'; there are t1"),
        ("run steps {o} {d} --scale huge", 2, "unknown scale 'huge'; there are small, full"),
        ("run steps {o} {d} --set run.steps=2", 2, "'run.steps' is what the arm 't1' of 'steps'"),
        ("run steps {o} {d} --set data.labels", 2, "expected KEY=VALUE"),
        ("run steps {o} {d} --set data.lables=3", 2, "unknown key 'data.lables'"),
    ],
)
def test_an_error_is_one_line(call, tmp_path, line, code, message):
    (tmp_path / "no.pt").write_bytes(b"no checkpoint")
    assert message in call(line.replace("{o}", "--out {t}/o"), code=code)


def test_presets_are_listed(call):
    names = {line.split()[0] for line in call("presets").splitlines()}
    assert {"best", "paper", "policy"} <= names


@pytest.mark.thorough
def test_a_network_that_never_saw_labels(call, tmp_path):
    text = call("warmup warmup --out {t}/w -q {d}", *sets(data__labels=0))
    assert "validation NJD" in text and "go on from last.pt" in text
    text = call("evaluate {t}/w/last.pt {d} --steps 1")
    assert "T = 1: NJD" in text and "2 pairs, 0 of them with labels" in text
    text = call("diagnose {t}/w/last.pt {d}")
    assert "no labels" in text and "Dice 0.00" not in text and "similarity" in text
    assert "--signal needs labels" in call("diagnose {t}/w/last.pt {d} --signal", code=2)
    text = call("export warmup --checkpoint {t}/w/last.pt --out {t}/b.onnx {d}")
    metrics = json.loads(text.splitlines()[-1])
    assert metrics["test_pairs"] == 2 and "test_njd_percent" in metrics
    assert "test_dice" not in metrics
    text = call("evaluate {t}/w/last.pt --pairs nope {d}", code=3)
    assert "no pair list 'nope'" in text
    text = call("export warmup --checkpoint {t}/w/last.pt --out {t}/c.onnx --data {t}", code=3)
    assert "neither split.json" in text


def test_a_run_that_is_stopped_while_it_pretrains_ends_well(call, monkeypatch):
    validate = Trainer.validate

    def stop(trainer):
        trainer._on_signal(signal.SIGTERM, None)
        return validate(trainer)

    monkeypatch.setattr(Trainer, "validate", stop)
    options = {"widths": [8, 8, 8], "reader": [8, 8], "latent_channels": 8, "decoder": [8, 8]}
    changes = {"model__backbone": "siamese", "model__options": options}
    changes |= {"run__pretrain": 8, "run__iterations": 9}
    text = call("finetune best --out {t} -q {d}", *sets(**changes), code=130)
    assert "stopped; repeat the command" in text and "validation segmentation Dice" in text


@pytest.fixture
def data(phantoms, tmp_path):
    """Return a copy of the data, to change it."""
    return shutil.copytree(phantoms, tmp_path / "data")


def change_labels(paths, change):
    for path in paths:
        sitk.WriteImage(change(sitk.ReadImage(str(path))), str(path))


def test_a_bad_label_file_is_one_line(call, data):
    change_labels((data / "labels").iterdir(), lambda m: sitk.Cast(m, sitk.sitkInt16) * 200)
    text = call("finetune paper --out {t}/o -q --data {t}/data", *sets(), code=3)
    assert "label 400; labels must be" in text


def test_labels_above_their_number_are_announced(call, data, caplog):
    one, few = data / "labels" / "p6.nii.gz", sets(policy__trajectories=2)
    change_labels([one], lambda m: m + 1)  # labels 2 and 3, background 1
    call("finetune paper --out {t}/a --data {t}/data -q", *few)
    assert caplog.text.count(f"{one}: label 3 is above data.labels = 2") == 1
    change_labels((data / "labels").iterdir(), lambda m: m * 10)
    text = call("finetune paper --out {t}/b --data {t}/data -q", *sets(), code=3)
    assert "its labels are 10, 20, none of them from 1 to 2" in text
    # A warm-up needs no labels: for their values it only warns.
    call("warmup warmup --out {t}/c --data {t}/data -q", *sets())
    assert "label 20 is above" in caplog.text


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_what_is_no_number_is_null_in_json(start, call, tmp_path):
    """No volume has label 3."""
    start("best", data__labels=3)._save()
    call("evaluate {t}/last.pt {d} --pairs val --steps 1 --to {t}/e.json")
    (row,) = json.loads((tmp_path / "e.json").read_text(), parse_constant=refuse)
    assert row["steps"][1]["dice_3"] is None and row["steps"][1]["dice_1"] > 0


def test_what_ends_a_run_is_one_line(call, data, monkeypatch):
    (data / "few.csv").write_text("fixed,moving\np0,p1\n")
    few = sets(data__pairs="few.csv", data__val="")
    with monkeypatch.context() as m:
        m.setattr(Trainer, "learning_rate", lambda trainer, iteration: 1e30)
        text = call("warmup warmup --out {t}/far --data {t}/data -q", *few, code=5)
    assert "morphseek: iteration 1: the loss is " in text and "lower optim.lr" in text
    for place, name, error, code, message in (
        (Trainer, "run_iteration", RuntimeError("CUDA out of memory. Tried 2 GiB"), 5, "data.spac"),
        (Trainer, "run_iteration", MemoryError(), 5, "too little memory"),
        (torch, "save", RuntimeError("unexpected pos 146432 vs 146352"), 6, "last.pt cannot be"),
        (torch, "save", OSError(28, "No space left on device"), 6, "last.pt: the disk is full"),
    ):
        with monkeypatch.context() as m:
            m.setattr(place, name, mock.Mock(side_effect=error))
            text = call("warmup warmup --out {t}/m --data {t}/data -q", *few, code=code)
        assert message in text
    image = data / "images" / "p1.nii.gz"
    image.write_bytes(image.read_bytes()[:2000])
    text = call("warmup warmup --out {t}/o --data {t}/data -q", *few, code=3)
    assert f"{image} " in text.replace("\n", "")
    image.unlink()
    assert "no image 'p1'" in call("warmup warmup --out {t}/p --data {t}/data -q", *few, code=3)
    (data / "split.json").write_text("[]")
    text = call("finetune paper --out {t}/q --data {t}/data -q", *sets(), code=3)
    assert "split.json is no JSON object" in text
