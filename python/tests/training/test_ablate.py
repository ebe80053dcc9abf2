"""Ablations: arms differ as their labels say, finished arms are kept, and tables agree with the
files.
"""

import json

import ablate
import numpy as np
import pytest

from helpers import refused


@pytest.fixture
def tiny_scale(monkeypatch):
    network = {"widths": [4, 4, 8], "latent_channels": 8, "decoder": [8, 8]}
    changes = {"data.min_size": [24, 24, 24], "model.options": network}
    monkeypatch.setitem(ablate.SCALES, "tiny", changes)
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
    ladder = {
        k: ablate._config(a, ablate.SCALES["small"], tmp_path, 90, 0)
        for k, a in ablate.GROUPS["ladder"].items()
    }
    assert ladder["dice"].run.steps == 1 and ladder["multistep"].run.steps == 3
    assert ladder["multistep"].policy.kind == "none" and ladder["paper"].policy.kind == "paper"
    assert ladder["paper"].policy.tau_every == 10
    assert ladder["paper"].model.parametrisation == "displacement"
    # No row uses augmentation.
    for c in ladder.values():
        assert not any(v for k, v in vars(c.augment).items() if k != "fixed_share")


@pytest.fixture
def go(phantoms, tmp_path, tiny_scale):
    """Run arms of a group for one iteration, or with other options."""

    def run(group, *arms, **options):
        options = {"iterations": 1, "scale": tiny_scale, "warmup_iterations": 1} | options
        ablate.run(group, phantoms, tmp_path, arms=arms, **options)

    return run


def test_runs_and_tables(go, tmp_path):
    options = dict(iterations=2, seeds=(0, 1), warmup_iterations=2, eval_steps=3)
    go("ladder", "warmup", "multistep", "best", **options)
    runs = {"/".join(p.parts[-3:-1]) for p in tmp_path.glob("ladder/*/*/result.json")}
    both = {f"{arm}/seed{seed}" for arm in ("best", "multistep") for seed in (0, 1)}
    assert runs == both | {"warmup/seed0"}
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("ladder/*/*/result.json")}
    go("ladder", "warmup", "multistep", "best", **options)
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.glob("ladder/*/*/result.json")}
    text = ablate.tables(tmp_path)
    results = [
        json.loads((tmp_path / f"ladder/best/seed{s}/result.json").read_text()) for s in (0, 1)
    ]
    mean = np.mean([100 * np.mean([p["steps"][3]["dice"] for p in r["pairs"]]) for r in results])
    row = next(line for line in text.splitlines() if line.startswith("| `best` |"))
    assert f"{mean:.2f} /" in row and "| 2 | 6 |" in row
    assert "`best` against + multi-step, T = 3, 2 seed(s): Dice" in text


def test_wilcoxon_is_scipys_and_survives_equality():
    a = np.arange(10.0)
    assert ablate.wilcoxon(a, a) == 1.0
    assert ablate.wilcoxon(a, a + 1 + 0.01 * a) == pytest.approx(2 / 2**10, rel=1e-6)


def test_results_of_another_scale_or_length_are_no_results(go, tmp_path):
    ladder = ("ladder", "warmup", "multistep")
    go(*ladder, eval_steps=3)
    says = "is of scale 'tiny' with 1 iterations, not of 'tiny' with 9; choose another --out"
    refused(ValueError, says, go, *ladder, eval_steps=3, iterations=9)
    says = "'tiny' with 0 iterations, not of 'small' with 1"
    refused(ValueError, says, go, *ladder, eval_steps=3, scale="small")
    # The shared warm-up is checked, too.
    for result in tmp_path.glob("ladder/*/*/result.json"):
        result.unlink()
    for change in ({"scale": "small"}, {"warmup_iterations": 2}):
        says = "warm-up of another scale or number of iterations"
        refused(ValueError, says, go, *ladder, eval_steps=3, **change)


def write_result(out, group, arm, seed=0, pairs=8, own=3, **changes):
    """Write a made-up result: Dice and NJD of pair i after step t."""
    rng = np.random.default_rng([seed, own])

    def scores(t):
        return {"dice": 0.5 + 0.05 * t + 0.01 * rng.random(), "njd": 0.1 * rng.random()}

    steps = [[scores(t) for t in range(max(own, 3) + 1)] for _ in range(pairs)]
    label, config = ablate.GROUPS[group][arm].label, {"run": {"steps": own}}
    result = dict(group=group, arm=arm, label=label, seed=seed, scale="small", iterations=200)
    result |= dict(updates=200 * own, cpu_seconds=1.0, config=config)
    result |= {"pairs": [{"steps": s} for s in steps]} | changes
    path = out / group / arm / f"seed{seed}" / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    return result


def dice_at(result, t):
    return np.array([100 * p["steps"][t]["dice"] for p in result["pairs"]])


def test_arms_of_another_t_are_compared_at_their_own(tmp_path):
    r = {t: write_result(tmp_path, "steps", f"t{t}", own=t) for t in (1, 2, 3, 4)}
    text = ablate.tables(tmp_path)
    rows = {
        line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith("| ")
    }
    assert rows["run"][:2] == ["iterations", "updates"]
    assert rows["run"][7:] == ["Dice % / NJD % at its own T", "Dice % by seed (own T)"]
    for t in (1, 2, 3, 4):
        row = rows[f"`best`, T = {t}"]
        own = f"{dice_at(r[t], t).mean():.2f}"
        assert row[7].startswith(f"{own} / ") and row[8] == own
        assert row[6].startswith(f"{dice_at(r[t], 3).mean():.2f} / ")
    x, y = dice_at(r[4], 4), dice_at(r[3], 3)
    test = f"{(x - y).mean():+.3f} (p = {ablate.wilcoxon(x, y):.2g})"
    assert f"T = 4 against `best`, T = 3, 1 seed(s): Dice {test}" in text
    assert "At its own T each, paired Wilcoxon" in text


def test_the_fourth_step_is_scored(go, tmp_path):
    go("steps", "t4")
    result = json.loads((tmp_path / "steps/t4/seed0/result.json").read_text())
    assert {len(p["steps"]) for p in result["pairs"]} == {5}
    assert f"{dice_at(result, 4).mean():.2f} / " in ablate.tables(tmp_path)


def test_arms_without_a_common_seed_are_not_compared(tmp_path):
    for arm, seed in (("sqrt", 0), ("one", 1), ("n", 0), ("n", 1)):
        write_result(tmp_path, "ldvn", arm, seed=seed)
    text = ablate.tables(tmp_path)
    assert "- s = 1 against s = sqrt N: no seed in common\n" in text
    assert "- s = N against s = sqrt N, 1 seed(s): Dice" in text


def test_what_was_not_finite_is_null_and_left_out(tmp_path):
    found = ablate.without_nan({"a": [1.5, float("nan"), (float("inf"), 2)], "b": "nan"})
    assert json.dumps(found) == '{"a": [1.5, null, [null, 2]], "b": "nan"}'
    a = write_result(tmp_path, "ldvn", "sqrt", own=2)
    b = write_result(tmp_path, "ldvn", "one")
    b["pairs"][3]["steps"][3]["dice"] = None
    (tmp_path / "ldvn/one/seed0/result.json").write_text(json.dumps(b))
    text = ablate.tables(tmp_path)
    b["pairs"][3]["steps"][3]["dice"] = np.nan
    x, y = (np.delete(dice_at(r, 3), 3) for r in (b, a))
    test = f"Dice {(x - y).mean():+.3f} (p = {ablate.wilcoxon(x, y):.2g})"
    assert f"{test} without 1 pair(s) that lack it, NJD" in text
    assert f"| {x.mean():.2f} |" in text and "nan" not in text


def test_changed_keys_are_recorded_and_never_mixed(go, tmp_path, tiny_scale):
    go("ldvn", "sqrt", changes={"data.labels": 1, "optim.lr": 1e-3})
    result = json.loads((tmp_path / "ldvn/sqrt/seed0/result.json").read_text())
    assert result["set"] == {"data.labels": 1, "optim.lr": 1e-3}
    assert result["config"]["data"]["labels"] == 1 and result["config"]["optim"]["lr"] == 1e-3
    assert "dice_2" not in result["pairs"][0]["steps"][0]
    assert json.loads((tmp_path / "warmup/warmup/config.json").read_text())["data"]["labels"] == 1
    says = "has data.labels = 1, optim.lr = 0.001 changed, not no key; choose another --out"
    refused(ValueError, says, go, "ldvn", "sqrt", changes={})
    refused(ValueError, "or with other keys changed; choose", go, "ldvn", "one", changes={})
    # An arm in the same folder with other settings, written by hand, gets a table of its own and is
    # not compared.
    write_result(tmp_path, "ldvn", "one", scale=tiny_scale)
    text = ablate.tables(tmp_path)
    assert text.count("### ldvn (tiny scale") == 2
    assert "### ldvn (tiny scale, 2 test pairs, data.labels = 1, optim.lr = 0.001)" in text
    assert "against" not in text


def test_what_an_arm_sets_is_not_to_be_changed(tmp_path):
    for group, key, message in (
        ("ldvn", "policy.ldvn", "'policy.ldvn' is what the arm 'one' of 'ldvn' sets itself"),
        ("ladder", "loss.dice", "is what the arm 'policy' of 'ladder'"),
        ("ldvn", "run.iterations", "the ablation's own"),
    ):
        refused(ValueError, message, ablate.run, group, tmp_path, tmp_path, changes={key: 1})
    assert not list(tmp_path.iterdir())


def test_the_recipe_group_takes_one_element_away(tmp_path):
    arms = {
        k: ablate._config(a, ablate.SCALES["small"], tmp_path, 200, 0).to_dict()
        for k, a in ablate.GROUPS["recipe"].items()
    }

    def differs(a, b):
        return {f"{s}.{k}" for s in arms[a] for k in arms[a][s] if arms[a][s][k] != arms[b][s][k]}

    # One key, or two if the label says so.
    pairs = {"white": 2, "neither": 2, "fixed": 1, "fixed_low": 2}
    for key, arm in ablate.GROUPS["recipe"].items():
        if key != arm.preset:
            assert len(differs(key, arm.preset)) == pairs.get(key, 1), key
    assert differs("scalar", "policy") == {"policy.advantage"}
    assert differs("no_fold", "best") == {"loss.fold"}
    assert all(a["run"]["steps"] == 3 for a in arms.values())
