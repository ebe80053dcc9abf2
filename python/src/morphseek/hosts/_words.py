"""Words of the adapters' messages."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 6


def listed(names: Sequence[str]) -> str:
    """Return the first of several names, in a sentence.

    >>> listed(["a", "b"])
    'a, b'
    """
    return ", ".join(names[:_MOST]) + (", ..." if len(names) > _MOST else "")
