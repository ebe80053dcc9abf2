"""The command line of a run: the pages of results show it, so that a user can repeat it."""

from __future__ import annotations

from contextvars import ContextVar

#: Set by the command line while a command runs.
COMMAND: ContextVar[str] = ContextVar("command", default="")
