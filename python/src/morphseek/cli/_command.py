"""The command itself, and how a function becomes one of its commands: options in sections, one way
to print, one to fail.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import click

from .. import errors
from .._engine.table import in_python, is_preset_file, option_table
from .._typed import COMMAND
from .output import Reply, say

_SECTIONS = ("Options", "Images of a BIDS folder", "Registration", "Running", "Output")
_BIDS = ("bids", "suffix", "entity", "label_entity", "no_labels")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*decorators: Decorator) -> Decorator:
    """Return decorators as one; the first one's option comes first."""
    return lambda function: functools.reduce(lambda f, d: d(f), reversed(decorators), function)


class Option(click.Option):
    """An option that stands in a section of the help."""

    def __init__(self, *names: Any, section: str = "Options", **how: Any):
        super().__init__(*names, **how)
        self.section = section


class _Command(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _SECTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and isinstance(parameter, click.Option):
                sections[getattr(parameter, "section", "Output")].append(record)  # --help has none
        for section, records in sections.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


class _Commands(click.Group):
    """The commands. Wrong usage is found before a command begins, so its JSON comes from here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in their own order

    def invoke(self, ctx: click.Context) -> object:
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not as_json:
                raise
            failure = errors.InvalidArgumentError(error.format_message())
            print_failure(failure)
            raise click.exceptions.Exit(failure.exit_code) from None


@click.group(
    name="morphseek",
    cls=_Commands,
    epilog="Start with: morphseek demo. Then: morphseek register FIXED MOVING --out FOLDER",
    no_args_is_help=True,
    context_settings={"show_default": True},
)
@click.version_option(
    package_name="morphseek", message="morphseek %(version)s", help="Print the version."
)
def app() -> None:
    """Deformable registration of 3-D medical images. For research use; not a medical device."""


class _Ended(KeyboardInterrupt):
    """A scheduler, or a terminal that closes, asked the process to end."""

    def __init__(self, number: int):
        self.exit_code = 128 + number


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Make SIGTERM and SIGHUP what Ctrl-C is, once: another must not disturb the clean-up."""
    changed = []
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, s) for s in ("SIGTERM", "SIGHUP") if hasattr(signal, s)]
        # nohup ignores one
        changed = [n for n in numbers if signal.getsignal(n) is signal.SIG_DFL]

    def handle(handler: Any) -> None:
        for number in changed:
            signal.signal(number, handler)

    def end(number: int, frame: object) -> None:
        if changed:  # else it is the second one, after a SignalDelay put this handler back
            handle(signal.SIG_IGN)
            changed.clear()  # the process has its own exit code still to give
            raise _Ended(number)

    handle(end)
    try:
        yield
    finally:
        handle(signal.SIG_DFL)


@contextlib.contextmanager
def reported(as_json: bool, goes_on: bool = False) -> Iterator[list[str]]:
    """Turn a failure into its message and its exit code, and say whether the command goes on after
    Ctrl-C. Print what files leave in doubt, and give the list of it.
    """
    try:
        with _ended_in_order(), _noted() as notes:
            yield notes
    except (errors.MorphSeekError, KeyboardInterrupt, MemoryError) as error:
        failure = errors._from_exception(error)
        if goes_on and isinstance(failure, errors.CancelledError):
            failure = errors.CancelledError(
                f"{failure}; what is finished is kept, and the same command goes on"
            )
        if as_json:
            print_failure(failure)
        else:
            say(f"morphseek: {failure}", "red", to_errors=True)
        code = error.exit_code if isinstance(error, _Ended) else failure.exit_code
        raise click.exceptions.Exit(code) from None
    except click.exceptions.Exit:
        raise
    except Exception as error:  # a defect: its traceback goes to standard error
        if as_json:
            print_failure(errors._from_exception(error))
        raise


@contextlib.contextmanager
def _noted() -> Iterator[list[str]]:
    """Print and collect the warnings about inputs."""
    notes: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", errors.InputWarning)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, errors.InputWarning):
                if str(message) not in notes:
                    notes.append(str(message))
                    say(f"note: {message}", "yellow", to_errors=True)
            else:
                show(message, category, *where)

        warnings.showwarning = note  # type: ignore[assignment]
        yield notes


def print_failure(failure: errors.MorphSeekError) -> None:
    print(
        json.dumps({"error": {"name": failure.name, "code": failure.code, "message": str(failure)}})
    )


def command(
    name: str, *parameters: Decorator, group: click.Group = app
) -> Callable[[Callable[..., Reply]], click.Command]:
    """Make a function a command that prints its reply.

    The function takes the parameters by name. In place of ``quiet`` it takes ``progress``, and in
    place of the engine's options ``options``, those that the user set; in place of those of a BIDS
    folder ``where``.
    """

    def make(function: Callable[..., Reply]) -> click.Command:
        @functools.wraps(function)
        def run(as_json: bool = False, **values: Any) -> None:
            with reported(as_json, goes_on="resume" in values) as notes:
                quiet = values.get("quiet", False)
                if "quiet" in values:
                    values["progress"] = not (values.pop("quiet") or as_json)
                if "save_preset" in values:
                    values["options"] = set_options(values)
                if "bids" in values:
                    values["where"] = {name: values.pop(name) for name in _BIDS}
                token = COMMAND.set(command_line())
                try:
                    reply = function(**values)
                finally:
                    COMMAND.reset(token)
                if as_json:
                    if notes and isinstance(reply.facts, dict):
                        reply.facts.setdefault("warnings", notes)
                    print(json.dumps(reply.facts))
                else:
                    reply.show(quiet)
                if reply.exit_code:
                    raise click.exceptions.Exit(reply.exit_code)

        return group.command(name, cls=_Command)(together(*parameters)(run))

    return make


def set_options(values: dict[str, Any]) -> dict[str, Any]:
    """Take the engine's options out of a command's values; return those that the user set, and
    those of a preset's file. Write them to the file that ``save_preset`` names.
    """
    source = click.get_current_context().get_parameter_source
    names = [one["name"] for one in option_table() if one["name"] in values]
    plain = {name: values.pop(name) for name in names}
    options = {
        name: in_python(name, value)
        for name, value in plain.items()
        if source(name) is not click.core.ParameterSource.DEFAULT
    }
    path, is_file = values.pop("save_preset"), is_preset_file(options.get("preset"))
    if is_file or path is not None:
        from .._engine.options import plain_options, save_preset

        options = plain_options(options) if is_file else options
        if path is not None:
            save_preset(path, **options)
    return options


def command_line() -> str:
    """Return what the user typed, as a shell of the system takes it, for reports."""
    words = sys.argv[1:]
    if sys.platform == "win32":  # whose shells know double quotes alone
        import subprocess

        return "morphseek " + subprocess.list2cmdline(words)
    return "morphseek " + shlex.join(words)
