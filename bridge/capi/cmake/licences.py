"""Writes the licences of everything that is compiled into the library, for those who pass it on:

    licences.py GO ROOT OUT [--also NAME=FILE]...

The Go modules are those that Go itself names as linked. Only what is missing here ends it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("./bridge/capi", "./bridge/gopy", "github.com/go-python/gopy/gopyh")
NAMES = ("LICENSE*", "LICENCE*", "COPYING*", "License*")


class Part(NamedTuple):
    """Something that is linked in, its version, and the file of its licence."""

    name: str
    version: str
    licence: Path


def go(executable: str, root: Path, *words: str) -> str:
    done = subprocess.run([executable, *words], cwd=root, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"go {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def linked(executable: str, root: Path) -> list[Part]:
    """Return Go and the modules that the library and the extension are linked from."""
    form = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}"
    lines = {
        line
        for line in go(executable, root, "list", "-deps", "-f", form, *PACKAGES).splitlines()
        if line
    }
    parts = []
    for line in sorted(lines):
        name, version, folder = line.split("\t")
        parts.append(Part(name, version, licence_in(Path(folder), name)))
    home = Path(go(executable, root, "env", "GOROOT"))
    version = go(executable, root, "env", "GOVERSION").removeprefix("go")
    # a distribution's Go may lack the file; golang.org/x has the same text of the same authors
    own = home / "LICENSE"
    if not own.exists():
        own = next(part.licence for part in parts if part.name.startswith("golang.org/x/"))
    return [Part("go", version, own), *parts]


def licence_in(folder: Path, name: str) -> Path:
    for pattern in NAMES:
        for path in sorted(folder.glob(pattern)):
            return path
    sys.exit(f"{name} has no licence file in {folder}; without it the library may not be passed on")


def text(parts: list[Part]) -> str:
    """Return the licences, each under a line that names what it is of."""
    pieces = ["Licences of what is compiled into MorphSeek. LICENSE and NOTICE have its own.\n"]
    for part in parts:
        title = f"{part.name} {part.version}".strip()
        body = part.licence.read_text(encoding="utf-8").strip()
        pieces.append(f"{title}\n{'-' * len(title)}\n\n{body}\n")
    return "\n\n".join(pieces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("go")
    parser.add_argument("root", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FILE")
    args = parser.parse_args()
    parts = linked(args.go, args.root)
    for also in args.also:
        name, _, file = also.partition("=")
        parts.append(Part(name, "", Path(file)))
    args.out.write_text(text(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
