"""morphseek info: models, devices, doctor and schema"""

from __future__ import annotations

import json

import click

from ._command import app, command
from .options import json_option
from .output import Reply, aligned, reply


@app.group("info", no_args_is_help=True)
def group() -> None:
    """Say what this installation is, has and lacks."""


@command("models", click.argument("name", required=False), json_option, group=group)
def models(name: str | None) -> Reply:
    """List the models that ship with the package; or check one, built in or a .onnx file, and print
    its manifest: what it was trained on, its licence and credit.

    It is checked as a registration would: whole, untampered (sha256), of a known format, nothing
    outside itself.
    """
    from .._engine import core

    if name:
        info = core.verify_model(name)
        return reply(info, [json.dumps(info["manifest"], indent=2)])
    bundles = core.models()
    columns = ("name", "version", "modality", "licence")
    rows = [[*(one["manifest"][c] for c in columns), one["error"] or "sound"] for one in bundles]
    return reply(bundles, aligned([(*columns, "state"), *rows]))


@command("devices", json_option, group=group)
def devices() -> Reply:
    """List what networks can run on: the ONNX Runtime in use, the GPUs, and for each device why it
    cannot be used and what to do.
    """
    from .. import diagnosis
    from .._engine import core

    facts = core.devices()
    rows = diagnosis.runtime_rows(facts, "not found")
    for device in facts["devices"]:
        state = "usable" if device["usable"] else f"not usable: {device['error']}"
        rows.append((device["name"], state))
        if device["remedy"]:
            rows.append(("", f"To use it: {device['remedy']}."))
    return reply(facts, aligned(rows))


@command("doctor", json_option, group=group)
def doctor() -> Reply:
    """Say what this installation is, what it lacks and how to get it.

    The output names no patient, no user and no machine: paste it into a bug report. The exit code
    is 0 if all is well, and 5 if not. What only an extra needs may be missing.
    """
    from .. import diagnosis

    facts = diagnosis.doctor()
    code = 0 if facts["well"] else diagnosis.UNWELL
    return reply(facts, aligned(diagnosis.rows(facts)), code)


@command(
    "schema",
    click.argument("name", type=click.Choice(["options", "result", "errors"]), required=False),
    group=group,
)
def schema(name: str | None) -> Reply:
    """Print the JSON Schema of options, of a result (report.json) or of errors, for programs; or
    list these names.
    """
    from ..schema import SCHEMAS

    text = json.dumps(SCHEMAS[name](), indent=2) if name else "\n".join(SCHEMAS)
    return Reply(text, lambda quiet: print(text))
