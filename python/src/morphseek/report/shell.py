"""The frame of every page: one file that loads nothing, and no script but ours."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from .markup import Markup, tag

SIGNS = {"good": "\u2713", "check": "!", "failed": "\u2715"}
"""A verdict's sign, for those who do not see its color."""


def asset(name: str) -> str:
    """Return a file that lies beside this module."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def script_of(*files: str) -> str:
    """Return JavaScript files as one function, so that nothing in them is global."""
    return f"'use strict';\n(() => {{\n{''.join(map(asset, files))}}})();\n"


def shell(title: str, icon: str, css: str, script: str, *body: Any) -> str:
    """Return a document that loads nothing and runs no script but the one given."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href=icon),
        tag("style", Markup(css)),
    )
    end = tag("script", Markup(script)) if script else None
    page = tag("html", "\n", head, "\n", tag("body", *body, "\n", end), lang="en")
    return f"<!doctype html>\n{page}\n"
