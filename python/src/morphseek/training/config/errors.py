"""What is wrong with a configuration."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration that cannot be: unknown key, wrong type, value out of range."""
