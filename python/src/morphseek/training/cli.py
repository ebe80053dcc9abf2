"""``morphseek train``: warm up, fine-tune, evaluate, average, export."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import errors

if TYPE_CHECKING:
    from .config import Config


class _Stage(click.Command):
    """A command whose errors are one line on standard error, with the main command's exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (OSError, ValueError, FloatingPointError, MemoryError, RuntimeError) as error:
            _fail(error)


class Stages(click.Group):
    """The commands in the order of their definition: that of a training."""

    command_class = _Stage

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _fail(error: Exception) -> NoReturn:
    """Print the error and end with the main command's exit code for it."""
    text = str(error)
    kind: type[errors.MorphSeekError] = errors.InvalidArgumentError
    if isinstance(error, errors.MorphSeekError):
        kind = type(error)
    elif isinstance(error, OSError):
        kind = errors.InputUnreadableError
    elif isinstance(error, FloatingPointError):
        kind = errors.RuntimeFailedError
    elif isinstance(error, MemoryError) or "out of memory" in text or "allocate memory" in text:
        kind = errors.OutOfMemoryError
        text = (
            f"too little memory ({text.splitlines()[0] if text else 'Python has none left'}); the"
            " network grid has the voxels of data.spacing and holds the whole fixed image: raise"
            " data.spacing, crop the images, or lower policy.trajectories or optim.accumulate"
        )
    elif not isinstance(error, ValueError):
        raise error  # a defect
    click.secho(f"morphseek: {text}", fg="red", err=True)
    raise click.exceptions.Exit(kind.exit_code)


@click.group(
    cls=Stages,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
def app() -> None:
    """Train a registration network on your own pairs and export it as a bundle."""


_PATH = click.Path(path_type=Path)
_DATA: dict[str, Any] = {
    "type": _PATH, "envvar": "MORPHSEEK_DATA_SET", "show_envvar": True, "metavar": "DIR",
    "help": "Data folder; overrides data.path.",
}  # fmt: skip
_data = click.option("--data", **_DATA)
_set = click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE",
    help="Change one key, e.g. --set optim.lr=5e-4 (repeatable; values are JSON).",
)  # fmt: skip


def _of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument and the options of a run."""
    for option in (
        click.option("--quiet", "-q", is_flag=True, help="No progress bar."),
        _set,
        click.option(
            "--init", type=_PATH,
            help="Checkpoint (RUN/best.pt or last.pt) or bundle (.onnx) to start from.",
        ),
        _data,
        click.option(
            "--out", type=_PATH, required=True, metavar="DIR",
            help="Run folder; an unfinished run in it is continued.",
        ),
        click.argument("config"),
    ):  # fmt: skip
        command = option(command)
    return command


def counts(option: str, text: str, length: int = 0, least: int = 1) -> tuple[int, ...]:
    """Return the whole numbers in an option's list, each at least ``least``; ``length`` of them
    unless it is 0.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) >= least for part in parts) or (
        length and len(parts) != length
    ):
        raise ValueError(
            f"{option} {text}: give {length or 'one or more'} whole numbers above {least - 1},"
            " separated by commas"
        )
    return tuple(int(part) for part in parts)


def check_folder(to: Path | None) -> None:
    """Fail at once if the results could not be written at the end."""
    if to is not None and not to.absolute().parent.is_dir():
        raise ValueError(f"--to {to}: there is no folder {to.parent}")


def changes_of(items: Iterable[str]) -> dict[str, Any]:
    """Return the keys that --set changes, with their values."""
    from .._shared import parse

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


def _load(
    source: str, data: Path | None, changes: tuple[str, ...], stage: str | None = None
) -> Config:
    from .config import load

    config = load(source)
    values = changes_of(changes)
    if data is not None:
        values["data.path"] = str(data)
    if stage:
        values["run.stage"] = stage
    return config.replace(**values)


def _train(
    stage: str,
    *,
    config: str,
    data: Path | None,
    out: Path,
    init: Path | None,
    changes: tuple[str, ...],
    quiet: bool,
) -> None:
    from .run import Trainer

    settings = _load(config, data, changes, stage)
    if not settings.data.path and settings.data.pairs != "synthetic":
        raise ValueError("no data folder: give --data DIR or set data.path")
    trainer = Trainer(settings, out, init=init, progress=not quiet)
    last = trainer.run()
    if trainer.rank == 0:
        state = "done" if trainer.is_done else "stopped; repeat the command to continue"
        click.echo(
            f"{state}: {trainer.iteration} iterations, {trainer.updates} optimiser steps,"
            f" {trainer.seconds:.0f} s,"
            f" in {out}"
        )
        names = (
            ("val_segmentation_dice", "segmentation Dice", 100, 2),
            ("val_dice", "Dice", 100, 2),
            ("val_njd_percent", "NJD", 1, 4),
        )
        texts = [
            f"{text} {factor * last[key]:.{digits}f} %"
            for key, text, factor, digits in names
            if key in last
        ]
        if texts:
            click.echo(f"validation {', '.join(texts)}")
        if trainer.is_done and not (out / "best.pt").exists():
            click.echo("without a validation Dice no best.pt is chosen: go on from last.pt")
    if not trainer.is_done:
        raise click.exceptions.Exit(errors.CancelledError.exit_code)


@app.command()
@_of_a_run
def warmup(**how: Any) -> None:
    """Stage 1: learn to register without labels, z = mu. CONFIG is a TOML file, or the name of a
    preset (see `presets`).
    """
    _train("warmup", **how)


@app.command()
@_of_a_run
def finetune(**how: Any) -> None:
    """Stage 2: fine-tune with labelled pairs, with or without a policy. CONFIG is a TOML file, or
    the name of a preset (see `presets`).
    """
    _train("finetune", **how)


@app.command()
@click.argument("checkpoint", type=_PATH)
@click.option("--data", required=True, **_DATA)
@click.option("--pairs", default="test", help="List of pairs to score.")
@click.option(
    "--steps", default=3, type=click.IntRange(1), help="T: how many steps the network takes."
)
@click.option(
    "--initial",
    help="Initial alignment: centres, none, com, rigid or affine; by default as in the run.",
)
@click.option(
    "--known",
    default=10,
    type=click.IntRange(0),
    help="How many fixed volumes to measure point errors on, by known motions; 0: none.",
)
@click.option("--to", type=_PATH, help="Write per-pair JSON here.")
def evaluate(
    checkpoint: Path,
    data: Path,
    pairs: str,
    steps: int,
    initial: str | None,
    known: int,
    to: Path | None,
) -> None:
    """Measure Dice and NJD of a checkpoint on a pair list, and how far points end from the truth
    on known motions of its volumes (the section [known] of the run). CHECKPOINT is RUN/best.pt or
    last.pt.
    """
    import numpy as np

    from .evaluate import evaluate_pairs, evaluate_points, first, scores
    from .pairs import PairSource, read_pairs
    from .run import load_backbone

    check_folder(to)
    backbone, config, _ = load_backbone(checkpoint)
    config = config.replace(**{"data.initial": initial or config.data.initial})
    source = PairSource.configured(config.data, data)
    pair_list = read_pairs(data, pairs)
    grid = config.data.spacing, config.data.min_size, steps
    rows = evaluate_pairs(backbone, source, pair_list, *grid, surface=True)
    points = evaluate_points(backbone, source, first(pair_list, known), *grid, config.known)
    for t in range(steps + 1):
        dice, moving_dice, njd, sdlogj, surface = (
            scores(rows, t, k) for k in ("dice", "dice_moving", "njd", "sdlogj", "hd95")
        )
        parts = [f"NJD {np.mean(njd):.4f} %", f"SDlogJ {np.mean(sdlogj):.2f}"]
        if dice:
            overlap = (
                f"Dice {100 * np.mean(dice):.2f} +- {100 * np.std(dice):.2f} % (in the moving"
                f" image's space {100 * np.mean(moving_dice):.2f} %)"
            )
            parts = [overlap, *parts, f"HD95 {np.mean(surface):.2f} mm"]
        count = (
            f"{len(rows)} pairs"
            if len(dice) == len(rows)
            else f"{len(rows)} pairs, {len(dice)} of them with labels"
        )
        click.echo(f"T = {t}: {', '.join(parts)}, {count}")
        if points:
            one, two = (np.mean(scores(points, t, k)) for k in ("points_mm", "points_two_mm"))
            click.echo(
                f"       points {one:.2f} mm from the truth, of two contrasts {two:.2f} mm,"
                f" {len(points)} known motions"
            )
    if to:
        from .._shared import without_nan, write_text

        write_text(to, json.dumps(without_nan(rows), indent=1, allow_nan=False))


@app.command(name="average")
@click.argument("checkpoints", type=_PATH, nargs=-1, required=True)
@click.option("--out", type=_PATH, required=True, metavar="FILE", help="Checkpoint to write.")
@click.option(
    "--share",
    type=float,
    multiple=True,
    help="Weight of each checkpoint, in their order (repeatable); equal by default.",
)
def average_(checkpoints: tuple[Path, ...], out: Path, share: tuple[float, ...]) -> None:
    """Average the weights of several runs: often better on new subjects than any of them.
    CHECKPOINTS are RUN/best.pt or last.pt of runs that started from the same weights.
    """
    from .run import average, save_atomic

    save_atomic(average(checkpoints, share or None), out)
    click.echo(f"{out}: the average of {len(checkpoints)} checkpoints")


#: The keys that an export takes from its configuration, and not from the run.
_EXPORTED = ("bundle.", "model.offsets", "model.mirrored", "data.test", "run.val_steps")


@app.command()
@click.argument("config")
@click.option("--out", type=_PATH, required=True, metavar="FILE", help="Bundle to write (.onnx).")
@click.option("--checkpoint", type=_PATH, help="RUN/best.pt or last.pt.")
@click.option(
    "--random",
    type=int,
    metavar="SEED",
    help="Instead of a checkpoint: CONFIG's network with random weights, to measure speed.",
)
@click.option(
    "--size", metavar="D,H,W", help="The only size of the network grid; transformers need it."
)
@click.option("--half", is_flag=True, help="float16 layers, for GPUs; fields stay float32.")
@_data
@_set
def export(
    config: str,
    out: Path,
    checkpoint: Path | None,
    random: int | None,
    size: str | None,
    half: bool,
    data: Path | None,
    changes: tuple[str, ...],
) -> None:
    """Stage 3: write a bundle. CONFIG is a TOML file, or the name of a preset; its [bundle] section
    names and credits the bundle. The network comes from the checkpoint.

    How the steps see the images (model.offsets, model.mirrored) comes from CONFIG if it sets them,
    else from the checkpoint. --set run.val_steps=T sets how many steps a user's run takes. With
    --data, CONFIG's test pairs (data.test) are registered from the run's initial alignment, and
    their scores go into the manifest.
    """
    import numpy as np

    from .evaluate import evaluate_pairs, scores
    from .export import export_bundle, random_backbone
    from .pairs import PairSource, read_pairs
    from .run import load_backbone

    wanted = _load(config, data, changes)
    own = {key for key in changes_of(changes) if not key.startswith(_EXPORTED)}
    if checkpoint is not None and own:
        raise ValueError(
            f"--set {', '.join(sorted(own))}: the network and its run come from the checkpoint;"
            f" an export sets {', '.join(_EXPORTED)} alone"
        )
    shape: tuple[int, int, int] | None = None
    if size:
        d, h, w = counts("--size", size, 3)
        shape = d, h, w
    if out.suffix.lower() != ".onnx":
        raise ValueError(f"--out {out}: a bundle's name ends in .onnx")
    if (checkpoint is None) == (random is None):
        raise ValueError("give either --checkpoint or --random")
    metrics: dict[str, Any] = {}
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
        if "run.val_steps" in changes_of(changes):
            trained.run.val_steps = wanted.run.val_steps
        if state.get("val_dice") is not None:
            metrics["validation_dice"] = round(state["val_dice"], 4)
    if data is not None:
        source = PairSource.configured(trained.data, data)
        pairs = read_pairs(data, wanted.data.test)
        grid = trained.data.spacing, trained.data.min_size, trained.run.val_steps
        rows = evaluate_pairs(backbone, source, pairs, *grid, surface=True)
        metrics |= {"test_pairs": len(rows), "test_initial": trained.data.initial}
        for name, step, key, digits in (
            ("test_dice_before", 0, "dice", 4),
            ("test_dice", -1, "dice", 4),
            ("test_njd_percent", -1, "njd", 5),
            ("test_sdlogj", -1, "sdlogj", 3),
            ("test_hd95_mm", -1, "hd95", 3),
        ):
            if values := scores(rows, step, key):
                metrics[name] = round(float(np.mean(values)), digits)
    manifest = export_bundle(backbone, trained, out, metrics, shape, half)
    click.echo(
        f"{out}: {out.stat().st_size / 1e6:.2f} MB, {manifest['parameters']} parameters, sha256"
        f" {manifest['sha256']}"
    )
    click.echo(json.dumps(manifest["metrics"]))


@app.command()
def presets() -> None:
    """List the presets that ship with the package."""
    from .config import presets as known

    for name, about in known().items():
        click.echo(f"{name:16s} {about}")


if __name__ == "__main__":
    app()
