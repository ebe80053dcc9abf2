"""What is wrong with a configuration."""

from __future__ import annotations

from ... import errors


class ConfigError(errors.InvalidArgumentError):
    """A configuration that cannot be: unknown key, wrong type, value out of range."""
