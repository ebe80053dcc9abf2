"""Installs the Python package `morphseek` into Slicer's own Python, once, after asking, without
touching what Slicer brings.

From Slicer 5.11 on `slicer.packaging.pip_ensure` does it and shows its progress; before, one
package after the other by `slicer.util.pip_install`. Either way no requirement replaces Slicer's
own builds.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, Iterator, Optional

PACKAGE = "morphseek"
EXTRA = "network"
"""The extra of the package that the panel's menus for models and devices need."""
KEEP = ("numpy", "scipy", "simpleitk")
"""Slicer's own builds: never installed, upgraded or replaced, whatever a requirement says."""
PYTHON = (3, 10)
"""The oldest Python that the package is built for. Slicer 5.8 has 3.9, Slicer 5.10 has 3.12."""
TIMEOUT_S = 120

REASONS = (
    (
        "CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSLCertVerificationError",
        "Slicer does not trust the certificate that it got for the Python Package Index; a proxy"
        " may have replaced it. Set PIP_CERT to the file of your institution's certificates and"
        " restart Slicer",
    ),
    (
        "ProxyError|407 Proxy",
        "the proxy refused the connection to the Python Package Index. Set HTTPS_PROXY"
        " (http://user:password@host:port) and restart Slicer",
    ),
    (
        "NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|timed out"
        "|Temporary failure in name resolution|Connection refused|Network is unreachable",
        "the Python Package Index cannot be reached. Behind a proxy, set HTTPS_PROXY and restart"
        " Slicer. Without a network, use 'Install from a file': the page of the extension says"
        " which files to bring",
    ),
    ("No space left on device|Errno 28", "the disk is full; make room where Slicer is installed"),
    (
        "Permission denied|Errno 13|Read-only file system",
        "Slicer's folder cannot be written. Install Slicer where you may write, or let your"
        " administrator install the package once",
    ),
    (r"No matching distribution found for (\S+)", r"there is no \1 for this system and Python"),
)
"""Patterns of pip's output and what they mean for the user; the first that matches counts."""


def unsuitable() -> str:
    """Return why this Slicer cannot have the package, or an empty string."""
    if sys.version_info[:2] >= PYTHON:
        return ""
    have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, PYTHON))
    return f"this Slicer has Python {have}, and MorphSeek needs {need}: take Slicer 5.10 or later"


def installed() -> str:
    """Return the installed package's version, or an empty string. Imports nothing."""
    importlib.invalidate_caches()
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(package: str = PACKAGE) -> list[str]:
    """Return the requirements of an installed package with EXTRA, and in turn of its requirements,
    that are not met; those in KEEP are skipped.
    """
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    importlib.invalidate_caches()
    ranges: dict[str, SpecifierSet] = {}
    seen, waiting = set(), [package]
    while waiting:
        for text in importlib.metadata.requires(waiting.pop()) or ():
            requirement = Requirement(text)
            name = _canonical(requirement.name)
            if (
                text in seen
                or name in KEEP
                or requirement.marker is not None
                and not requirement.marker.evaluate({"extra": EXTRA})
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
            else:  # two packages may require different versions of a third
                ranges[name] = ranges.get(name, SpecifierSet()) & requirement.specifier
    return [f"{name}{specifier}" for name, specifier in ranges.items()]


def kept() -> list[str]:
    """Return the lines of a constraints file that pins Slicer's own builds."""
    lines = []
    for name in KEEP:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            lines.append(f"{name}=={importlib.metadata.version(name)}")
    return lines


@contextlib.contextmanager
def _constraints() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder:
        path = Path(folder, "constraints.txt")
        path.write_text("\n".join(kept()) + "\n", encoding="utf-8")
        yield path


def beside(source: str, wanted: list[str]) -> list[str]:
    """Return pip's arguments for requirements whose wheels may lie beside the chosen file. If all
    do, pip does not use the network.
    """
    folder = Path(source).parent
    there = {_canonical(path.name.partition("-")[0]) for path in folder.glob("*.whl")}
    names = {_canonical(re.split(r"[^\w.-]", requirement)[0]) for requirement in wanted}
    links = ["--find-links", str(folder)]
    return ["--no-index", *links] if names <= there else links if names & there else []


def reason(output: str) -> str:
    """Return a sentence that says why pip failed; empty if no pattern matches."""
    for pattern, sentence in REASONS:
        if match := re.search(pattern, output):
            return match.expand(sentence)
    return ""


def why(arguments: list[str]) -> str:
    """Return why pip failed, by running it again without installing: Slicer's call hides its
    output.
    """
    from MorphSeekLib.process import python

    command = [python(), "-m", "pip", "install", "--dry-run", "--disable-pip-version-check"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [*command, "--retries", "1", "--timeout", "15", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
        if done.returncode:
            return reason(done.stdout + done.stderr)
    return ""


def _slicers() -> Optional[Callable[..., object]]:
    """Return slicer.packaging.pip_ensure, if this Slicer has it."""
    try:
        from slicer.packaging import pip_ensure
    except ImportError:
        return None
    return pip_ensure


def ensure(
    confirm: Callable[[str], bool],
    install: Optional[Callable[[list[str]], None]] = None,
    source: str = PACKAGE,
    runs: bool = True,
    progress: Callable[[int, int, str], object] = lambda done, total, what: None,
    explain: Optional[Callable[[list[str]], str]] = None,
) -> bool:
    """Install the package if it is missing or incomplete; return whether it is complete.

    Parameters
    ----------
    confirm : callable
        Called once with the question for the user, and only if there is something to install.
    install : callable, optional
        Takes pip's arguments; slicer.util.pip_install by default.
    source : str
        What pip installs: the package's name, or the path of a wheel, which replaces what is
        installed. What else is needed may lie beside the wheel.
    runs : bool
        Whether the installed package runs. One that is complete but does not run is reinstalled.
    progress : callable, optional
        Called before each package with how many are done, how many are known, and its name.
    explain : callable, optional
        Returns from pip's arguments a sentence that says why pip failed, or an empty string; `why`
        by default.

    Raises
    ------
    RuntimeError
        This Slicer cannot have the package, or pip failed for a known reason.
    Exception
        What `install` raises for any other reason.
    """
    complete = bool(installed()) and not missing()
    anew = source != PACKAGE or complete and not runs
    if complete and not anew:
        return True
    if problem := unsuitable():
        raise RuntimeError(problem)
    origin = "from the Python Package Index" if source == PACKAGE else "or taken from that folder"
    question = (
        f"MorphSeek needs its Python package ({source}) and what it builds on, about 50 MB in all."
        f" They are downloaded {origin} into this Slicer. Slicer's own numpy, scipy and SimpleITK"
        " stay as they are. Install them now?"
    )
    if not confirm(question):
        return False
    if install is None:
        import slicer.util

        install = slicer.util.pip_install

    explain = explain or why

    @contextlib.contextmanager
    def explained(*arguments: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if sentence := explain(list(arguments)):
                raise RuntimeError(sentence) from error
            raise

    def step(done: int, total: int, *arguments: str) -> None:
        progress(done, total, arguments[-1])
        with explained(*arguments):
            install(list(arguments))

    slicers = _slicers()
    if slicers is not None and source == PACKAGE and not installed():
        wanted = f"{PACKAGE}[{EXTRA}]"
        with _constraints() as constraints, explained("--no-deps", PACKAGE):
            slicers(
                [wanted],
                constraints=constraints,
                skip_packages=list(KEEP),
                prompt_install=False,  # we have asked
                requester="MorphSeek",
            )
    elif not installed():
        step(0, 1, "--no-deps", source)
    elif anew:  # pip skips a version that is installed, even if it is broken
        step(0, 1, "--no-deps", "--force-reinstall", source)
    before: list[str] = []
    done = 1
    # a newly installed package may have requirements of its own
    while (wanted := missing()) and wanted != before:
        options = beside(source, wanted) if source != PACKAGE else []
        for requirement in wanted:
            step(done, done + len(wanted), "--no-deps", *options, requirement)
            done += 1
        before = wanted
    return bool(installed()) and not missing()
