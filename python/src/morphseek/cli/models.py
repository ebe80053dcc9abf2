"""morphseek models"""

from __future__ import annotations

import json

import click

from ._app import app, reported
from .options import json_option
from .output import print_table


@app.group("models", no_args_is_help=True)
def models() -> None:
    """List, show and verify the model bundles: built in, or in a .onnx file."""


@models.command("list")
@json_option
def models_list(as_json: bool) -> None:
    """List the bundles that ship with the package."""
    with reported(as_json):
        from .._engine import core

        found = core.models()
        if as_json:
            print(json.dumps(found))
            return
        columns = ("name", "version", "modality", "licence")
        rows = [
            [*(info["manifest"][c] for c in columns), info["error"] or "sound"] for info in found
        ]
        print_table((*columns, "state"), rows)


@models.command("show")
@click.argument("name")
def models_show(name: str) -> None:
    """Print a bundle's manifest as JSON: what it is, what it was trained on, its licence and
    credit.
    """
    with reported(False):
        from .._engine import core

        print(json.dumps(core.verify_model(name)["manifest"], indent=2))


@models.command("verify")
@click.argument("name")
@json_option
def models_verify(name: str, as_json: bool) -> None:
    """Check a bundle as a registration would: whole, untampered (sha256), of a known format,
    nothing outside itself.
    """
    with reported(as_json):
        from .._engine import core

        info = core.verify_model(name)
        print(
            json.dumps(info)
            if as_json
            else (
                f"{info['manifest']['name']} {info['manifest']['version']} is sound (sha256"
                f" {info['manifest']['sha256']})"
            )
        )
