"""Options that several commands share, the engine's among them."""

from __future__ import annotations

import enum
import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Collection
from typing import Annotated, Any

import typer

from .. import errors
from .._cache import cache_folder
from .._engine.table import option_table
from .output import NOT_GOOD

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


class ReportSize(str, enum.Enum):
    """What ``--report`` takes."""

    full = "full"
    small = "small"
    none = "none"


Report = Annotated[
    ReportSize,
    typer.Option(
        help=(
            "What report.html is: interactive, up to 6 MB; one picture and the numbers, below 200"
            " kB; or not written."
        )
    ),
]


def size_of(report: Any) -> Any:
    """Return the value: of the commands with the engine's options it is that already."""
    return getattr(report, "value", report)


def command_line() -> str:
    """Return what the user typed, for reports."""
    return "morphseek " + shlex.join(sys.argv[1:])


def with_engine_options(
    command: Callable[..., None], without: Collection[str] = ()
) -> Callable[..., None]:
    """Give a command the engine's options but for some: their names, types, ranges, defaults and
    helps are the engine's own.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for option in option_table():
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
    from .._engine import bindings

    try:
        bindings.check_options({name: value})
    except errors.InvalidArgumentError as error:
        raise typer.BadParameter(str(error)) from None
    return value


def changed(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults: those that the user set."""
    defaults = {o["name"]: o["default"] for o in option_table()}
    return {name: value for name, value in options.items() if value != defaults[name]}


def cache_option(no_cache: bool) -> dict[str, Any]:
    """Return the cache option: the user's cache folder, unless it is not wanted or cannot be
    made.
    """
    if no_cache:
        return {}
    try:
        folder = cache_folder()
        # as the engine makes it: it will hold patients' images
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return {}
    return {"cache": str(folder)}
