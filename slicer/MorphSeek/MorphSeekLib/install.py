"""The Python package `morphseek` in Slicer's own Python: installed once, with consent, without
touching what Slicer brings.

By Slicer's own `slicer.packaging.pip_ensure` where there is one (from 5.11 on), which shows its
progress; elsewhere package after package by `slicer.util.pip_install`. Either way nothing is
installed that another requirement would drag in over Slicer's builds.
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
"""Of the package: what the panel's menus for models and devices need."""
KEEP = ("numpy", "scipy", "simpleitk")
"""Slicer's own builds: never installed, upgraded or replaced, whatever a requirement says."""
PYTHON = (3, 10)
"""The oldest that the package is built for. Slicer 5.8 has 3.9, Slicer 5.10 has 3.12."""
TIMEOUT_S = 120

REASONS = (
    (
        "CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSLCertVerificationError",
        "Slicer does not trust the certificate that answered in the place of the Python Package"
        " Index; a proxy may have put in its own. Set PIP_CERT to the file of your institution's"
        " certificates and start Slicer anew",
    ),
    (
        "ProxyError|407 Proxy",
        "the proxy refused the connection to the Python Package Index. Set HTTPS_PROXY"
        " (http://user:password@host:port) and start Slicer anew",
    ),
    (
        "NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|timed out"
        "|Temporary failure in name resolution|Connection refused|Network is unreachable",
        "the Python Package Index cannot be reached. Behind a proxy, set HTTPS_PROXY and start"
        " Slicer anew. Without a network, take 'Install from a file': the page of the extension"
        " says how to bring the files",
    ),
    ("No space left on device|Errno 28", "the disk is full; make room where Slicer is installed"),
    (
        "Permission denied|Errno 13|Read-only file system",
        "Slicer's folder cannot be written. Install Slicer where you may write, or let your"
        " administrator install the package once",
    ),
    (r"No matching distribution found for (\S+)", r"there is no \1 for this system and Python"),
)
"""What pip says, and what that means; the first that fits counts."""


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
    """Return the requirements, of an installed package with EXTRA and of theirs in turn, that what
    is installed does not meet; KEEP's are passed over.
    """
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    importlib.invalidate_caches()
    found: dict[str, SpecifierSet] = {}
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
            else:  # two packages may ask for different versions of a third
                found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return [f"{name}{specifier}" for name, specifier in found.items()]


def kept() -> list[str]:
    """Return the lines of a constraints file that holds Slicer's own builds as they are."""
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
    """Return pip's arguments for requirements whose wheels may lie beside the file that was picked;
    where all do, no network is asked.
    """
    folder = Path(source).parent
    there = {_canonical(path.name.partition("-")[0]) for path in folder.glob("*.whl")}
    names = {_canonical(re.split(r"[^\w.-]", requirement)[0]) for requirement in wanted}
    links = ["--find-links", str(folder)]
    return ["--no-index", *links] if names <= there else links if names & there else []


def reason(output: str) -> str:
    """Return in a sentence why pip failed; empty where its own words must do."""
    for pattern, sentence in REASONS:
        if found := re.search(pattern, output):
            return found.expand(sentence)
    return ""


def why(arguments: list[str]) -> str:
    """Ask pip, which installs nothing now, why it failed: Slicer's own call keeps its words."""
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
    """Return slicer.packaging.pip_ensure, where Slicer has it."""
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
    """See that the package is there and complete; return whether it is.

    Parameters
    ----------
    confirm : callable
        Asked once, with the question in words, and only if there is something to install.
    install : callable, optional
        Takes pip's arguments; slicer.util.pip_install by default.
    source : str
        What pip installs: the package's name, or the path of a wheel, which replaces what is
        installed. What else is needed may lie beside the wheel.
    runs : bool
        Whether the installed package runs. One that is complete and does not is installed anew.
    progress : callable, optional
        Told before each package how many are done, how many are known, and which one comes.
    explain : callable, optional
        Says from pip's arguments, in a sentence or not at all, why they failed; `why` by default.

    Raises
    ------
    RuntimeError
        This Slicer cannot have the package, or pip failed for a reason that can be said.
    Exception
        What `install` raises for any other.
    """
    complete = bool(installed()) and not missing()
    anew = source != PACKAGE or complete and not runs
    if complete and not anew:
        return True
    if problem := unsuitable():
        raise RuntimeError(problem)
    origin = "from the Python Package Index" if source == PACKAGE else "or taken from that folder"
    question = (
        f"MorphSeek needs its Python package ({source}) and the libraries that it builds on (ONNX"
        f" Runtime among them, about 50 MB in all). They are downloaded {origin} into Slicer's own"
        " Python; Slicer's numpy, scipy and SimpleITK stay as they are. Install them now?"
    )
    if not confirm(question):
        return False
    if install is None:
        import slicer.util

        install = slicer.util.pip_install

    explain = explain or why

    def step(done: int, total: int, *arguments: str) -> None:
        progress(done, total, arguments[-1])
        try:
            install(list(arguments))
        except Exception as error:
            if sentence := explain(list(arguments)):
                raise RuntimeError(sentence) from error
            raise

    slicers = _slicers()
    if slicers is not None and source == PACKAGE and not installed():
        wanted = f"{PACKAGE}[{EXTRA}]"
        with _constraints() as constraints:
            try:
                slicers(
                    [wanted],
                    constraints=constraints,
                    skip_packages=list(KEEP),
                    prompt_install=False,  # we have asked
                    requester="MorphSeek",
                )
            except Exception as error:
                if sentence := explain(["--no-deps", PACKAGE]):
                    raise RuntimeError(sentence) from error
                raise
    elif not installed():
        step(0, 1, "--no-deps", source)
    elif anew:  # pip takes the same version for installed, broken or not
        step(0, 1, "--no-deps", "--force-reinstall", source)
    before: list[str] = []
    done = 1
    # what was installed may itself miss something
    while (wanted := missing()) and wanted != before:
        options = beside(source, wanted) if source != PACKAGE else []
        for requirement in wanted:
            step(done, done + len(wanted), "--no-deps", *options, requirement)
            done += 1
        before = wanted
    return bool(installed()) and not missing()
