"""The ``morphseek`` command.

Exit codes: 0 done; 2 wrong usage; 3 an input; 4 a model; 5 the runtime, a device or memory; 6 the
output; 7 a verdict that is not good, with ``--strict`` alone; 130 cancelled; 1 a defect.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from rich.console import Console
from rich.table import Table

from . import _bindings, _core, errors
from .verdict import (
    GRADES,
    UNKNOWN,
    Verdict,
    explain as explain_in_words,
    explanation,
    notes,
    tally,
)

if TYPE_CHECKING:
    from .registration import RegistrationResult

NOT_GOOD = 7  # what --strict exits with; no failure of the engine's table does

_UsageError = typer.BadParameter.__base__  # click's, or that of typer's own copy


class _Commands(typer.core.TyperGroup):
    """The commands. Wrong usage is found before a command begins, so its JSON comes from here."""

    def invoke(self, ctx: Any) -> Any:
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except _UsageError as error:  # type: ignore[misc]
            if not as_json:
                raise
            _print_failure(errors.InvalidArgumentError(error.format_message()))
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    name="morphseek",
    cls=_Commands,
    help="Deformable registration of 3-D medical images. For research use; not a medical device.",
    epilog="Start with: morphseek demo. Then: morphseek register FIXED MOVING --out FOLDER",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(
    help="List, show and verify the model bundles.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(models_app, name="models")

# Names and paths are printed as they are: [x] is no markup in them, and :x: no emoji.
_out, _err = (
    Console(stderr=stderr, highlight=False, markup=False, emoji=False) for stderr in (False, True)
)

Json = Annotated[
    bool, typer.Option("--json", help="Print the result, or the error, as JSON on standard output.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors; no progress bar.")
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help=(
            f"Exit with code {NOT_GOOD} where the verdict is not good; all results are written all"
            " the same."
        ),
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache",
        help=(
            "Compute anew, even if the same registration was done before, and keep no copy in the"
            " user's cache folder."
        ),
    ),
]


class _Report(str, enum.Enum):
    full = "full"
    small = "small"
    none = "none"


Report = Annotated[
    _Report,
    typer.Option(
        help=(
            "What report.html is: interactive, up to 6 MB; one picture and the numbers, below 200"
            " kB; or not written."
        )
    ),
]


def _size(report: _Report) -> Any:
    """Return the value: of the commands with the engine's options it is that already."""
    return getattr(report, "value", report)


def _command_line() -> str:
    """Return what the user typed, for reports."""
    return "morphseek " + shlex.join(sys.argv[1:])


def _version(show: bool) -> None:
    if show:
        print(f"morphseek {_core.version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@contextlib.contextmanager
def _reported(as_json: bool) -> Iterator[None]:
    """Turn a failure into its message and its exit code."""
    try:
        yield
    except (errors.MorphSeekError, KeyboardInterrupt, MemoryError) as error:
        failure = errors.from_exception(error)
        if as_json:
            _print_failure(failure)
        else:
            _err.print(f"morphseek: {failure}", style="red", soft_wrap=True)
        raise typer.Exit(failure.exit_code) from None
    except typer.Exit:
        raise
    except Exception as error:  # a defect: its traceback goes to standard error
        if as_json:
            _print_failure(errors.from_exception(error))
        raise


def _print_failure(failure: errors.MorphSeekError) -> None:
    print(
        json.dumps({"error": {"name": failure.name, "code": failure.code, "message": str(failure)}})
    )


def _with_engine_options(
    command: Callable[..., None], without: Collection[str] = ()
) -> Callable[..., None]:
    """Give a command the engine's options but for some: their names, types, ranges, defaults and
    helps are the engine's own.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for option in _core.option_table():
        name = option["name"]
        if name == "cache" or name in without:  # --no-cache and a fixed folder stand for the cache
            continue
        limits: dict[str, Any] = {key: option[key] for key in ("min", "max") if key in option}
        metavar = None
        kind: Any
        if "prefix" in option or "number" in option:
            kind = str
            more = (
                [f"{option['prefix']}..."]
                if "prefix" in option
                else [f"{option['number']} from {option['min']:g} to {option['max']:g}"]
            )
            default, metavar = option["default"], "|".join(option["choices"] + more)
            limits = {"parser": functools.partial(_checked, name)}
        elif "choices" in option:
            kind = _choices(name.capitalize(), option["choices"])
            default = kind(option["default"])
        else:
            kind = {"string": str, "int": int, "float": float}[option["type"]]
            default = kind(option["default"])
            limits = {key: kind(value) for key, value in limits.items()}
        info = typer.Option(
            f"--{name.replace('_', '-')}",
            help=option["help"],
            metavar=metavar,
            rich_help_panel="Registration",
            **limits,
        )
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, info],
            )
        )

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        command(*args, **{k: v.value if isinstance(v, enum.Enum) else v for k, v in kwargs.items()})

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _choices(name: str, values: list[str]) -> Any:
    """Return the choices of an option as the enumeration that Typer takes."""
    make: Any = enum.Enum
    return make(name, {value: value for value in values}, type=str)


def _checked(name: str, value: str) -> str:
    """Return an option's value if the engine takes it."""
    try:
        _bindings.check_options({name: value})
    except errors.InvalidArgumentError as error:
        raise typer.BadParameter(str(error)) from None
    return value


def _changed(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults: those that the user set."""
    defaults = {o["name"]: o["default"] for o in _core.option_table()}
    return {name: value for name, value in options.items() if value != defaults[name]}


def _cache(no_cache: bool) -> dict[str, Any]:
    """Return the cache option: the user's cache folder, unless it is not wanted or cannot be
    made.
    """
    if no_cache:
        return {}
    base = (
        os.environ.get("LOCALAPPDATA")
        if sys.platform == "win32"
        else os.environ.get("XDG_CACHE_HOME")
    )
    try:
        folder = (
            Path(base)
            if base
            else Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        )
        folder = folder / "morphseek"
        # as the engine makes it: it will hold patients' images
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return {}
    return {"cache": str(folder)}


@app.command()
@_with_engine_options
def register(
    fixed: Annotated[
        Path,
        typer.Argument(
            help="Fixed image: NIfTI, NRRD, MetaImage, ... or a folder with one DICOM series.",
            metavar="FIXED",
            show_default=False,
        ),
    ],
    moving: Annotated[
        Path,
        typer.Argument(
            help="Moving image, to be brought onto the fixed one.",
            metavar="MOVING",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder for the results; made if need be.", show_default=False
        ),
    ],
    fixed_labels: Annotated[
        Path | None,
        typer.Option(
            help="Label map of the fixed image: with that of the moving one, Dice is measured.",
            show_default=False,
        ),
    ] = None,
    moving_labels: Annotated[
        Path | None,
        typer.Option(help="Label map of the moving image: it is warped too.", show_default=False),
    ] = None,
    fixed_mask: Annotated[
        Path | None,
        typer.Option(help="Where not zero, the fixed image counts.", show_default=False),
    ] = None,
    moving_mask: Annotated[
        Path | None,
        typer.Option(help="Where not zero, the moving image counts.", show_default=False),
    ] = None,
    initial_transform: Annotated[
        Path | None,
        typer.Option(
            help="Rigid or affine transform (.tfm, .h5), fixed to moving, to start from.",
            show_default=False,
        ),
    ] = None,
    report: Report = _Report.full,
    strict: Strict = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help=(
                "Print how the result came about: the start that was kept, what was compared, the"
                " search, the smoothness, what the referee said, and why."
            ),
        ),
    ] = False,
    no_cache: NoCache = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Register MOVING onto FIXED.

    Writes warped.nii.gz, transform.h5, displacement.nrrd, report.json and report.html to the output
    folder, warped_labels.nii.gz if the moving labels are given and uncertainty.nrrd if it is asked
    for: all of them or, on an error, none. The last line is the verdict: good; check (look before
    use); or failed (do not use).
    """
    with _reported(as_json):
        from . import batch

        summary = batch.register_into(
            out,
            (fixed, moving),
            (fixed_labels, moving_labels),
            options=_changed(options) | _cache(no_cache),
            title=f"{moving} onto {fixed}",
            command=_command_line(),
            report=_size(report),
            progress=not (quiet or as_json),
            fixed_mask=fixed_mask,
            moving_mask=moving_mask,
            initial_transform=initial_transform,
        )
        _print_summary(summary, out, quiet, as_json, explain)
        if strict and not _is_good(Verdict.of(summary)):
            raise typer.Exit(NOT_GOOD)


def _is_good(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.grade == GRADES[0]


_STYLES = {"good": "green", "check": "yellow", "failed": "red"}


def _print_verdict(verdict: Verdict | None, quiet: bool) -> None:
    """Print the verdict; one that is not good is an error to who wants to see nothing else."""
    if quiet and _is_good(verdict):
        return
    style = _STYLES[verdict.grade] if verdict else None
    console = _err if quiet else _out
    console.print(f"verdict: {verdict or UNKNOWN}", style=style, soft_wrap=True)


def _print_summary(
    summary: dict[str, Any], out: Path, quiet: bool, as_json: bool, explain: bool = False
) -> None:
    if as_json:
        print(json.dumps(summary | ({"explanation": explain_in_words(summary)} if explain else {})))
        return
    for warning in notes(summary):
        _err.print(f"note: {warning}", style="yellow", soft_wrap=True)
    if not quiet:
        _print_rows(_summary_rows(summary, out))
    if explain:
        _print_rows(explanation(summary))
    _print_verdict(Verdict.of(summary), quiet)


def _summary_rows(summary: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    rows = []
    if "dice_after" in summary:
        rows.append(("mean Dice", f"{summary['dice_before']:.3f} -> {summary['dice_after']:.3f}"))
    if truth := summary.get("truth"):
        rows += _truth_rows(truth, summary["align"]["method"])
    rows += [
        (
            summary["similarity"],
            f"{summary['similarity_before']:.4f} -> {summary['similarity_after']:.4f}",
        ),
        ("folding (NJD)", f"{summary['njd_percent']:.4f} %"),
        *(
            [
                (
                    "uncertainty",
                    f"mean {spread['mean_mm']:.1f} mm, 95 % below {spread['p95_mm']:.1f} mm",
                )
            ]
            if (spread := summary["uncertainty"])
            else []
        ),
        ("model, device", f"{summary['model']}, {summary['device']}"),
        (
            "time",
            f"{summary['seconds']['total']:.1f} s"
            + (" (then; now from the cache)" if summary["cached"] else ""),
        ),
        ("report", str(page if (page := out / "report.html").exists() else out / "report.json")),
    ]
    return rows


def _truth_rows(truth: dict[str, Any], method: str) -> list[tuple[str, str]]:
    """Return the errors of the demonstration pair: before, after the initial alignment, after
    all.
    """

    def course(of: dict[str, Any], key: str) -> str:
        return (
            " -> ".join(f"{of[when][key]:.1f}" for when in ("before", "initial", "after")) + " mm"
        )

    rows = [
        (
            "error to the truth",
            (
                f"{course(truth, 'mean_mm')} on average: before -> initial alignment ({method}) ->"
                f" after, at {truth['points']} points in organs"
            ),
        ),
        ("  median", course(truth, "median_mm")),
        ("  95th percentile", course(truth, "p95_mm")),
    ]
    if worse := [
        organ
        for organ in truth["organs"]
        if organ["after"]["mean_mm"] > 1.05 * organ["initial"]["mean_mm"]
    ]:
        rows.append(
            (
                "  worse than initial",
                ", ".join(
                    f"{o['name']} {o['initial']['mean_mm']:.1f} -> {o['after']['mean_mm']:.1f}"
                    for o in worse
                )
                + " mm",
            )
        )
    return rows


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        _out.print(f"{name:<{width}}  {value}", soft_wrap=True)


class _Interpolation(str, enum.Enum):
    linear = "linear"
    nearest = "nearest"


@app.command()
def apply(
    transform: Annotated[
        Path,
        typer.Option(
            help="Transform, fixed to moving: transform.h5 of a registration, or any .h5 or .tfm.",
            show_default=False,
        ),
    ],
    image: Annotated[
        Path,
        typer.Option(
            "--input", "-i", help="Image or label map in the moving space.", show_default=False
        ),
    ],
    reference: Annotated[
        Path,
        typer.Option(
            "--reference",
            "-r",
            help="Image whose grid the output gets: the fixed one.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.", show_default=False)],
    interpolation: Annotated[
        _Interpolation, typer.Option(help="nearest for label maps.")
    ] = _Interpolation.linear,
    as_json: Json = False,
) -> None:
    """Resample an image or a label map by a transform."""
    with _reported(as_json):
        import numpy as np
        import SimpleITK as sitk

        from . import io
        from .transform import beyond, minimum, ranked

        io.check_apart(
            out.parent, [out.name], {"transform": transform, "input": image, "reference": reference}
        )
        loaded = io.read_transform(transform)
        source, target = io.read(image, "input"), io.read(reference, "reference")
        grid = target.to_sitk()
        if interpolation is _Interpolation.linear:
            resampled = sitk.Resample(
                source.like(source.float32()).to_sitk(),
                grid,
                loaded,
                sitk.sitkLinear,
                minimum(source.array),
            )
        elif source.array.dtype.kind in "iu" and beyond(source.array, 2**53):
            # SimpleITK counts in float64: the labels' ranks travel
            found, ranks, background = ranked(source.array, 0)
            moved = sitk.Resample(
                source.like(ranks.astype(np.uint32)).to_sitk(),
                grid,
                loaded,
                sitk.sitkNearestNeighbor,
                float(background),
            )
            resampled = target.like(found[sitk.GetArrayViewFromImage(moved)]).to_sitk()
        else:
            resampled = sitk.Resample(source.to_sitk(), grid, loaded, sitk.sitkNearestNeighbor, 0.0)
        io.write_image(out, resampled)
        print(json.dumps({"out": str(out)}) if as_json else out)


@app.command()
@functools.partial(_with_engine_options, without=("uncertainty",))  # it has no place in scores
def evaluate(
    pairs: Annotated[
        Path,
        typer.Argument(
            help=(
                "CSV (fixed,moving) or JSON list of pairs, also by its name in --data; Learn2Reg's"
                " files are read."
            ),
            metavar="PAIRS",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path, typer.Option(help="Folder with images/ and labels/.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder for results.json, results.csv, index.html and the pairs' pages.",
            show_default=False,
        ),
    ],
    subset: Annotated[
        str | None,
        typer.Option(help="Which of a JSON file's lists, e.g. test.", show_default=False),
    ] = None,
    labels_csv: Annotated[
        Path | None,
        typer.Option(
            help="Table id,name[,structure] of the labels; those of one structure are merged.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Folder of another evaluation, for the Wilcoxon test.", show_default=False
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Measure Dice a second time by SimpleITK alone, from the written transform.",
        ),
    ] = False,
    inverse: Annotated[
        bool,
        typer.Option(
            "--inverse",
            help="Measure Dice in the moving image's space, too, by the inverse transform.",
        ),
    ] = False,
    report: Report = _Report.small,
    no_cache: NoCache = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Register many pairs and score them: Dice, HD95, volumes and folding for every pair and label.

    A pair that fails is listed with its error, the others go on, and the exit code is the first
    failure's.
    """
    with _reported(as_json):
        from . import io
        from .evaluation import FILES, evaluate as run, find_list, run_file

        pairs = find_list(pairs, data)
        io.check_apart(
            out,
            FILES,
            {"pairs": pairs, "labels_csv": labels_csv, "against": against and run_file(against)},
        )
        with io.output_folder(out) as folder:  # first: an unwritable folder fails before the work
            result = run(
                pairs,
                data,
                subset=subset,
                labels_csv=labels_csv,
                against=against,
                check=check,
                inverse=inverse,
                pages=None if _size(report) == "none" else folder,
                report="full" if _size(report) == "full" else "small",
                progress=not (quiet or as_json),  # with a line for each pair, on standard error
                **_changed(options),
                **_cache(no_cache),
            )
            result.options.pop("cache", None)
            summary = result.summary()
            # What failed altogether takes no other's place.
            kept = (
                [name for name in FILES if (out / name).exists()]
                if summary["failed"] == summary["pairs"]
                else []
            )
            if not kept:
                result.write(folder)
        if kept and not as_json:
            _err.print(
                f"note: no pair succeeded, so {' and '.join(kept)} in {out} stay as they were",
                style="yellow",
                soft_wrap=True,
            )
        if as_json:
            print(json.dumps(result.to_dict()))
        elif not (quiet or kept):
            _print_evaluation(summary, result.names, result.wilcoxon, out)
        failure = next((p.exit_code for p in result.pairs if p.error), 0)
        if failure:
            raise typer.Exit(failure)


def _print_evaluation(
    summary: dict[str, Any], names: dict[int, str], wilcoxon: dict[str, Any] | None, out: Path
) -> None:
    table = Table("label", "mean Dice")
    for label, dice in summary["dice_by_label"].items():
        table.add_row(names.get(label, str(label)), f"{dice:.4f}")
    _out.print(table)

    def number(name: str, digits: int, unit: str = "") -> str:
        return "-" if summary[name] is None else f"{summary[name]:.{digits}f}{unit}"

    rows = [
        (
            "pairs",
            ", ".join(
                [
                    f"{summary['pairs']}",
                    *(
                        f"{summary[what]} {said}"
                        for what, said in (
                            ("failed", "failed"),
                            ("unscored", "without a common label"),
                        )
                        if summary[what]
                    ),
                ]
            ),
        ),
        ("mean Dice", f"{number('dice_before', 4)} -> {number('dice_after', 4)}"),
    ]
    if summary["dice_check"] is not None:
        rows.append(("mean Dice by SimpleITK", number("dice_check", 4)))
    if summary["dice_inverse"] is not None:
        rows.append(("mean Dice by the inverse", number("dice_inverse", 4)))
    rows += [
        ("mean HD95", number("hd95_after", 2, " mm")),
        (
            "volume by the Jacobian",
            (
                f"off by {number('volume_error_percent', 1, ' %')} on average, bias"
                f" {number('volume_bias_percent', 1, ' %')}"
            ),
        ),
        ("mean NJD", number("njd_percent", 4, " %")),
        (
            "a pair",
            f"{number('seconds', 2, ' s')}, {number('cpu_seconds', 2, ' CPU s')}"
            + (f" (without {summary['cached']} from the cache)" if summary["cached"] else ""),
        ),
    ]
    if summary["worst"]:
        rows.append(
            ("worst pair", "{fixed} <- {moving}  {dice_after:.4f}".format(**summary["worst"]))
        )
    if wilcoxon:
        rows.append(
            (
                "against the other run",
                "mean difference {mean_difference:+.4f}, {better} better, {worse} worse, Wilcoxon p"
                " = {p_value:.3g}".format(**wilcoxon),
            )
        )
    rows += [("results", str(out / "results.json")), ("verdict", tally(summary["verdict"]))]
    _print_rows(rows)


@app.command("batch")
@_with_engine_options
def batch_command(
    pairs: Annotated[
        Path,
        typer.Argument(
            help=(
                "CSV with the columns fixed, moving and, optionally, fixed_labels, moving_labels,"
                " fixed_mask, moving_mask, id."
            ),
            metavar="PAIRS.csv",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder for one folder a pair, summary.csv, summary.json and index.html.",
            show_default=False,
        ),
    ],
    workers: Annotated[
        int,
        typer.Option(
            help=(
                "Pairs at a time; each gets its share of the cores unless --threads says otherwise."
            ),
            min=1,
        ),
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help=(
                "Address of a Dask scheduler whose workers do the work, one thread a pair (extra:"
                " pip install morphseek[dask])."
            ),
            show_default=False,
        ),
    ] = None,
    report: Report = _Report.small,
    html: Annotated[
        bool, typer.Option("--html", hidden=True, help="Deprecated: --report full.")
    ] = False,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Compute every pair anew, also those that are finished."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help=(
                f"Exit with code {NOT_GOOD} where a pair's verdict is not good (and none failed to"
                " be registered); all results are written all the same."
            ),
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Register many pairs, each into a folder of its own.

    Pairs that are finished, with the same files and options, are not done again: after an
    interruption, the same command goes on. A pair that fails is listed with its error, the others
    go on, and the exit code is the first failure's.
    """
    with _reported(as_json):
        from . import batch

        done = batch.run(
            pairs,
            out,
            workers=workers,
            scheduler=scheduler,
            report="full" if html else _size(report),
            command=_command_line(),
            anew=no_cache,
            progress=not (quiet or as_json),
            **_changed(options),
        )
        if as_json:
            print(json.dumps(done.to_dict()))
        elif not quiet:
            _print_batch(done.summary(), out)
        if done.exit_code:
            raise typer.Exit(done.exit_code)
        if strict and any(pair.verdict != GRADES[0] for pair in done.pairs):
            raise typer.Exit(NOT_GOOD)


def _print_batch(summary: dict[str, Any], out: Path) -> None:
    counts = ", ".join(
        f"{summary[state]} {state}" for state in ("done", "skipped", "failed") if summary[state]
    )
    rows = [("pairs", f"{summary['pairs']}: {counts}")]
    if summary["dice_after"] is not None:
        rows.append(("mean Dice", f"{summary['dice_before']:.4f} -> {summary['dice_after']:.4f}"))
    if summary["seconds"] is not None:
        rows += [
            ("mean NJD", f"{summary['njd_percent']:.4f} %"),
            ("a pair", f"{summary['seconds']:.2f} s"),
        ]
    rows += [("results", str(out / "summary.csv")), ("verdict", tally(summary["verdict"]))]
    _print_rows(rows)


@models_app.command("list")
def models_list(as_json: Json = False) -> None:
    """List the bundles that ship with the package."""
    with _reported(as_json):
        found = _core.models()
        if as_json:
            print(json.dumps(found))
            return
        table = Table("name", "version", "modality", "licence", "state")
        for info in found:
            m = info["manifest"]
            table.add_row(
                m["name"], m["version"], m["modality"], m["licence"], info["error"] or "sound"
            )
        _out.print(table)


@models_app.command("show")
def models_show(
    name: Annotated[
        str, typer.Argument(help="Built-in name or path of a .onnx bundle.", show_default=False)
    ],
) -> None:
    """Print a bundle's manifest as JSON: what it is, what it was trained on, its licence and
    credit.
    """
    with _reported(False):
        print(json.dumps(_core.verify_model(name)["manifest"], indent=2))


@models_app.command("verify")
def models_verify(
    name: Annotated[
        str, typer.Argument(help="Built-in name or path of a .onnx bundle.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Check a bundle as a registration would: whole, untampered (sha256), of a known format,
    nothing outside itself.
    """
    with _reported(as_json):
        info = _core.verify_model(name)
        print(
            json.dumps(info)
            if as_json
            else (
                f"{info['manifest']['name']} {info['manifest']['version']} is sound (sha256"
                f" {info['manifest']['sha256']})"
            )
        )


@app.command()
def devices(as_json: Json = False) -> None:
    """List what networks can run on: the ONNX Runtime in use, the GPUs, and for each device why it
    cannot be used and what to do.
    """
    with _reported(as_json):
        found = _core.devices()
        if as_json:
            print(json.dumps(found))
            return
        rows = [
            (
                "ONNX Runtime",
                f"{found['version']}  {found['library']}" if found["library"] else "not found",
            ),
            ("its providers", ", ".join(found["providers"]) or "none"),
            (
                "GPUs",
                ", ".join(
                    f"{gpu['name']} ({gpu['bytes'] / 2**30:.0f} GiB)" for gpu in found["gpus"]
                )
                or "none that an NVIDIA driver shows",
            ),
        ]
        for device in found["devices"]:
            rows.append(
                (device["name"], "usable" if device["usable"] else f"not usable: {device['error']}")
            )
            if device["remedy"]:
                rows.append(("", f"To use it: {device['remedy']}."))
        _print_rows(rows)


@app.command()
@_with_engine_options
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "morphseek-demo"
    ),
    size: Annotated[
        int, typer.Option(help="Voxels of the fixed image along each axis.", min=32, max=256)
    ] = 96,
    report: Report = _Report.full,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Register a made-up pair with a known answer: an MR-like and a CT-like torso, different in
    pose, size, grid and shape.
    """
    with _reported(as_json):
        from . import batch, phantom

        started = time.perf_counter()
        pair = phantom.make_pair(size)
        if not (quiet or as_json):
            seconds = time.perf_counter() - started
            made = f"made fixed {pair.fixed!r}, moving {pair.moving!r} in {seconds:.1f} s"
            _err.print(made, soft_wrap=True)  # no result

        def error_to_truth(result: RegistrationResult) -> dict[str, Any]:
            truth = pair.errors(result)
            return {
                "tre_before_mm": truth["before"]["mean_mm"],
                "tre_after_mm": truth["after"]["mean_mm"],
                "truth": truth,
            }

        summary = batch.register_into(
            out,
            (pair.fixed, pair.moving),
            (pair.fixed_labels, pair.moving_labels),
            options=_changed(options),
            title="the demonstration pair: a CT-like torso onto an MR-like one",
            command=_command_line(),
            report=_size(report),
            progress=not (quiet or as_json),
            label_names=phantom.LABELS,
            extra=error_to_truth,
        )
        _print_summary(summary, out, quiet, as_json)


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def train(context: typer.Context) -> None:
    """Train and export networks (extra: pip install morphseek[training])."""
    try:
        from .training.cli import app as training

        training(args=context.args, prog_name="morphseek train")
    except ModuleNotFoundError as error:
        _err.print(
            f"morphseek: training needs its extra packages ({error}): pip install"
            " 'morphseek[training]'",
            style="red",
            soft_wrap=True,
        )
        raise typer.Exit(errors.InvalidArgumentError.exit_code) from None
