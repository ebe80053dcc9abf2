"""morphseek train"""

from __future__ import annotations

import typer

from .. import errors
from ._app import app
from .output import console


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
        from ..training.cli import app as training

        training(args=context.args, prog_name="morphseek train")
    except ModuleNotFoundError as error:
        from .._features import brings, needed

        if (error.name or "").partition(".")[0].lower() not in brings("training"):
            raise  # a defect
        console(errors=True).print(
            f"morphseek: {needed('training', 'train', error)}", style="red", soft_wrap=True
        )
        raise typer.Exit(errors.InvalidArgumentError.exit_code) from None
