"""Options that several commands share, the engine's among them."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import click

from .. import errors
from .._cache import cache_folder
from .._engine.table import is_preset_file, option_table
from .output import NOT_GOOD

Command = TypeVar("Command", bound=Callable[..., None])

PATH = click.Path(path_type=Path)

out_folder = functools.partial(click.option, "--out", "-o", type=PATH)
json_option = click.option(
    "--json", "as_json", is_flag=True,
    help="Print the result, or the error, as JSON on standard output.",
)  # fmt: skip
quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="Print nothing but errors; no progress bar."
)
strict_option = click.option(
    "--strict", is_flag=True,
    help=f"Exit with code {NOT_GOOD} where the verdict is not good; all results are written all"
    " the same.",
)  # fmt: skip
no_cache_option = click.option(
    "--no-cache", is_flag=True,
    help="Compute anew, even if the same registration was done before, and keep no copy in the"
    " user's cache folder.",
)  # fmt: skip
workers_option = click.option(
    "--workers", type=click.IntRange(1), default=1,
    help="Pairs at a time; each gets its share of the cores unless --threads says otherwise.",
)  # fmt: skip

scheduler_option = click.option(
    "--scheduler",
    help="Address of a Dask scheduler whose workers do the work, one thread a pair (extra: pip"
    " install morphseek[dask]).",
)
no_resume_option = click.option(
    "--no-resume", is_flag=True, help="Do pairs again that are finished."
)


def report_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--report", type=click.Choice(["full", "small", "none"]), default=default,
        help="What report.html is: interactive, up to 6 MB; one picture and the numbers, below 200"
        " kB; or not written.",
    )  # fmt: skip


def command_line() -> str:
    """Return what the user typed, as a shell of the system takes it, for reports."""
    words = sys.argv[1:]
    if sys.platform == "win32":  # whose shells know double quotes alone
        import subprocess

        return "morphseek " + subprocess.list2cmdline(words)
    return "morphseek " + shlex.join(words)


def engine_options(without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command the engine's options but for some: their names, types, ranges, defaults and
    helps are the engine's own.
    """

    def give(command: Command) -> Command:
        for option in reversed(option_table()):  # the last one given comes first
            name = option["name"]
            # --no-cache and a fixed folder stand for the cache
            if name != "cache" and name not in without:
                command = _option(option)(command)
        return _save_preset_option(command)

    return give


_save_preset_option = click.option(
    "--save-preset", type=PATH, metavar="FILE.json",
    help="Also write the options that were set to a file, for --preset FILE.json.",
)  # fmt: skip


def common_options(report: str, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command what all have that register: its report, its silence, the engine's options."""
    options = (engine_options(without), json_option, quiet_option, report_option(report))

    def give(command: Command) -> Command:
        for option in options:
            command = option(command)
        return command

    return give


def _option(option: dict[str, Any]) -> Callable[[Command], Command]:
    name = option["name"]
    more: dict[str, Any] = {"default": option["default"], "help": option["help"]}
    least, most = option.get("min"), option.get("max")
    if "prefix" in option or "number" in option:  # the engine knows what else it takes
        words = list(option["choices"])
        words += [f"{option['prefix']}..."] if "prefix" in option else []
        words += [f"{option['number']} from {least:g} to {most:g}"] if "number" in option else []
        more |= {"type": str, "metavar": "|".join(words), "callback": _checked}
    elif name == "preset":
        words = [*option["choices"], "FILE.json"]
        more |= {"type": str, "metavar": "|".join(words), "callback": _checked_preset}
    elif "choices" in option:
        more["type"] = click.Choice(option["choices"])
    elif option["type"] == "string":
        more["type"] = str
    else:
        kind = click.IntRange if option["type"] == "int" else click.FloatRange
        more["type"] = kind(least, most)
    return click.option(f"--{name.replace('_', '-')}", name, **more)


def _checked(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return an option's value if the engine takes it."""
    if value == parameter.default:
        return value
    from .._engine import bindings

    try:
        bindings.check_options({str(parameter.name): value})
    except errors.InvalidArgumentError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
    return value


def _checked_preset(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return a preset of the engine's, or the name of a file, which is read later."""
    return value if is_preset_file(value) else _checked(ctx, parameter, value)


def changed(options: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's options that the user set: those that differ from their defaults, and
    those of a preset's file where the command does not say otherwise. Write them to the file that
    ``save_preset`` names.
    """
    options = dict(options)
    save = options.pop("save_preset")
    defaults = {o["name"]: o["default"] for o in option_table()}
    found = {name: value for name, value in options.items() if value != defaults[name]}
    if is_preset_file(options.get("preset")):
        from .._engine.options import plain_options

        said = click.get_current_context().get_parameter_source
        own = {
            name: value
            for name, value in options.items()
            if said(name) is not click.core.ParameterSource.DEFAULT
        }
        found = plain_options(own)  # with those of the file
    if save is not None:
        from .._engine.options import save_preset

        save_preset(save, **found)
    return found


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
