"""The command itself: wrong usage, failures and their exit codes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
import typer.core

from .. import errors
from .output import console

UsageError = typer.BadParameter.__base__  # click's, or that of typer's own copy


class _Commands(typer.core.TyperGroup):
    """The commands. Wrong usage is found before a command begins, so its JSON comes from here."""

    def invoke(self, ctx: Any) -> Any:
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except UsageError as error:  # type: ignore[misc]
            if not as_json:
                raise
            print_failure(errors.InvalidArgumentError(error.format_message()))
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


def _version(show: bool) -> None:
    if show:
        from importlib import metadata

        print(f"morphseek {metadata.version('morphseek')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


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
            console(errors=True).print(f"morphseek: {failure}", style="red", soft_wrap=True)
        raise typer.Exit(failure.exit_code) from None
    except typer.Exit:
        raise
    except Exception as error:  # a defect: its traceback goes to standard error
        if as_json:
            print_failure(errors.from_exception(error))
        raise


def print_failure(failure: errors.MorphSeekError) -> None:
    print(
        json.dumps({"error": {"name": failure.name, "code": failure.code, "message": str(failure)}})
    )
