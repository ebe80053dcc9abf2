"""What a user typed in a shell: the pages of results show it, so that it can be repeated."""

from __future__ import annotations

from contextvars import ContextVar

#: Set by the command line while a command runs.
COMMAND: ContextVar[str] = ContextVar("command", default="")
