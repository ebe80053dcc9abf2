"""morphseek models"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ._app import models_app, reported
from .options import Json
from .output import console


@models_app.command("list")
def models_list(as_json: Json = False) -> None:
    """List the bundles that ship with the package."""
    with reported(as_json):
        from .._engine import core

        found = core.models()
        if as_json:
            print(json.dumps(found))
            return
        from rich.table import Table

        table = Table("name", "version", "modality", "licence", "state")
        for info in found:
            m = info["manifest"]
            table.add_row(
                m["name"], m["version"], m["modality"], m["licence"], info["error"] or "sound"
            )
        console().print(table)


@models_app.command("show")
def models_show(
    name: Annotated[
        str, typer.Argument(help="Built-in name or path of a .onnx bundle.", show_default=False)
    ],
) -> None:
    """Print a bundle's manifest as JSON: what it is, what it was trained on, its licence and
    credit.
    """
    with reported(False):
        from .._engine import core

        print(json.dumps(core.verify_model(name)["manifest"], indent=2))


@models_app.command("verify")
def models_verify(
    name: Annotated[
        str, typer.Argument(help="Built-in name or path of a .onnx bundle.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
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
