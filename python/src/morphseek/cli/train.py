"""morphseek train"""

from __future__ import annotations

import click

from .. import errors
from ._command import app
from .output import say


@app.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def train(arguments: tuple[str, ...]) -> None:
    """Train and export networks (extra: pip install morphseek[training])."""
    try:
        from ..training.cli import app as training

        training(args=list(arguments), prog_name="morphseek train")
    except ModuleNotFoundError as error:
        from .._features import brings, needed

        if (error.name or "").partition(".")[0].lower() not in brings("training"):
            raise  # a defect
        say(f"morphseek: {needed('training', 'train', error)}", "red", to_errors=True)
        raise click.exceptions.Exit(errors.InvalidArgumentError.exit_code) from None
