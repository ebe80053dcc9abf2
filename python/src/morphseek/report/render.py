"""The templates of the pages, which lie in ``templates``: to edit a page, edit them.

Whatever a template shows is escaped, so that no name, path or message becomes part of the page. A
page loads nothing, and runs no script but its own.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..verdict import SIGNS, millimetres, tally

_FOLDER = Path(__file__).parent / "templates"


def render(template: str, **facts: Any) -> str:
    """Return a page, or a part of one, in HTML.

    >>> render("frame.html.j2", page="<p>", height=90)[:34]
    '<iframe srcdoc="&lt;p&gt;" sandbox'
    """
    return _environment().get_template(template).render(facts)


def asset(*names: str) -> Markup:
    """Return files that lie beside the templates."""
    return Markup("".join((_FOLDER / name).read_text(encoding="utf-8") for name in names))


def data_url(file: bytes) -> str:
    """Return a PNG file as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(file).decode()


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals |= {"asset": asset, "script_of": _script_of, "signs": SIGNS}
    environment.filters |= {
        "data_url": data_url, "digest": _digest, "mm": millimetres, "tally": tally
    }  # fmt: skip
    return environment


def _script_of(names: Sequence[str]) -> str:
    """Return JavaScript files as one function, so that nothing in them is global."""
    return Markup("'use strict';\n(() => {\n%s})();\n") % asset(*names) if names else ""


def _digest(script: str) -> str:
    """Return what a page's content policy knows its script by."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
