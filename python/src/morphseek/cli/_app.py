"""The command itself: wrong usage, failures and their exit codes."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import click

from .. import errors
from .output import say


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
