"""Docstrings as the site shows them: their roles (:func:`x`) as code, and what is filled in at run
time, filled in.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`[~.]*([^`]+)`")
_OPTIONS = "    {options}\n"


class Docstrings(griffe.Extension):
    """Turns the docstring of every object that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value.replace(_OPTIONS.strip(), _listed_options().strip())
            obj.docstring.value = _ROLE.sub(r"`\1`", text)


def _listed_options() -> str:
    """The options as ``help(morphseek.register)`` has them."""
    import inspect

    import morphseek

    text = inspect.getdoc(morphseek.register) or ""
    return text.partition("True shows a bar.\n")[2].partition("\nReturns\n")[0]
