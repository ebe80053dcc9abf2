"""Docstrings as the site shows them: their roles (:func:`x`) as code, and the options, which
``morphseek.register`` fills in at run time, filled in.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`[~.]*([^`]+)`")
_OPTIONS = "{options}"


class Docstrings(griffe.Extension):
    """Turns the docstring of every object that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        text = _ROLE.sub(r"`\1`", obj.docstring.value)
        if obj.path == "morphseek.registration.register":
            from morphseek.registration import _option_lines

            text = text.replace(_OPTIONS, _option_lines())
        obj.docstring.value = text
