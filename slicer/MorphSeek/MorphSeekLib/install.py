"""The Python package `morphseek` in Slicer's own Python: installed once, with consent, without
touching what Slicer brings.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Callable

PACKAGE = "morphseek"
KEEP = ("numpy", "simpleitk")
"""Slicer's own builds: never installed, upgraded or replaced, whatever a requirement says."""


def installed() -> str:
    """Return the installed package's version, or an empty string. Imports nothing."""
    importlib.invalidate_caches()
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def missing(package: str = PACKAGE) -> list[str]:
    """Return the requirements, of an installed package and of theirs in turn, that what is
    installed does not meet; KEEP's are passed over.
    """
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    importlib.invalidate_caches()
    found: dict[str, SpecifierSet] = {}
    seen, waiting = set(), [package]
    while waiting:
        for text in importlib.metadata.requires(waiting.pop()) or ():
            requirement = Requirement(text)
            name = requirement.name.lower().replace("_", "-")
            if (
                text in seen
                or name in KEEP
                or requirement.marker is not None
                and not requirement.marker.evaluate({"extra": ""})
            ):
                continue
            seen.add(text)
            try:
                met = requirement.specifier.contains(
                    importlib.metadata.version(name), prereleases=True
                )
            except importlib.metadata.PackageNotFoundError:
                met = False
            if met:
                waiting.append(name)
            else:  # two packages may ask for different versions of a third
                found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return [f"{name}{specifier}" for name, specifier in found.items()]


def ensure(
    confirm: Callable[[str], bool],
    install: Callable[[list[str]], None] | None = None,
    source: str = PACKAGE,
    runs: bool = True,
) -> bool:
    """See that the package is there and complete; return whether it is.

    Parameters
    ----------
    confirm : callable
        Asked once, with the question in words, and only if there is something to install.
    install : callable, optional
        Takes pip's arguments; slicer.util.pip_install by default. (slicer.packaging.pip_ensure asks
        by itself and follows requirements, numpy's too: it does not fit here.)
    source : str
        What pip installs: the package's name, or the path of a wheel, which replaces what is
        installed.
    runs : bool
        Whether the installed package runs. One that is complete and does not is installed anew.

    Raises
    ------
    Exception
        What `install` raises.
    """
    complete = bool(installed()) and not missing()
    anew = source != PACKAGE or complete and not runs
    if complete and not anew:
        return True
    question = (
        f"MorphSeek needs its Python package ({source}) and the libraries that it builds on (ONNX"
        " Runtime among them, about 50 MB in all). They are downloaded from the Python Package"
        " Index into Slicer's own Python; Slicer's numpy and SimpleITK stay as they are. Install"
        " them now?"
    )
    if not confirm(question):
        return False
    if install is None:
        import slicer.util

        install = slicer.util.pip_install
    if not installed():
        install(["--no-deps", source])
    elif anew:  # pip takes the same version for installed, broken or not
        install(["--no-deps", "--force-reinstall", source])
    before: list[str] = []
    # what was installed may itself miss something
    while (wanted := missing()) and wanted != before:
        install(["--no-deps", *wanted])
        before = wanted
    return bool(installed()) and not missing()
