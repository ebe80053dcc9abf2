"""morphseek doctor"""

from __future__ import annotations

import json

import click

from ._app import app, reported
from .options import json_option
from .output import print_rows


@app.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this installation is, what it lacks and how to get it.

    The output names no patient, no user and no machine: paste it into a bug report. The exit code
    is 0 if all is well, and 5 if not. What only an extra needs may be missing.
    """
    with reported(as_json):
        from .. import diagnosis

        report = diagnosis.doctor()
        if as_json:
            print(json.dumps(report))
        else:
            print_rows(diagnosis.rows(report))
        if not report["well"]:
            raise click.exceptions.Exit(diagnosis.UNWELL)
