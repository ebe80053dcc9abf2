"""Makes a Python environment, and builds or installs the wheel in it:

    environment.py VENV [--build SOURCE --into DIR [--define NAME=VALUE]] [--wheel DIR [--extras
    a,b]] [--requirements FILE] [--alone FILE]

Standard output has a line for every step that takes long; when pip fails, all that it said, and
last the reason in a sentence.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# What pip says, and what that means; the first that fits counts.
REASONS = (
    (
        (
            r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSLCertVerificationError|Could"
            r" not find a suitable TLS CA certificate bundle"
        ),
        (
            "The certificate of the package registry is not trusted here: install ca-certificates,"
            " or name your own authority's file by PIP_CERT."
        ),
    ),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|Read timed"
        r" out|ProxyError|ConnectionResetError"
        r"|Temporary failure in name resolution|Connection refused|Network is unreachable",
        (
            "No package registry could be reached: connect this machine, or set PIP_INDEX_URL or"
            " HTTPS_PROXY to what it can reach."
        ),
    ),
    (
        r"No space left on device|Errno 28|Disk quota exceeded",
        "The disk is full: make room for the Python environments (README.md says how much).",
    ),
    (
        r"Permission denied|Errno 13|Read-only file system",
        (
            "A folder that pip writes to cannot be written: see that the build folder and HOME are"
            " yours."
        ),
    ),
    (
        r"No matching distribution found for (\S+)",
        r"The package registry has no \1 for this Python and system.",
    ),
)
TRYING = "The package registry does not answer; trying again ..."
# Steps of CMake inside the wheel's build, as Ninja and as make count them.
STEP = re.compile(
    r"\s*\[\s*(?:\d+/\d+|\d+%)\]\s+(?!Built target|Re-checking|Generating \.\./lib)(.+?)\s*$"
)


def reason(output: str) -> str:
    """Return in a sentence why pip failed; empty where its own words must do."""
    for pattern, sentence in REASONS:
        if found := re.search(pattern, output):
            return found.expand(sentence)
    return ""


def say(text: str) -> None:
    print(text, flush=True)


def pip(venv: Path, *arguments: str) -> None:
    """Run pip in the environment; steps are said as they come, the rest when it fails."""
    # of the make around us
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    environment |= {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PYTHONUNBUFFERED": "1",
    }
    environment.setdefault("PIP_RETRIES", "2")
    command = [str(venv / "bin" / "python"), "-m", "pip", *arguments]
    lines, told = [], False
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout:
            lines.append(line)
            if step := STEP.match(line):
                say(f"  {step[1]}")
            elif "Retrying (Retry(" in line and not told:
                told = True
                say(TRYING)
    if process.returncode:
        output = "".join(lines)
        sys.exit(f"{output}\n{reason(output) or 'pip failed; its reason is above.'}")


def make(venv: Path) -> None:
    """Make the environment unless it is there; virtualenv stands in where Debian's python3-venv is
    not installed.
    """
    if not (venv / "bin" / "python").exists():
        module = "venv" if importlib.util.find_spec("ensurepip") else "virtualenv"
        subprocess.run([sys.executable, "-m", module, str(venv)], check=True)


def build(venv: Path, source: Path, into: Path, defines: list[str]) -> None:
    """Build the wheel of a source folder, and nothing else, into a folder."""
    shutil.rmtree(into, ignore_errors=True)
    settings = [f"--config-settings=cmake.define.{define}" for define in defines]
    pip(venv, "wheel", "--verbose", "--no-deps", "--wheel-dir", str(into), *settings, str(source))


def install(venv: Path, wheel: Path, extras: str) -> None:
    """Install the wheel anew, whatever its version, then what it and its extras need and is not
    there yet. Only the wheel is compiled, which takes a second and saves each process a tenth.
    """
    pip(venv, "--quiet", "install", "--no-deps", "--force-reinstall", str(wheel))
    pip(venv, "--quiet", "install", "--no-compile", f"{wheel}[{extras}]" if extras else str(wheel))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--build", type=Path, metavar="SOURCE", help="folder whose wheel to build")
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="where that wheel goes; emptied first"
    )
    parser.add_argument(
        "--define",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="variable for the CMake inside that build",
    )
    parser.add_argument(
        "--wheel", type=Path, metavar="DIR", help="folder that holds the one wheel to install"
    )
    parser.add_argument("--extras", default="")
    parser.add_argument("--requirements", type=Path, metavar="FILE", help="what else to install")
    parser.add_argument(
        "--alone",
        type=Path,
        metavar="FILE",
        help="what to install without the packages that it asks for",
    )
    args = parser.parse_args()
    make(args.venv)
    if args.build:
        build(args.venv, args.build, args.into, args.define)
    if args.wheel:
        (wheel,) = args.wheel.glob("*.whl")
        install(args.venv, wheel, args.extras)
    for file, more in ((args.requirements, ()), (args.alone, ("--no-deps",))):
        if file:
            pip(args.venv, "--quiet", "install", "--no-compile", *more, "--requirement", str(file))


if __name__ == "__main__":
    main()
