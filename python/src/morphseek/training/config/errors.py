"""The error of an invalid configuration."""

from __future__ import annotations

from ... import errors


class ConfigError(errors.InvalidArgumentError):
    """An invalid configuration: an unknown key, a wrong type or a value out of range."""
