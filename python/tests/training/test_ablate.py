"""Ablations: arms differ in what they claim to, finished arms are kept, tables say what the files say."""

import json

import numpy as np
import pytest

from morphseek.training import ablate


@pytest.fixture
def tiny_scale(monkeypatch):
    changes = {"data.min_size": [24, 24, 24], "model.options": {"widths": [4, 4, 8], "latent_channels": 8, "decoder": [8, 8]}}
    monkeypatch.setitem(ablate.SCALES, "tiny", ablate.Scale("tiny", changes))
    return "tiny"


def test_every_arm_is_a_valid_configuration(tmp_path):
    for group, arms in ablate.GROUPS.items():
        seen = []
        for key, arm in arms.items():
            c = ablate._config(arm, ablate.SCALES["small"], tmp_path, 100, 0)
            if arm.train and not arm.time_of:
                d = c.to_dict()
                assert d not in seen, f"{group}/{key} repeats another arm"
                seen.append(d)
        for a, b in ablate.COMPARISONS[group]:
            assert {a, b} <= arms.keys()
    ladder = {k: ablate._config(a, ablate.SCALES["small"], tmp_path, 90, 0) for k, a in ablate.GROUPS["ladder"].items()}
    assert ladder["dice"].run.steps == 1 and ladder["multistep"].run.steps == 3
    assert ladder["multistep"].policy.kind == "none" and ladder["paper"].policy.kind == "paper"
    assert ladder["paper"].policy.tau_every == 10 and ladder["paper"].model.parametrisation == "displacement"
    # No row is helped by augmentation.
    for c in ladder.values():
        assert not any(v for k, v in vars(c.augment).items() if k != "fixed_share")


def test_runs_and_tables(phantoms, tmp_path, tiny_scale):
    def go():
        ablate.run("ladder", phantoms, tmp_path, visits=2, seeds=(0, 1), arms=("warmup", "multistep", "best"), scale=tiny_scale, warmup_visits=2, eval_steps=3)

    go()
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("ladder/*/*/result.json"))
    assert files == [f"ladder/{n}/result.json" for n in ("best/seed0", "best/seed1", "multistep/seed0", "multistep/seed1", "warmup/seed0")]
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("ladder/*/*/result.json")}
    go()
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.glob("ladder/*/*/result.json")}
    text = ablate.tables(tmp_path)
    results = [json.loads((tmp_path / f"ladder/best/seed{s}/result.json").read_text()) for s in (0, 1)]
    mean = np.mean([100 * np.mean([p["steps"][3]["dice"] for p in r["pairs"]]) for r in results])
    row = next(line for line in text.splitlines() if line.startswith("| `best` |"))
    assert f"{mean:.2f} /" in row and "| 2 | 6 |" in row
    assert "`best` against + multi-step, T = 3, 2 seed(s): Dice" in text


def test_wilcoxon_is_scipys_and_survives_equality():
    a = np.arange(10.0)
    assert ablate.wilcoxon(a, a) == 1.0
    assert ablate.wilcoxon(a, a + 1 + 0.01 * a) == pytest.approx(2 / 2**10, rel=1e-6)


def test_results_of_another_scale_or_length_are_no_results(phantoms, tmp_path, tiny_scale):
    def go(**changes):
        options = {"visits": 1, "scale": tiny_scale, "warmup_visits": 1} | changes
        ablate.run("ladder", phantoms, tmp_path, arms=("warmup", "multistep"), eval_steps=3, **options)

    go()
    with pytest.raises(ValueError, match="is of scale 'tiny' with 1 visits, not of 'tiny' with 9; choose another --out"):
        go(visits=9)
    with pytest.raises(ValueError, match="is of scale 'tiny' with 0 visits, not of 'small' with 1"):
        go(scale="small")
    # What the arms start from, too.
    for result in tmp_path.glob("ladder/*/*/result.json"):
        result.unlink()
    for change in ({"scale": "small"}, {"warmup_visits": 2}):
        with pytest.raises(ValueError, match="warm-up of another scale or number of visits"):
            go(**change)
