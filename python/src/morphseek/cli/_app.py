"""The command itself: wrong usage, failures and their exit codes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

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


def _version(ctx: click.Context, parameter: click.Parameter, show: bool) -> None:
    if show:
        from importlib import metadata

        print(f"morphseek {metadata.version('morphseek')}")
        ctx.exit()


def _completion(ctx: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None:
        from click.shell_completion import get_completion_class

        completion = get_completion_class(shell)
        if completion is not None:
            print(completion(ctx.command, {}, "morphseek", "_MORPHSEEK_COMPLETE").source())
        ctx.exit()


@click.group(
    name="morphseek",
    cls=_Commands,
    epilog="Start with: morphseek demo. Then: morphseek register FIXED MOVING --out FOLDER",
    no_args_is_help=True,
    context_settings={"show_default": True},
)
@click.option(
    "--version", is_flag=True, callback=_version, is_eager=True, expose_value=False,
    help="Print the version.",
)  # fmt: skip
@click.option(
    "--show-completion", type=click.Choice(["bash", "zsh", "fish"]), callback=_completion,
    is_eager=True, expose_value=False,
    help="Print what completes the command in a shell, for its start-up file (~/.bashrc).",
)  # fmt: skip
def app() -> None:
    """Deformable registration of 3-D medical images. For research use; not a medical device."""


@contextlib.contextmanager
def reported(as_json: bool) -> Iterator[None]:
    """Turn a failure into its message and its exit code."""
    try:
        yield
    except (errors.MorphSeekError, KeyboardInterrupt, MemoryError) as error:
        failure = errors.from_exception(error)
        if as_json:
            print_failure(failure)
        else:
            say(f"morphseek: {failure}", "red", to_errors=True)
        raise click.exceptions.Exit(failure.exit_code) from None
    except click.exceptions.Exit:
        raise
    except Exception as error:  # a defect: its traceback goes to standard error
        if as_json:
            print_failure(errors.from_exception(error))
        raise


def print_failure(failure: errors.MorphSeekError) -> None:
    print(
        json.dumps({"error": {"name": failure.name, "code": failure.code, "message": str(failure)}})
    )
