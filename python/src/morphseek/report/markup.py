"""HTML from Python values: whatever is not markup already is escaped, so that no name, path or
message can become part of the page.
"""

from __future__ import annotations

import html
import json
from typing import Any

_EMPTY = frozenset({"meta", "img", "input", "link", "br"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def join(*parts: Any) -> Markup:
    """Return the parts behind one another, escaped where they are no markup; None is nothing.

    >>> join("a < b", tag("br"), None)
    'a &lt; b<br>'
    """
    return Markup("".join(_escaped(part) for part in parts))


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """Return an element. ``class_`` and ``for_`` are attributes, underlines hyphens; an attribute
    that is None or False is left out, one that is True has no value.

    >>> tag("p", "1 < 2 ", tag("b", "yes"), class_="x", hidden=True, title=None)
    '<p class="x" hidden>1 &lt; 2 <b>yes</b></p>'
    """
    opening = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            opening.append(key)
        elif value is not None and value is not False:
            opening.append(f'{key}="{html.escape(str(value))}"')
    head = f"<{' '.join(opening)}>"
    return Markup(head if name in _EMPTY else f"{head}{join(*content)}</{name}>")


def script_data(name: str, value: Any) -> Markup:
    """Return a value as JSON in an element that no browser runs.

    >>> script_data("d", {"a": "</script>"})
    '<script type="application/json" id="d">{"a":"\\\\u003c/script>"}</script>'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def _escaped(part: Any) -> str:
    if part is None:
        return ""
    if isinstance(part, Markup):
        return part
    if isinstance(part, (list, tuple)):
        return join(*part)
    return html.escape(str(part))
