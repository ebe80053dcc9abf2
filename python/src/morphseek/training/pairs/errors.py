"""The error of unusable data."""

from __future__ import annotations

from ... import errors


class DataError(errors.InputUnreadableError, ValueError):
    """A volume or a list that training cannot use; the message names the file."""
