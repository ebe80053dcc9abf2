"""morphseek train"""

from __future__ import annotations

import typer

from .. import errors
from ._app import app
from .output import console

# what the extra brings
_EXTRA = ("torch", "scipy", "tomli", "monai", "onnx", "onnxscript", "tensorboard")


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
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise  # a defect
        console(errors=True).print(
            f"morphseek: training needs its extra packages ({error}): pip install"
            " 'morphseek[training]'",
            style="red",
            soft_wrap=True,
        )
        raise typer.Exit(errors.InvalidArgumentError.exit_code) from None
