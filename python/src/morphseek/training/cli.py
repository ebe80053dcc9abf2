"""``morphseek train``: warm up, fine-tune, evaluate, average, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .. import errors
from .._json import parse

if TYPE_CHECKING:
    from .config import Config

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


def _fail(error: Exception) -> NoReturn:
    """Print the error and end with the main command's exit code for it."""
    code = errors.InvalidArgumentError.exit_code
    if isinstance(error, errors.MorphSeekError):
        code = error.exit_code
    elif isinstance(error, OSError):
        code = errors.InputUnreadableError.exit_code
    elif isinstance(error, FloatingPointError):
        code = errors.RuntimeFailedError.exit_code
    typer.secho(f"morphseek: {error}", fg="red", err=True)
    raise typer.Exit(code)


def counts(option: str, text: str, length: int = 0, least: int = 1) -> tuple[int, ...]:
    """Return the whole numbers in an option's list, each at least ``least``; ``length`` of them
    unless it is 0.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) >= least for part in parts) or (
        length and len(parts) != length
    ):
        _fail(
            ValueError(
                f"{option} {text}: give {length or 'one or more'} whole numbers above {least - 1},"
                " separated by commas"
            )
        )
    return tuple(int(part) for part in parts)


def check_folder(to: Path | None) -> None:
    """Fail at once if the results could not be written at the end."""
    if to is not None and not to.absolute().parent.is_dir():
        _fail(ValueError(f"--to {to}: there is no folder {to.parent}"))


def changes_of(items: list[str]) -> dict[str, Any]:
    """Return the keys that --set changes, with their values."""
    values = {}
    for item in items:
        key, sign, text = item.partition("=")
        if not sign:
            raise ValueError(f"--set {item!r}: expected KEY=VALUE, such as optim.lr=5e-4")
        try:
            values[key] = parse(text)
        except ValueError:
            values[key] = text
    return values


def _load(source: str, data: Path | None, changes: list[str], stage: str | None = None) -> Config:
    from .config import ConfigError, load

    try:
        config = load(source)
        values = changes_of(changes)
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
    from .pairs import DataError
    from .run import Trainer

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
        _fail(error)  # volumes are read only when they are needed
    if trainer.rank == 0:
        state = (
            "done"
            if trainer.iteration >= config.run.iterations
            else "stopped; repeat the command to continue"
        )
        typer.echo(
            f"{state}: {trainer.iteration} iterations, {trainer.updates} optimiser steps,"
            f" {trainer.seconds:.0f} s,"
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
            typer.echo("without labels no best.pt is chosen: go on from last.pt")


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
    pairs: Annotated[str, typer.Option(help="List of pairs to score.")] = "test",
    steps: Annotated[int, typer.Option(help="T: how many steps the network takes.", min=1)] = 3,
    initial: Annotated[
        str | None,
        typer.Option(
            help=(
                "Initial alignment: centres, none, com, rigid or affine; by default as in the run."
            )
        ),
    ] = None,
    known: Annotated[
        int,
        typer.Option(
            help="How many fixed volumes to measure point errors on, by known motions; 0: none.",
            min=0,
        ),
    ] = 10,
    to: Annotated[Path | None, typer.Option(help="Write per-pair JSON here.")] = None,
) -> None:
    """Measure Dice and NJD of a checkpoint on a pair list, and how far points end from the truth
    on known motions of its volumes (the section [known] of the run).
    """
    import numpy as np

    from .evaluate import evaluate_pairs, evaluate_points, first, scores
    from .pairs import PairSource, read_pairs
    from .run import load_backbone

    check_folder(to)
    try:
        backbone, config, _ = load_backbone(checkpoint)
        config = config.replace(**{"data.initial": initial or config.data.initial})
        source = PairSource.configured(config.data, data)
        listed = read_pairs(data, pairs)
        grid = config.data.spacing, config.data.min_size, steps
        rows = evaluate_pairs(backbone, source, listed, *grid, surface=True)
        points = evaluate_points(backbone, source, first(listed, known), *grid, config.known)
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
        if points:
            one, two = (np.mean(scores(points, t, k)) for k in ("points_mm", "points_two_mm"))
            typer.echo(
                f"       points {one:.2f} mm from the truth, of two contrasts {two:.2f} mm,"
                f" {len(points)} known motions"
            )
    if to:
        from .. import _files
        from .._json import without_nan

        _files.write_text(to, json.dumps(without_nan(rows), indent=1, allow_nan=False))


@app.command(name="average")
def average_(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(help="RUN/best.pt or last.pt of runs that started from the same weights."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Checkpoint to write.", metavar="FILE")],
    share: Annotated[
        list[float] | None,
        typer.Option(
            help="Weight of each checkpoint, in their order (repeatable); equal by default."
        ),
    ] = None,
) -> None:
    """Average the weights of several runs: often better on new subjects than any of them."""
    from .run import average, save_atomic

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

    How the steps see the images (model.offsets, model.mirrored) comes from CONFIG if it sets them,
    else from the checkpoint. With --data, CONFIG's test pairs (data.test) are registered from the
    run's initial alignment, and their scores go into the manifest.
    """
    import numpy as np

    from .evaluate import evaluate_pairs, scores
    from .export import export_bundle, random_backbone
    from .pairs import PairSource, read_pairs
    from .run import load_backbone

    wanted = _load(config, data, set_ or [])
    shape: tuple[int, int, int] | None = None
    if size:
        d, h, w = counts("--size", size, 3)
        shape = d, h, w
    if out.suffix.lower() != ".onnx":
        _fail(ValueError(f"--out {out}: a bundle's name ends in .onnx"))
    if (checkpoint is None) == (random is None):
        _fail(ValueError("give either --checkpoint or --random"))
    metrics: dict[str, Any] = {}
    try:
        if random is not None:
            backbone, trained = random_backbone(wanted.model, random), wanted
        else:
            assert checkpoint is not None
            backbone, trained, state = load_backbone(checkpoint)
            trained.bundle = wanted.bundle
            trained.model.offsets = wanted.model.offsets or trained.model.offsets
            trained.model.mirrored = wanted.model.mirrored or trained.model.mirrored
            backbone.set_views(trained.model.offsets, trained.model.mirrored)
            metrics["training_iterations"] = state["iteration"]
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
def presets() -> None:
    """List the presets that ship with the package."""
    from .config import presets as known

    for name, about in known().items():
        typer.echo(f"{name:16s} {about}")


if __name__ == "__main__":
    app()
