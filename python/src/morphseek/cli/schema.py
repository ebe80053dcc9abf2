"""morphseek schema"""

from __future__ import annotations

import json

import click

from ._app import app


@app.command()
@click.argument("name", type=click.Choice(["list", "options", "result", "errors"]), default="list")
def schema(name: str) -> None:
    """Print the JSON Schema of options, of a result (report.json) or of errors, for programs."""
    from ..schema import SCHEMAS

    print("\n".join(SCHEMAS) if name == "list" else json.dumps(SCHEMAS[name](), indent=2))
