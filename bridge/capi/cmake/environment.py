"""Makes a Python environment and installs the wheel into it: environment.py VENV [--wheel DIR] [--extras a,b]."""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path


def make(venv: Path) -> None:
    """Make the environment unless it is there; virtualenv stands in where Debian's python3-venv is not installed."""
    if not (venv / "bin" / "python").exists():
        module = "venv" if importlib.util.find_spec("ensurepip") else "virtualenv"
        subprocess.run([sys.executable, "-m", module, str(venv)], check=True)


def install(venv: Path, wheel: Path, extras: str) -> None:
    """Install the wheel anew, whatever its version, then what it and its extras need and is not there yet."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install", "--no-compile"]
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    subprocess.run([*pip, f"{wheel}[{extras}]" if extras else str(wheel)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--wheel", type=Path, metavar="DIR", help="folder that holds the one wheel to install")
    parser.add_argument("--extras", default="")
    args = parser.parse_args()
    make(args.venv)
    if args.wheel:
        (wheel,) = args.wheel.glob("*.whl")
        install(args.venv, wheel, args.extras)


if __name__ == "__main__":
    main()
