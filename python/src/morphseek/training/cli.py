"""``morphseek train``: warm up, fine-tune, export, and look inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Train a registration network on your own pairs and export it as a bundle.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_CONFIG = typer.Argument(
    help="A TOML file, or the name of a preset (see `presets`).", metavar="CONFIG"
)
_DATA = typer.Option(
    "--data", envvar="MORPHSEEK_DATA_SET", help="Data folder; overrides data.path.", metavar="DIR"
)
_OUT = typer.Option(
    "--out", help="Run folder; an unfinished run in it is continued.", metavar="DIR"
)
_SET = typer.Option(
    "--set",
    help="Change one key, e.g. --set optim.lr=5e-4 (repeatable; values are JSON).",
    metavar="KEY=VALUE",
)


def _fail(error: Exception) -> None:
    typer.secho(f"error: {error}", fg="red", err=True)
    raise typer.Exit(2)


def _counts(option: str, text: str, length: int = 0, least: int = 1) -> tuple[int, ...]:
    """Whole numbers from ``least`` that an option lists, as many as ``length`` says unless it is
    0.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) >= least for part in parts) or (
        length and len(parts) != length
    ):
        _fail(
            ValueError(
                f"{option} {text}: give {length or 'one or more'} whole numbers above {least - 1},"
                " with commas between them"
            )
        )
    return tuple(int(part) for part in parts)


def _check_folder(to: Path | None) -> None:
    """Fail before the work where its figures could not be written."""
    if to is not None and not to.absolute().parent.is_dir():
        _fail(ValueError(f"--to {to}: there is no folder {to.parent}"))


def _changes(items: list[str] | None) -> dict:
    """The keys that --set changes, and their values."""
    values = {}
    for item in items or []:
        key, sign, text = item.partition("=")
        if not sign:
            raise ValueError(f"--set {item!r}: expected KEY=VALUE")
        try:
            values[key] = json.loads(text)
        except json.JSONDecodeError:
            values[key] = text
    return values


def _load(source: str, data: Path | None, changes: list[str], stage: str | None = None):
    from .config import ConfigError, load

    try:
        config = load(source)
        values = _changes(changes)
        if data is not None:
            values["data.path"] = str(data)
        if stage:
            values["run.stage"] = stage
        return config.replace(**values)
    except (ConfigError, ValueError) as error:
        _fail(error)


def _train(
    stage: str,
    source: str,
    data: Path | None,
    out: Path,
    init: Path | None,
    changes: list[str],
    quiet: bool,
) -> None:
    from .data import DataError
    from .trainer import Trainer

    config = _load(source, data, changes, stage)
    if not config.data.path and config.data.pairs != "synthetic":
        _fail(ValueError("no data folder: give --data DIR or set data.path"))
    try:
        trainer = Trainer(config, out, init=init, progress=not quiet)
    except (OSError, ValueError) as error:
        _fail(error)
    try:
        last = trainer.run()
    except (DataError, FileNotFoundError, FloatingPointError) as error:
        _fail(error)  # volumes are read when their turn comes
    if trainer.rank == 0:
        state = (
            "done"
            if trainer.visit >= config.run.visits
            else "stopped; repeat the command to continue"
        )
        typer.echo(
            f"{state}: {trainer.visit} visits, {trainer.updates} updates, {trainer.seconds:.0f} s,"
            f" in {out}"
        )
        names = (
            ("val_segmentation_dice", "segmentation Dice", 100, 2),
            ("val_dice", "Dice", 100, 2),
            ("val_njd_percent", "NJD", 1, 4),
        )
        found = [
            f"{text} {factor * last[key]:.{digits}f} %"
            for key, text, factor, digits in names
            if key in last
        ]
        if found:
            typer.echo(f"validation {', '.join(found)}")
        if "val_njd_percent" in last and "val_dice" not in last:
            typer.echo("no labels to choose best.pt by: go on from last.pt")


@app.command()
def warmup(
    config: Annotated[str, _CONFIG],
    out: Annotated[Path, _OUT],
    data: Annotated[Path | None, _DATA] = None,
    init: Annotated[Path | None, typer.Option(help="Checkpoint or bundle to start from.")] = None,
    set_: Annotated[list[str] | None, _SET] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Stage 1: learn to register without labels, z = mu."""
    _train("warmup", config, data, out, init, set_ or [], quiet)


@app.command()
def finetune(
    config: Annotated[str, _CONFIG],
    out: Annotated[Path, _OUT],
    data: Annotated[Path | None, _DATA] = None,
    init: Annotated[
        Path | None,
        typer.Option(help="Checkpoint (RUN/best.pt or last.pt) or bundle (.onnx) to start from."),
    ] = None,
    set_: Annotated[list[str] | None, _SET] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Stage 2: fine-tune with labelled pairs, with or without a policy."""
    _train("finetune", config, data, out, init, set_ or [], quiet)


@app.command()
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="RUN/best.pt or last.pt.")],
    data: Annotated[Path, _DATA],
    pairs: Annotated[str, typer.Option(help="Pair list.")] = "test",
    steps: Annotated[int, typer.Option(help="T.", min=1)] = 3,
    initial: Annotated[
        str | None,
        typer.Option(
            help=(
                "Where pairs start: centres, or an initial alignment of the engine; as in the run"
                " by default."
            )
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Write per-pair JSON here.")] = None,
) -> None:
    """Dice and NJD of a checkpoint on a pair list."""
    import numpy as np

    from .data import PairSource, read_pairs
    from .evaluate import evaluate_pairs, scores
    from .trainer import load_backbone

    _check_folder(to)
    try:
        backbone, config, _ = load_backbone(checkpoint)
        config = config.replace(**{"data.initial": initial or config.data.initial})
        source = PairSource.configured(config.data, data)
        rows = evaluate_pairs(
            backbone,
            source,
            read_pairs(data, pairs),
            config.data.spacing,
            config.data.min_size,
            steps,
            surface=True,
        )
    except (OSError, ValueError) as error:
        _fail(error)
    for t in range(steps + 1):
        dice, there, njd, sdlogj, surface = (
            scores(rows, t, k) for k in ("dice", "dice_moving", "njd", "sdlogj", "hd95")
        )
        parts = [f"NJD {np.mean(njd):.4f} %", f"SDlogJ {np.mean(sdlogj):.2f}"]
        if dice:
            overlap = (
                f"Dice {100 * np.mean(dice):.2f} +- {100 * np.std(dice):.2f} % (in the moving"
                f" image's space {100 * np.mean(there):.2f} %)"
            )
            parts = [overlap, *parts, f"HD95 {np.mean(surface):.2f} mm"]
        count = (
            f"{len(rows)} pairs"
            if len(dice) == len(rows)
            else f"{len(rows)} pairs, {len(dice)} of them with labels"
        )
        typer.echo(f"T = {t}: {', '.join(parts)}, {count}")
    if to:
        from .config import without_nan

        to.write_text(json.dumps(without_nan(rows), indent=1, allow_nan=False))


@app.command(name="average")
def average_(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(help="RUN/best.pt or last.pt of runs that started from the same weights."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Checkpoint to write.", metavar="FILE")],
    share: Annotated[
        list[float] | None,
        typer.Option(help="Of each checkpoint, in their order (repeatable); all alike by default."),
    ] = None,
) -> None:
    """Average the weights of several runs: often better on new people than any of them."""
    from .trainer import average, save_atomic

    try:
        save_atomic(average(checkpoints, share or None), out)
    except (OSError, ValueError) as error:
        _fail(error)
    typer.echo(f"{out}: the average of {len(checkpoints)} checkpoints")


@app.command()
def export(
    config: Annotated[str, _CONFIG],
    out: Annotated[Path, typer.Option("--out", help="Bundle to write (.onnx).", metavar="FILE")],
    checkpoint: Annotated[Path | None, typer.Option(help="RUN/best.pt or last.pt.")] = None,
    random: Annotated[
        int | None,
        typer.Option(
            help="Instead of a checkpoint: CONFIG's network with random weights, to measure speed.",
            metavar="SEED",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="The only size of the network grid; transformers need it.", metavar="D,H,W"
        ),
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="float16 layers, for GPUs; fields stay float32.")
    ] = False,
    data: Annotated[Path | None, _DATA] = None,
    set_: Annotated[list[str] | None, _SET] = None,
) -> None:
    """Stage 3: write a bundle. CONFIG's [bundle] section names and credits it; the network comes
    from the checkpoint.

    How its steps see the images (model.offsets, model.mirrored) is CONFIG's where that says so,
    else the checkpoint's. With --data, CONFIG's test pairs (data.test) are registered, from where
    the run's pairs start, and their figures go into the manifest.
    """
    import numpy as np

    from .data import PairSource, read_pairs
    from .evaluate import evaluate_pairs, scores
    from .export import export_bundle, random_backbone
    from .trainer import load_backbone

    wanted = _load(config, data, set_ or [])
    shape = _counts("--size", size, 3) if size else None
    if out.suffix.lower() != ".onnx":
        _fail(ValueError(f"--out {out}: a bundle's name ends in .onnx"))
    if (checkpoint is None) == (random is None):
        _fail(ValueError("give either --checkpoint or --random"))
    metrics: dict = {}
    try:
        if checkpoint is None:
            backbone, trained = random_backbone(wanted.model, random), wanted
        else:
            backbone, trained, state = load_backbone(checkpoint)
            trained.bundle = wanted.bundle
            trained.model.offsets = wanted.model.offsets or trained.model.offsets
            trained.model.mirrored = wanted.model.mirrored or trained.model.mirrored
            backbone.set_views(trained.model.offsets, trained.model.mirrored)
            metrics["training_visits"] = state["visit"]
            if state["best"] > -1:
                metrics["validation_dice"] = round(state["best"], 4)
    except (OSError, ValueError) as error:
        _fail(error)
    if data is not None:
        try:
            source = PairSource.configured(trained.data, data)
            pairs = read_pairs(data, wanted.data.test)
            rows = evaluate_pairs(
                backbone,
                source,
                pairs,
                trained.data.spacing,
                trained.data.min_size,
                trained.run.val_steps,
                surface=True,
            )
        except (OSError, ValueError) as error:
            _fail(error)
        metrics |= {"test_pairs": len(rows), "test_initial": trained.data.initial}
        for name, step, key, digits in (
            ("test_dice_before", 0, "dice", 4),
            ("test_dice", -1, "dice", 4),
            ("test_njd_percent", -1, "njd", 5),
            ("test_sdlogj", -1, "sdlogj", 3),
            ("test_hd95_mm", -1, "hd95", 3),
        ):
            if found := scores(rows, step, key):
                metrics[name] = round(float(np.mean(found)), digits)
    try:
        manifest = export_bundle(backbone, trained, out, metrics, shape, half)
    except ValueError as error:
        _fail(error)
    typer.echo(
        f"{out}: {out.stat().st_size / 1e6:.2f} MB, {manifest['parameters']} parameters, sha256"
        f" {manifest['sha256']}"
    )
    typer.echo(json.dumps(manifest["metrics"]))


@app.command()
def diagnose(
    checkpoint: Annotated[Path, typer.Argument(help="RUN/best.pt or last.pt.")],
    data: Annotated[Path, _DATA],
    pairs: Annotated[int, typer.Option(help="Validation pairs to use.", min=1)] = 4,
    tau: Annotated[float, typer.Option(help="Temperature of the samples.")] = 1.0,
    signal: Annotated[
        bool, typer.Option(help="Also measure the policy-gradient signal (slow).")
    ] = False,
    trajectories: Annotated[str, typer.Option(help="J of the signal table.")] = "4,16,64",
    to: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
) -> None:
    """Posterior collapse, variance of log pi, gradient norms by term, sigma and |mu|, and the
    policy's signal.
    """
    import numpy as np

    from . import diagnostics as d
    from .objective import StepObjective
    from .trainer import load_backbone

    _check_folder(to)
    sizes = _counts("--trajectories", trajectories, least=2)
    try:
        backbone, config, state = load_backbone(checkpoint)
        samples = d.load_pairs(config, data, backbone.size_multiple, pairs)
    except (OSError, ValueError) as error:
        _fail(error)
    labelled = [s for s in samples if s.fixed_labels.shape[1] and s.moving_labels.shape[1]]
    if signal and not labelled:
        _fail(
            ValueError(
                "--signal needs labels: the validation pairs have none for data.labels ="
                f" {config.data.labels}"
            )
        )
    # The weights and the policy that the run's next visit would have.
    objective = StepObjective(
        backbone,
        config.loss.at(state["visit"]),
        config.policy,
        config.run.stage,
        False,
        config.data.spacing,
    )
    objective.kl_weight = state.get("kl_weight", objective.kl_weight)
    if state.get("policy"):
        objective.load_policy_state(state["policy"])
    report: dict = {"collapse": [d.collapse_probe(backbone, s, tau=tau) for s in labelled]}
    if not labelled:
        typer.echo("no labels: no Dice of samples")
    for row in report["collapse"]:
        typer.echo(
            f"samples at tau = {tau}: Dice {row['dice_mean']:.2f} +- {row['dice_sd']:.2f} % (mu:"
            f" {row['dice_mu']:.2f})"
        )
    report["variance"] = d.variance_ratio(backbone, samples[0], tau=tau)
    v = report["variance"]
    typer.echo(
        f"Var(sum X_i) / (0.5 N) = {v['ratio']:.3f} +- {v['standard_error']:.3f}, N = {v['n']}"
    )
    report["gradient_norms"] = d.gradient_norms(
        objective, samples[0], config.policy.temperature(min(state["visit"], config.run.visits - 1))
    )
    typer.echo(
        "gradient norms: " + ", ".join(f"{k} {x:.3g}" for k, x in report["gradient_norms"].items())
    )
    run = checkpoint.parent
    if (run / "log.jsonl").exists():
        h = report["histories"] = d.histories(run, ("sigma", "mu_abs", "kl"))
        for key in ("sigma", "mu_abs", "kl"):
            parts = np.array_split(np.array(h[key]), min(8, max(len(h[key]), 1)))
            typer.echo(
                f"{key} over the run: " + " ".join(f"{p.mean():.3g}" for p in parts if len(p))
            )
    if signal:
        report["signal"] = d.policy_signal(objective, labelled, sizes)
        typer.echo("| noise | advantage | J | cosine |\n|---|---|---|---|")
        for r in report["signal"]:
            typer.echo(f"| {r['noise']} | {r['advantage']} | {r['J']} | {r['cosine']:.3f} |")
    if to:
        from .config import without_nan

        to.write_text(json.dumps(without_nan(report), indent=1, allow_nan=False))


@app.command()
def ablate(
    group: Annotated[
        str, typer.Argument(help="ladder, ldvn, trajectories, steps, labels, hd95, recipe or all.")
    ],
    data: Annotated[Path, _DATA],
    out: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; finished arms in it are not repeated."),
    ],
    visits: Annotated[int, typer.Option(help="Pair visits of an arm.")] = 200,
    seeds: Annotated[int, typer.Option(help="Seeds 0 to this minus 1.")] = 1,
    scale: Annotated[str, typer.Option(help="small (one CPU core) or full.")] = "small",
    arms: Annotated[str, typer.Option(help="Only these arms, comma-separated.")] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=(
                "Change one key in every arm and in the warm-up, e.g. --set data.labels=4"
                " (repeatable)."
            ),
            metavar="KEY=VALUE",
        ),
    ] = None,
) -> None:
    """Run a group of ablations; `tables` then prints it."""
    from .ablate import GROUPS, SCALES, run

    if scale not in SCALES:
        _fail(ValueError(f"unknown scale {scale!r}; there are {', '.join(SCALES)}"))
    if group != "all" and group not in GROUPS:
        _fail(ValueError(f"unknown group {group!r}; there are {', '.join(GROUPS)} and all"))
    only = tuple(a for a in arms.split(",") if a)
    groups = tuple(GROUPS) if group == "all" else (group,)
    known = [arm for name in groups for arm in GROUPS[name]]
    if odd := [arm for arm in only if arm not in known]:
        _fail(ValueError(f"unknown arm {odd[0]!r}; there are {', '.join(dict.fromkeys(known))}"))
    for name in groups:
        try:
            run(
                name,
                data,
                out,
                visits=visits,
                seeds=tuple(range(seeds)),
                scale=scale,
                arms=only,
                changes=_changes(set_),
            )
        except (OSError, ValueError) as error:
            _fail(error)


@app.command()
def tables(out: Annotated[Path, typer.Argument(help="Folder of `ablate`.")]) -> None:
    """Markdown tables and p-values of the ablations in a folder."""
    from .ablate import tables as make

    text = make(out)
    if not text:
        _fail(ValueError(f"{out} has no results of `ablate`"))
    typer.echo(text)


@app.command()
def memory(
    trajectories: Annotated[str, typer.Option(help="Values of J.")] = "1,2,4,8,16",
    size: Annotated[str, typer.Option(help="D,H,W.")] = "48,64,48",
    backbone: Annotated[str, typer.Option()] = "compact",
) -> None:
    """Peak memory of one GRPO step against J, trajectories one by one and all at once."""
    from .backbones import build
    from .diagnostics import step_cost

    shape, sizes = _counts("--size", size, 3), _counts("--trajectories", trajectories)
    try:
        build(backbone).latent_shape(shape)
    except ValueError as error:
        _fail(error)
    typer.echo("| J | one by one, MiB | at once, MiB |\n|---|---|---|")
    for j in sizes:
        try:
            values = [step_cost(j, s, shape, backbone)["mib"] for s in (True, False)]
        except RuntimeError as error:
            _fail(error)
        typer.echo(f"| {j} | {values[0]:.0f} | {values[1]:.0f} |")


@app.command()
def presets() -> None:
    """List the presets that ship with the package."""
    from .config import presets as known

    for name, about in known().items():
        typer.echo(f"{name:16s} {about}")


if __name__ == "__main__":
    app()
