"""morphseek train"""

from __future__ import annotations

import click

from .. import errors
from ._app import app
from .output import say

# what the extra brings
_EXTRA = ("torch", "scipy", "tomli", "monai", "onnx", "onnxscript", "tensorboard")


@app.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def train(arguments: tuple[str, ...]) -> None:
    """Train and export networks (extra: pip install morphseek[training])."""
    try:
        from ..training.cli import app as training

        training(args=list(arguments), prog_name="morphseek train")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise  # a defect
        say(
            f"morphseek: training needs its extra packages ({error}): pip install"
            " 'morphseek[training]'",
            "red",
            to_errors=True,
        )
        raise click.exceptions.Exit(errors.InvalidArgumentError.exit_code) from None
