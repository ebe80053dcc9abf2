"""Ctrl-C and the other signals that end a process, where they must wait for a moment."""

from __future__ import annotations

import signal
import threading
from typing import Any, TypeVar

_H = TypeVar("_H", bound="SignalDelay")
# those that end a process in order; all but the first where a program handles them
_STOPS = [getattr(signal, s) for s in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, s)]


class SignalDelay:
    """A block in which no signal raises, as between making a resource and storing it for the
    cleanup: what it would have raised is kept in ``interruption``.
    """

    def __init__(self) -> None:
        self.interruption: BaseException | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self: _H) -> _H:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in _STOPS}
            self._handlers = {number: old for number, old in handlers.items() if callable(old)}
        for number in self._handlers:
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: Any) -> None:
        handler = self._handlers[number]
        try:
            handler(number, frame)
        except BaseException as error:
            self.interruption = error
        outer = getattr(handler, "__self__", None)
        if isinstance(outer, SignalDelay):  # the outer of two nested blocks, which only keeps it
            self.interruption = outer.interruption

    def __exit__(self, *exc: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def release(self) -> None:
        """Raise the interruption of the block, if there was one."""
        if self.interruption is not None:
            raise self.interruption from None
