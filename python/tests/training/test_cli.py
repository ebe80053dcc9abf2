"""``morphseek train``: three commands from pairs to a bundle, and the errors that users meet."""

import json

import ablate
import diagnostics
import onnx
import pytest
import torch
from typer.testing import CliRunner

from morphseek.training.cli import app

RESEARCH = {  # commands of the scripts beside the package
    "diagnose": diagnostics.app,
    "memory": diagnostics.app,
    "run": ablate.app,
    "tables": ablate.app,
}

run = CliRunner()
TINY = [
    "--set",
    "model.backbone=compact",
    "--set",
    "run.pretrain=0",
    "--set",
    'model.options={"widths": [4, 4, 8], "latent_channels": 8, "decoder": [8, 8]}',
    "--set",
    "data.min_size=[24, 24, 24]",
    "--set",
    "run.threads=1",
    "--set",
    "run.val_every=3",
    "--set",
    "run.iterations=3",
    "--set",
    "run.amp=none",
    "--set",
    "run.steps_schedule=[]",
]


def test_three_commands_make_a_bundle(phantoms, tmp_path, recwarn):
    data = ["--data", str(phantoms)]
    r = run.invoke(app, ["warmup", "warmup", "--out", str(tmp_path / "w"), "-q", *data, *TINY])
    assert r.exit_code == 0, r.output
    assert "done: 3 iterations, 3 optimiser steps" in r.output and "validation Dice" in r.output
    paper = [
        "--set",
        "policy.trajectories=2",
        "--set",
        "run.steps=1",
        "--set",
        "model.parametrisation=velocity",
    ]
    r = run.invoke(
        app,
        [
            "finetune",
            "paper",
            "--out",
            str(tmp_path / "f"),
            "--init",
            str(tmp_path / "w" / "best.pt"),
            "-q",
            *data,
            *TINY,
            *paper,
        ],
    )
    assert r.exit_code == 0, r.output
    best = str(tmp_path / "f" / "best.pt")
    other = [
        w.replace("compact", "siamese").replace(
            '"decoder": [8, 8]', '"decoder": [8, 8], "reader": [8, 8]'
        )
        for w in TINY
    ]
    r = run.invoke(
        app, ["finetune", "best", "--out", str(tmp_path / "g"), "--init", best, "-q", *data, *other]
    )
    assert (
        r.exit_code == 2
        and "its network is compact, the configured one siamese" in r.output
        and not (tmp_path / "g").exists()
    ), r.output
    r = run.invoke(
        app,
        [
            "export",
            "best",
            "--checkpoint",
            best,
            "--out",
            str(tmp_path / "mine.onnx"),
            "--set",
            "model.mirrored=[false,true]",
        ],
    )
    assert r.exit_code == 0, r.output
    (tmp_path / "name.toml").write_text(
        'base = "paper"\n[bundle]\nname = "phantom"\nlicence = "CC0-1.0"\n'
    )
    r = run.invoke(
        app,
        [
            "export",
            str(tmp_path / "name.toml"),
            "--checkpoint",
            best,
            "--out",
            str(tmp_path / "b.onnx"),
            *data,
            "--set",
            "data.test=val",
        ],
    )
    assert r.exit_code == 0, r.output
    assert not [w for w in recwarn if "axis name" in str(w.message)]
    from morphseek.training.export import graph_sha256, read_manifest

    counts = [
        "first" in {i.name for i in onnx.load(tmp_path / name).graph.initializer}
        for name in ("mine.onnx", "b.onnx")
    ]
    assert counts == [True, False]  # only the first was given views of its steps
    m = read_manifest(tmp_path / "mine.onnx")  # what was not given is not in it
    assert (m["name"], m["licence"], m["credit"], m["training_data"]) == ("mine", "", "", [])
    m = read_manifest(tmp_path / "b.onnx")
    assert (m["name"], m["licence"], m["sha256"]) == (
        "phantom",
        "CC0-1.0",
        graph_sha256(tmp_path / "b.onnx"),
    )
    assert m["metrics"]["test_pairs"] == 1 and 0 < m["metrics"]["test_dice"] <= 1
    r = run.invoke(app, ["evaluate", best, *data, "--steps", "2", "--to", str(tmp_path / "e.json")])
    assert r.exit_code == 0 and "T = 2: Dice" in r.output
    rows = json.loads((tmp_path / "e.json").read_text())
    assert len(rows) == 2 and len(rows[0]["steps"]) == 3
    warm, mean = str(tmp_path / "w" / "last.pt"), tmp_path / "mean.pt"
    r = run.invoke(app, ["average", warm, best, "--share", "3", "--share", "1", "--out", str(mean)])
    assert r.exit_code == 0, r.output
    from morphseek.training.run import load_backbone

    a, b, m = (load_backbone(path)[0].state_dict() for path in (warm, best, mean))
    for key in a:
        assert torch.allclose(m[key], 0.75 * a[key] + 0.25 * b[key], atol=1e-6), key
    assert run.invoke(app, ["evaluate", str(mean), *data, "--steps", "1"]).exit_code == 0
    changed = torch.load(best, weights_only=True)
    changed["config"]["model"]["parametrisation"] = "displacement"
    torch.save(changed, tmp_path / "displacement.pt")
    r = run.invoke(app, ["average", best, str(tmp_path / "displacement.pt"), "--out", str(mean)])
    assert r.exit_code == 2 and "different networks" in r.output, r.output
    r = run.invoke(app, ["average", best, best, "--out", str(tmp_path)])
    assert r.exit_code == 6 and not list(tmp_path.parent.glob(f".{tmp_path.name}*")), r.output
    r = run.invoke(diagnostics.app, ["diagnose", best, "--data", str(tmp_path / "gone")])
    assert r.exit_code == 2 and "gone" in r.output and "Traceback" not in r.output, r.output
    r = run.invoke(diagnostics.app, ["diagnose", best, *data, "--pairs", "1"])
    assert r.exit_code == 0, r.output
    for words in ("samples at tau", "Var(sum X_i)", "gradient norms", "sigma over the run"):
        assert words in r.output


def test_errors_are_one_line(phantoms, tmp_path):
    out, bundle = ["--out", str(tmp_path / "o")], ["--out", str(tmp_path / "o.onnx")]
    (tmp_path / "no.pt").write_bytes(b"no checkpoint")
    for arguments, message in (
        (["warmup", "nothing", *out], "no preset 'nothing'"),
        (["warmup", "best", *out, "--set", "run.vists=3"], "run.vists"),
        (["finetune", "best", *out, "--data", str(tmp_path / "gone")], "does not exist"),
        (["finetune", "best", *out], "no data folder"),
        (
            ["finetune", "best", *out, "--data", str(phantoms), "--set", "data.labels=0"],
            "needs labels",
        ),
        (["export", "paper", *out, "--random", "0"], "ends in .onnx"),
        (["export", "paper", *bundle], "either --checkpoint or --random"),
        (
            ["export", "paper", *bundle, "--random", "0", "--set", "model.backbone=nice-trans"],
            "--size D,H,W",
        ),
        (
            ["export", "paper", *bundle, "--random", "0", "--size", "24,20,24"],
            "not a multiple of 8",
        ),
        (
            ["export", "paper", *bundle, "--random", "0", "--set", 'model.options={"x": 1}'],
            "model.options",
        ),
        (
            ["finetune", "paper", *out, "--data", str(phantoms), "--set", "run.device=abacus"],
            "'abacus' is no device",
        ),
        (["evaluate", str(tmp_path / "no.pt"), "--data", str(phantoms)], "is no checkpoint"),
        (
            [
                "evaluate",
                "gone.pt",
                "--data",
                str(phantoms),
                "--to",
                str(tmp_path / "nowhere" / "x.json"),
            ],
            "there is no folder",
        ),
        (["tables", str(tmp_path)], "no results"),
        (
            ["run", "steps", *out, "--data", str(phantoms), "--arms", "t1,t9"],
            "unknown arm 't9'; there are t1",
        ),
        (["average", str(tmp_path / "only.pt"), *out], "at least two checkpoints"),
        (["average", "a.pt", "b.pt", "--share", "1", *out], "as many shares"),
        (["average", "a.pt", "b.pt", "--share", "nan", "--share", "1", *out], "as many shares"),
        (
            ["finetune", "policy", *out, "--data", str(phantoms), "--set", "policy.refresh=0"],
            "policy.refresh",
        ),
        (
            ["export", "paper", *bundle, "--random", "0", "--size", "24,32"],
            "--size 24,32: give 3 whole numbers",
        ),
        (["export", "paper", *bundle, "--checkpoint", str(tmp_path)], "Is a directory"),
        (["memory", "--trajectories", "x"], "--trajectories x: give one or more whole numbers"),
        (["memory", "--size", "50,60,50"], "(50, 60, 50) is not a multiple of 8"),
        (["memory", "--backbone", "foo"], "unknown backbone 'foo'; known: compact"),
        (
            ["diagnose", "gone.pt", "--data", str(phantoms), "--trajectories", "1,4"],
            "--trajectories 1,4: give one or more whole numbers above 1",
        ),
        (["diagnose", "gone.pt", "--data", str(phantoms), "--pairs", "0"], "--pairs"),
        (["average", "gone.pt", "gone.pt", *out], "gone.pt"),
        (["run", "everything", *out, "--data", str(phantoms)], "unknown group"),
        (
            ["run", "steps", *out, "--data", str(phantoms), "--scale", "huge"],
            "unknown scale 'huge'; there are small, full",
        ),
        (
            ["finetune", "best", *out, "--data", str(phantoms), "--set", "iterations=3"],
            "write SECTION.KEY",
        ),
        (
            ["run", "steps", *out, "--data", str(phantoms), "--set", "run.steps=2"],
            "'run.steps' is what the arm 't1' of 'steps' sets itself",
        ),
        (
            ["run", "steps", *out, "--data", str(phantoms), "--set", "data.labels"],
            "expected KEY=VALUE",
        ),
        (
            ["run", "steps", *out, "--data", str(phantoms), "--set", "data.lables=3"],
            "unknown key 'data.lables'",
        ),
        (
            ["finetune", "best", *out, "--data", str(phantoms), "--set", "run.iterations=500"],
            "run.pretrain = 2700 leaves none of run.iterations = 500",
        ),
        (["evaluate", "gone.pt", "--data", str(phantoms)], "gone.pt"),
    ):
        r = run.invoke(RESEARCH.get(arguments[0], app), arguments)
        assert r.exit_code in (2, 3) and message in r.output, (arguments, r.output)
        assert "Traceback" not in r.output


def test_presets_are_listed():
    r = run.invoke(app, ["presets"])
    assert r.exit_code == 0 and {"best", "paper", "policy"} <= {
        line.split()[0] for line in r.output.splitlines()
    }


@pytest.mark.thorough
def test_a_network_that_never_saw_labels(phantoms, tmp_path):
    data, out = ["--data", str(phantoms)], tmp_path / "w"
    r = run.invoke(
        app, ["warmup", "warmup", "--out", str(out), "-q", *data, *TINY, "--set", "data.labels=0"]
    )
    assert r.exit_code == 0 and "validation NJD" in r.output and "go on from last.pt" in r.output, (
        r.output
    )
    r = run.invoke(app, ["evaluate", str(out / "last.pt"), *data, "--steps", "1"])
    assert (
        r.exit_code == 0
        and "T = 1: NJD" in r.output
        and "2 pairs, 0 of them with labels" in r.output
    ), r.output
    r = run.invoke(diagnostics.app, ["diagnose", str(out / "last.pt"), *data])
    assert (
        r.exit_code == 0
        and "no labels" in r.output
        and "Dice 0.00" not in r.output
        and "similarity" in r.output
    ), r.output
    r = run.invoke(diagnostics.app, ["diagnose", str(out / "last.pt"), *data, "--signal"])
    assert r.exit_code == 2 and "--signal needs labels" in r.output, r.output
    r = run.invoke(
        app,
        [
            "export",
            "warmup",
            "--checkpoint",
            str(out / "last.pt"),
            "--out",
            str(tmp_path / "b.onnx"),
            *data,
        ],
    )
    assert r.exit_code == 0, r.output
    metrics = json.loads(r.output.splitlines()[-1])
    assert (
        metrics["test_pairs"] == 2 and "test_njd_percent" in metrics and "test_dice" not in metrics
    )
    for command in (
        ["evaluate", str(out / "last.pt"), "--pairs", "nope"],
        [
            "export",
            "warmup",
            "--checkpoint",
            str(out / "last.pt"),
            "--out",
            str(tmp_path / "c.onnx"),
        ],
    ):
        where = data if command[0] == "evaluate" else ["--data", str(tmp_path)]
        r = run.invoke(app, [*command, *where])
        assert r.exit_code == 3 and (
            "no pair list 'nope'" in r.output or "neither split.json" in r.output
        ), r.output


def test_a_run_that_is_stopped_while_it_pretrains_ends_well(phantoms, tmp_path, monkeypatch):
    from morphseek.training.run import Trainer

    validate = Trainer.validate

    def stop(trainer):
        trainer._on_signal(None, None)
        return validate(trainer)

    monkeypatch.setattr(Trainer, "validate", stop)
    options = (
        'model.options={"widths": [8, 8, 8], "reader": [8, 8], "latent_channels": 8, "decoder":'
        " [8, 8]}"
    )
    r = run.invoke(
        app,
        [
            "finetune",
            "best",
            "--out",
            str(tmp_path),
            "-q",
            "--data",
            str(phantoms),
            *TINY,
            "--set",
            "model.backbone=siamese",
            "--set",
            options,
            "--set",
            "run.pretrain=8",
            "--set",
            "run.iterations=9",
        ],
    )
    assert (
        r.exit_code == 0
        and "stopped; repeat the command" in r.output
        and "validation segmentation Dice" in r.output
    ), r.output


def test_a_bad_label_file_is_one_line(phantoms, tmp_path):
    import shutil

    import SimpleITK as sitk

    root = shutil.copytree(phantoms, tmp_path / "data")
    for path in (root / "labels").iterdir():
        sitk.WriteImage(sitk.Cast(sitk.ReadImage(str(path)), sitk.sitkInt16) * 200, str(path))
    r = run.invoke(
        app, ["finetune", "paper", "--out", str(tmp_path / "o"), "-q", "--data", str(root), *TINY]
    )
    assert r.exit_code == 3 and "label 400; labels must be" in r.output, r.output


def test_labels_above_their_number_are_announced(phantoms, tmp_path, caplog):
    import shutil

    import SimpleITK as sitk

    root, data = (
        shutil.copytree(phantoms, tmp_path / "data"),
        ["--data", str(tmp_path / "data"), "-q", *TINY],
    )
    one = root / "labels" / "p6.nii.gz"
    sitk.WriteImage(sitk.ReadImage(str(one)) + 1, str(one))  # labels 2 and 3, background 1
    r = run.invoke(
        app,
        [
            "finetune",
            "paper",
            "--out",
            str(tmp_path / "a"),
            *data,
            "--set",
            "policy.trajectories=2",
        ],
    )
    assert (
        r.exit_code == 0 and caplog.text.count(f"{one}: label 3 is above data.labels = 2") == 1
    ), r.output + caplog.text
    for path in (root / "labels").iterdir():
        sitk.WriteImage(sitk.ReadImage(str(path)) * 10, str(path))
    r = run.invoke(app, ["finetune", "paper", "--out", str(tmp_path / "b"), *data])
    assert r.exit_code == 3 and "its labels are 10, 20, none of them from 1 to 2" in r.output, (
        r.output
    )
    # A warm-up needs no labels: for their values it only warns.
    r = run.invoke(app, ["warmup", "warmup", "--out", str(tmp_path / "c"), *data])
    assert r.exit_code == 0 and "label 20 is above" in caplog.text, r.output


def test_what_is_no_number_is_null_in_json(tiny, phantoms, tmp_path):
    """No volume has label 3."""
    from morphseek.training.run import Trainer

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    Trainer(tiny("best", data__labels=3), tmp_path, progress=False)._save()
    r = run.invoke(
        app,
        [
            "evaluate",
            str(tmp_path / "last.pt"),
            "--data",
            str(phantoms),
            "--pairs",
            "val",
            "--steps",
            "1",
            "--to",
            str(tmp_path / "e.json"),
        ],
    )
    assert r.exit_code == 0, r.output
    (row,) = json.loads((tmp_path / "e.json").read_text(), parse_constant=refuse)
    assert row["steps"][1]["dice_3"] is None and row["steps"][1]["dice_1"] > 0


def test_what_ends_a_run_is_one_line(phantoms, tmp_path, monkeypatch):
    import shutil

    from morphseek.training.run import Trainer

    root = shutil.copytree(phantoms, tmp_path / "data")
    (root / "few.csv").write_text("fixed,moving\np0,p1\n")
    arguments = [
        "--data",
        str(root),
        "-q",
        *TINY,
        "--set",
        "data.pairs=few.csv",
        "--set",
        "data.val=",
    ]
    with monkeypatch.context() as m:
        m.setattr(Trainer, "learning_rate", lambda trainer, iteration: 1e30)
        r = run.invoke(app, ["warmup", "warmup", "--out", str(tmp_path / "far"), *arguments])
    assert (
        r.exit_code == 5
        and "morphseek: iteration 1: the loss is " in r.output
        and "lower optim.lr" in r.output
    ), r.output
    image = root / "images" / "p1.nii.gz"
    image.write_bytes(image.read_bytes()[:2000])
    r = run.invoke(app, ["warmup", "warmup", "--out", str(tmp_path / "o"), *arguments])
    assert r.exit_code == 3 and f"{image} " in r.output.replace("\n", ""), r.output
    image.unlink()
    r = run.invoke(app, ["warmup", "warmup", "--out", str(tmp_path / "p"), *arguments])
    assert r.exit_code == 3 and "no image 'p1'" in r.output, r.output
    (root / "split.json").write_text("[]")
    r = run.invoke(
        app, ["finetune", "paper", "--out", str(tmp_path / "q"), "--data", str(root), "-q", *TINY]
    )
    assert r.exit_code == 3 and "split.json is no JSON object" in r.output, r.output
