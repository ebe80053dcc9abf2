"""Configurations: strict keys, presets, inheritance."""

import pytest

from helpers import refused
from morphseek.training.config import Config, ConfigError, load, presets

NOT_NEGATIVE = {
    "augment": "contrast elastic_mm fixed_share gamma mirror noise rotation_deg scale shear"
    " translation_mm",
    "loss": "dice fold fold_margin kl kl_target regularity segmentation sharpness truth volume"
    " warm",
    "optim": "final weight_decay",
    "data": "limit_seed",
    "run": "checkpoint_minutes picture_every pretrain_joint_every",
    "policy": "gradient_ratio smooth_sd target_sd tau_drop tau_init tau_min w_dice weight",
}


@pytest.mark.parametrize(
    "text, message",
    [
        ("[optim]\nlearning_rate = 1e-3\n", "unknown key 'optim.learning_rate'"),
        ("[polcy]\n", "did you mean 'policy'"),
        ("[policy]\ntau_int = 3\n", "did you mean 'tau_init'"),
        ("[run]\niterations = 1.5\n", "'run.iterations' must be int"),
        ("[run]\niterations = true\n", "'run.iterations' must be int"),
        ("[loss]\nsimilarity = 'ssd'\n", "'loss.similarity' must be one of 'mse', 'ncc', 'mind'"),
        ("[data]\nspacing = 1.0\n", "'data.spacing' must be a list"),
        ("run = 3\n", "must be a section"),
        (
            "[[bundle.training_data]]\nname = 'a'\nurl = 'b'\n",
            "unknown key 'bundle.training_data.url'",
        ),
        ("[run\n", "run.toml"),
        ("[run]\nval_every = 0\n", "'run.val_every' must be 1 or more, not 0"),
        ("[run]\nsteps_schedule = [[0]]\n", "'run.steps_schedule' must be a list of"),
        ("[data]\nspacing = [1, 0, 1]\n", "'data.spacing' must be between 0.001 and 1000, not 0"),
        ("[data]\nmin_size = [8, 8]\n", "'data.min_size' must have 3 numbers, not 2"),
        ("[data]\npercentiles = [99, 1]\n", "'data.percentiles' must rise"),
        ("[loss]\nmoving_share = 1.5\n", "'loss.moving_share' must be between 0 and 1, not 1.5"),
        (
            "[loss]\nphases = [{iteration = 1, moving_share = -1.0}]\n",
            "'loss.moving_share' must be between 0 and 1, not -1",
        ),
        (
            "[loss]\nphases = [{iteration = 1, kl = 1.0}]\n",
            "'loss.phases.kl' holds for the whole run",
        ),
        ("[loss]\nphases = [{iteration = '1', dice = 1.0}]\n", "needs 'iteration', a whole number"),
        ("[loss]\nphases = [{iteration = 1, dize = 1.0}]\n", "unknown key 'loss.phases.dize'"),
        ("[loss]\nwindow = 4\n", "'loss.window' must be odd"),
        (
            "base = 'paper'\n[loss]\nmoving_share = 0.5\n[run]\nstage = 'finetune'\n",
            "cannot be combined with 'policy.kind' = 'paper'",
        ),
        ("[optim]\nclip = -1\n", "'optim.clip' must be 0 or more, not -1"),
        ("[model]\nscale = 0\n", "'model.scale' must be 0.001 or more, not 0"),
        (
            "[model]\nlog_sigma_range = [-10]\n",
            "'model.log_sigma_range' must be two rising numbers",
        ),
        (
            "[model]\nlog_sigma_range = [3, -10]\n",
            "'model.log_sigma_range' must be two rising numbers",
        ),
        (
            "base = 'paper'\n[policy]\ntau_min = 0\ntau_every = 10\n",
            "'policy.tau_min' must be above 0",
        ),
        ("[augment]\nmirror = 1.5\n", "'augment.mirror' must be between 0 and 1, not 1.5"),
        ("[augment]\nscale = 1\n", "'augment.scale' must be between 0 and 0.99, not 1"),
        ("[augment]\ncontrast = 0.5\n", "'augment.contrast' must be between 0 and 0.49"),
        *(
            (f"[{section}]\n{key} = -1\n", f"'{section}.{key}' must be ")
            for section, keys in NOT_NEGATIVE.items()
            for key in keys.split()
        ),
        ("[optim]\nfinal = 2\n", "'optim.final' must be between 0 and 1, not 2"),
        ("[policy]\nw_njd = 100\n", "'policy.w_njd' must be 0 or less, not 100"),
        ("base = 'nothing'\n", "no preset 'nothing'"),
        ("base = 'run.toml'\n", "based on itself"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    path = tmp_path / "run.toml"
    path.write_text(text)
    refused(ConfigError, message.replace("(", r"\("), load, path)


def test_a_file_overrides_its_base_key_by_key(tmp_path):
    (tmp_path / "a.toml").write_text(
        "base = 'paper'\n[policy]\ntrajectories = 16\n[model]\noptions = {widths = [4, 4, 8]}\n"
    )
    (tmp_path / "b.toml").write_text("base = 'a.toml'\n[optim]\nlr = 1\n")
    c = load(tmp_path / "b.toml")
    assert c.policy.trajectories == 16 and c.policy.w_njd == -100.0 and c.policy.kind == "paper"
    assert c.optim.lr == 1.0 and isinstance(c.optim.lr, float)
    assert c.model.options == {"widths": [4, 4, 8]}


def test_every_preset_loads_and_survives_a_round_trip():
    assert set("best paper policy oasis lits abdomen-mrct warmup".split()) <= presets().keys()
    for name in presets():
        c = load(name)
        assert Config.from_dict(c.to_dict()) == c


@pytest.mark.parametrize(
    "name, size, labels, similarity",
    [
        ("oasis", [160, 192, 224], 35, "mse"),
        ("lits", [160, 192, 224], 1, "mse"),
        ("abdomen-mrct", [160, 192, 192], 4, "mind"),
    ],
)
def test_the_papers_values(name, size, labels, similarity):
    c = load(name)
    p = c.policy
    assert (p.kind, p.trajectories, c.run.steps, c.optim.lr) == ("paper", 6, 3, 1e-4)
    assert (p.weight, c.loss.warm, c.loss.dice) == (1.0, 0.8, 0.2)
    assert (p.w_dice, p.w_njd, p.ldvn) == (10.0, -100.0, "sqrt")
    # tau falls by 1 every 10 epochs of 100 pairs, from 10 to 2.
    assert (p.tau_init, p.tau_min, p.tau_drop, p.tau_every) == (10.0, 2.0, 1.0, 1000)
    assert (c.loss.regularity, c.loss.kl, c.loss.window) == (1.0, 1e-4, 9)
    assert (c.loss.similarity, c.data.min_size, c.data.labels) == (similarity, size, labels)
    assert (c.model.scale, c.model.log_sigma_range) == (10.0, [-10.0, 3.0])
    assert (c.model.backbone, c.model.parametrisation) == ("transmorph", "displacement")


def test_phases_change_the_loss_later():
    phases = [{"iteration": 20, "dice": 2}, {"iteration": 10, "warm": 0.3, "dice": 1.0}]
    loss = Config.from_dict({"loss": {"phases": phases}}).loss
    weights = [(loss.at(v).warm, loss.at(v).dice) for v in (0, 9, 10, 19, 20)]
    assert weights == [(0.8, 0.2)] * 2 + [(0.3, 1.0)] * 2 + [(0.3, 2.0)]
    with pytest.raises(ConfigError, match="loss.phases.dise"):
        Config.from_dict({"loss": {"phases": [{"iteration": 5, "dise": 2}]}})


def test_replace_reaches_into_the_options_and_wants_a_section():
    c = load("best").replace(
        **{"model.options.segmentation_classes": 4, "model.options.latent_channels": 8}
    )
    assert c.model.options == {"segmentation_classes": 4, "latent_channels": 8}
    with pytest.raises(ConfigError, match="'iterations' names no key: write SECTION.KEY"):
        Config().replace(iterations=4)


def test_replace_refuses_an_unknown_key():
    refused(ConfigError, "run.vists", load("warmup").replace, **{"run.vists": 9})
