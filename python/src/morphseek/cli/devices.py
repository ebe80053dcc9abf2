"""morphseek devices"""

from __future__ import annotations

import json

from ._app import app, reported
from .options import json_option
from .output import print_rows


@app.command()
@json_option
def devices(as_json: bool) -> None:
    """List what networks can run on: the ONNX Runtime in use, the GPUs, and for each device why it
    cannot be used and what to do.
    """
    with reported(as_json):
        from .._engine import core

        found = core.devices()
        if as_json:
            print(json.dumps(found))
            return
        rows = [
            (
                "ONNX Runtime",
                f"{found['version']}  {found['library']}" if found["library"] else "not found",
            ),
            ("its providers", ", ".join(found["providers"]) or "none"),
            (
                "GPUs",
                ", ".join(
                    f"{gpu['name']} ({gpu['bytes'] / 2**30:.0f} GiB)" for gpu in found["gpus"]
                )
                or "none that an NVIDIA driver shows",
            ),
        ]
        for device in found["devices"]:
            rows.append(
                (device["name"], "usable" if device["usable"] else f"not usable: {device['error']}")
            )
            if device["remedy"]:
                rows.append(("", f"To use it: {device['remedy']}."))
        print_rows(rows)
