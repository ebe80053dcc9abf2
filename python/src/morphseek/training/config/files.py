"""Reads configurations from TOML files and presets, with the files that they are based on."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .schema import Config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def presets() -> dict[str, str]:
    """Return the presets that ship with the package: name and first comment line of each."""
    out = {}
    for item in sorted((resources.files(__package__) / "presets").iterdir(), key=lambda p: p.name):
        if item.name.endswith(".toml"):
            out[item.name[:-5]] = (
                item.read_text(encoding="utf-8").splitlines()[0].lstrip("# ").strip()
            )
    return out


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict) and key != "options":
            out[key] = _merge(out[key], value)
        else:
            out[key] = value
    return out


def _read(source: str | Path, chain: tuple[str, ...] = ()) -> dict[str, Any]:
    path = Path(source)
    if path.suffix != ".toml":
        item = resources.files(__package__) / "presets" / f"{source}.toml"
        if not item.is_file():
            raise ConfigError(
                f"no preset {str(source)!r}; there are {', '.join(presets())}; a file must end in"
                " .toml"
            )
        text, name = item.read_text(encoding="utf-8"), f"preset {source}"
    else:
        if not path.is_file():
            raise ConfigError(
                f"no configuration file {path}; check the path, or name a preset:"
                f" {', '.join(presets())}"
            )
        try:
            text, name = path.read_text(encoding="utf-8-sig"), str(path)
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is no text in UTF-8; save it anew as UTF-8") from None
    if name in chain:
        raise ConfigError(f"{name} is based on itself")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}") from None
    base = values.pop("base", None)
    if base is not None:
        if str(base).endswith(".toml") and path.suffix == ".toml":
            base = path.parent / base
        values = _merge(_read(base, (*chain, name)), values)
    return values


def load(source: str | Path) -> Config:
    """Read a TOML file, or a preset by name."""
    return Config.from_dict(_read(source))
