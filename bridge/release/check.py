"""Proves a release without the machines that it is for:

    check.py WHAT --dist FOLDER --work FOLDER [--go GO] [--cmake CMAKE]

files     what the wheels and libraries ask of a system, by reading them
sdist     pip builds the same wheel from it, with Go and a compiler
linux     the x86-64 wheel in an empty environment of every Python here; the C example
bare      the same wheel in a Debian that has Python and nothing else; for root alone
aarch64   the same by qemu-user and Debian's arm64 Python, and the engine's Go tests
slicer    the Slicer extension's tests on Slicer's core, with the x86-64 wheel alone
windows   the same under Wine with Windows' own CPython, and names and folders as users have them

The demonstration pair gives the same field everywhere. Exit status 77: a tool is missing, named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
PAIR = HERE / "pair.py"
TOLERANCE = 1e-4  # voxels
DICE = 1e-3
PATIENCE = 3000  # seconds, for one command
# What a system without anything has.
LINUX = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6", "ld-linux-aarch64.so.1"}
WINDOWS = re.compile(r"kernel32\.dll|api-ms-win-crt-[a-z0-9-]+\.dll|python3\.dll", re.IGNORECASE)
MACOS = re.compile(
    r"@rpath/libmorphseek\.1\.dylib|_native\.abi3\.so|/usr/lib/lib|/System/Library/Frameworks/"
)
CPYTHON = "org.bytedeco:cpython:3.13.5-1.5.12:jar:windows-x86_64"
TOOLS = {  # and the Debian package of each
    "bare": {"apt-get": "apt", "dpkg-deb": "dpkg", "unshare": "util-linux", "chroot": "coreutils"},
    "aarch64": {"qemu-aarch64-static": "qemu-user-static", "apt-get": "apt", "dpkg-deb": "dpkg"},
    "windows": {"wine": "wine wine64", "mvn": "maven"},
}


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: object, **variables: str) -> str:
    """Run a command with these variables added; return what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        env={**clean(), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    said, complained = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    if done.returncode:
        end = f"{said[-4000:]}\n{complained[-4000:]}"
        sys.exit(f"{end}\nThis failed ({done.returncode}): {' '.join(words)}")
    return said


def clean() -> dict[str, str]:
    """The environment without what this machine's Python put there."""
    gone = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MORPHSEEK_ORT_LIBRARY")
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def only(folder: Path, pattern: str) -> Path:
    found = [
        path for path in sorted(folder.glob(pattern)) if "-c-" in pattern or "-c-" not in path.name
    ]
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files {pattern}, not one: run release.py first")
    return found[0]


def fresh(folder: Path) -> Path:
    """Remove a folder, so that it can be made anew; return its path."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def unpacked(archive: Path, into: Path) -> Path:
    """Unpack an archive of the C library; return the folder in it."""
    shutil.unpack_archive(archive, fresh(into))
    (folder,) = into.iterdir()
    return folder


def demo_pair(work: Path, python: Path) -> Path:
    """Make the pair once, on this machine, for no two NumPys compute it the same."""
    folder = work / "pair"
    if not (folder / "moving_labels.nii.gz").exists():
        folder.mkdir(parents=True, exist_ok=True)
        run(python, PAIR, "make", folder)
    return folder


def compare(said: str, out: Path, reference: Path) -> None:
    """Compare a registration with that of the x86-64 wheel."""
    import numpy as np

    found, first = json.loads(said), json.loads((reference / "said.json").read_text())
    apart = float(np.abs(np.load(out / "field.npy") - np.load(reference / "field.npy")).max())
    say(
        f"{found['system']} {found['machine']}, Python {found['python']}: Dice {found['dice']:.4f},"
        f" {found['verdict']}, {found['seconds']} s; at most {apart:.2g} voxels from x86-64's field"
    )
    assert abs(found["dice"] - first["dice"]) <= DICE, (found, first)
    assert apart <= TOLERANCE, apart
    assert found["applied_differs"] == 0 and found["verdict"] == first["verdict"], found


def pythons() -> list[Path]:
    """Every Python >= 3.10 on PATH that can make an environment, one of each version."""
    found = {}
    folders = os.environ["PATH"].split(os.pathsep)
    folders += sorted(map(str, Path.home().glob(".pyenv/versions/*/bin")), reverse=True)
    for minor in range(10, 20):
        for folder in folders:
            path = Path(folder) / f"python3.{minor}"
            script = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
            done = path.exists() and subprocess.run(
                [str(path), "-c", script], capture_output=True, text=True
            )
            if done and done.stdout.split() == ["3", str(minor)]:
                found[minor] = path
                break
    return list(found.values())


def environment(python: Path, wheel: Path, folder: Path) -> Path:
    run(python, "-m", "venv", fresh(folder))
    own = folder / "bin" / "python"
    run(own, "-m", "pip", "install", "--quiet", wheel)
    return own


def reference(dist: Path, work: Path) -> tuple[Path, Path]:
    """Register with the x86-64 wheel; return the pair's folder and that of the result."""
    out = work / "reference"
    wheel = only(dist, "*manylinux*x86_64.whl")
    stamp = f"{wheel.name} {wheel.stat().st_mtime_ns}"
    known = out / "stamp"
    own = work / "venv-reference" / "bin" / "python"
    if not known.exists() or known.read_text() != stamp:
        own = environment(Path(sys.executable), wheel, work / "venv-reference")
        pair = demo_pair(work, own)
        said = run(own, PAIR, "register", pair, out)
        (out / "said.json").write_text(said.splitlines()[-1])
        known.write_text(stamp)
    return demo_pair(work, own), out


# -------------------------------------------------------------------------------------------- files


def check_files(args: argparse.Namespace) -> None:
    import lief

    wheels = sorted(args.dist.glob("*.whl"))
    assert len(wheels) >= 3, wheels
    for wheel in wheels:
        said = run(sys.executable, "-m", "abi3audit", "--strict", "--report", wheel)
        report = json.loads(said)["specs"][str(wheel)]["wheel"]
        assert all(one["result"]["is_abi3"] for one in report), report
        folder = fresh(args.work / "files" / wheel.stem)
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder)
        assert list(folder.glob("*.dist-info/licenses/THIRD-PARTY.txt")), "no licences in it"
        look(lief, only(folder, "morphseek/_native/_native.*"), wheel.name, None)
        if "linux" in wheel.name:
            shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
            say(" ".join(shown.split())[:600])
    for archive in sorted(args.dist.glob("*-c-*.*")):
        folder = unpacked(archive, args.work / "files" / archive.name)
        assert (folder / "include" / "morphseek.h").exists()
        assert (folder / "share/doc/morphseek/THIRD-PARTY.txt").exists()
        (library,) = [
            path
            for pattern in ("lib/*.so.1", "bin/*.dll", "lib/*.1.dylib")
            for path in folder.glob(pattern)
        ]
        listed = (ROOT / "bridge/capi/test/abi.txt").read_text()
        look(lief, library, archive.name, set(re.findall(r"\bms_\w+(?=$|\n)", listed)))


def look(lief: object, path: Path, name: str, exports: set[str] | None) -> None:
    """See what a library needs, and that it is stripped; exports are the names it may give."""
    binary = lief.parse(str(path))
    if isinstance(binary, lief.ELF.Binary):
        assert set(binary.libraries) <= LINUX, binary.libraries
        assert not binary.has_section(".symtab") and not binary.has_section(".debug_info"), path
        versions = {
            aux.name
            for needed in binary.symbols_version_requirement
            for aux in needed.get_auxiliary_symbols()
        }
        newest = max(
            (v for v in versions if v.startswith("GLIBC_")),
            key=lambda v: [int(n) for n in v[6:].split(".")],
        )
        users = sorted(
            symbol.name
            for symbol in binary.imported_symbols
            if symbol.has_version
            and symbol.symbol_version.symbol_version_auxiliary
            and symbol.symbol_version.symbol_version_auxiliary.name == newest
        )
        say(f"{name}: needs {newest} ({', '.join(users[:6])}{', ...' if len(users) > 6 else ''})")
        assert [int(n) for n in newest[6:].split(".")] <= [2, 17], newest
        given = {s.name for s in binary.exported_symbols if s.name.startswith("ms_")}
        others = {s.name for s in binary.exported_symbols} - given
    elif isinstance(binary, lief.PE.Binary):
        needed = {library.name for library in binary.imports}
        say(f"{name}: needs {', '.join(sorted(needed))}")
        assert all(WINDOWS.fullmatch(one) for one in needed), needed
        given = {entry.name for entry in binary.get_export().entries}
        others = {one for one in given if not one.startswith("ms_")}
    else:
        needed = {library.name for library in binary.libraries}
        say(f"{name}: needs {', '.join(sorted(needed))}")
        assert all(MACOS.match(one) for one in needed), needed
        given, others = exports, set()
    if exports is not None:
        assert given - others == exports, given ^ exports
        assert not others, others


# -------------------------------------------------------------------------------------------- Linux


def check_linux(args: argparse.Namespace) -> None:
    pair, first = reference(args.dist, args.work)
    wheel = only(args.dist, "*manylinux*x86_64.whl")
    for python in pythons():
        folder = args.work / f"venv-{python.name}"
        own = environment(python, wheel, folder)
        out = args.work / f"out-{python.name}"
        compare(run(own, PAIR, "register", pair, out).splitlines()[-1], out, first)
        shutil.rmtree(folder)
    own = args.work / "venv-reference" / "bin" / "python"
    say(run(own, PAIR, "rough", pair, fresh(args.work / "rough-linux")).strip())
    sdk = unpacked(only(args.dist, "*-c-linux-x86_64.tar.gz"), args.work / "sdk-linux-x86_64")
    build = fresh(args.work / "example-linux")
    example = sdk / "share/morphseek/example"
    run(args.cmake, "-S", example, "-B", build, f"-DCMAKE_PREFIX_PATH={sdk}")
    run(args.cmake, "--build", build)
    say(f"C: {run(build / 'register').split(chr(13))[-1].strip()}")
    program = build / "filter"
    zig_cc("x86_64-linux-gnu.2.17", sdk, program, *FILTER, *LIBRARIES, language="c++")
    say(f"C++: {run(program, sdk / 'lib/libmorphseek.so.1').strip()}")


def check_sdist(args: argparse.Namespace) -> None:
    made = fresh(args.work / "from-sdist")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", made)
    run(
        *pip, f"--config-settings=cmake.define.GO_EXECUTABLE={args.go}", only(args.dist, "*.tar.gz")
    )
    names = []
    for wheel in (only(made, "*.whl"), only(args.dist, "*manylinux*x86_64.whl")):
        with zipfile.ZipFile(wheel) as file:
            names.append(
                sorted(n for n in file.namelist() if ".dist-info/" not in n and not n.endswith("/"))
            )
    assert names[0] == names[1], set(names[0]) ^ set(names[1])
    say(f"pip builds {only(made, '*.whl').name} from it, with the same {len(names[0])} files")


def check_slicer(args: argparse.Namespace) -> None:
    tests, scripts = ROOT / "slicer" / "Testing", ROOT / "bridge" / "capi" / "cmake"
    venv, alone = fresh(args.work / "venv-slicer"), fresh(args.work / "wheel-slicer")
    alone.mkdir()
    shutil.copy2(only(args.dist, "*manylinux*x86_64.whl"), alone)
    words = [f"-DPYTHON={sys.executable}", f"-DVENV={venv}", f"-DWHEEL_DIR={alone}"]
    words += [f"-DENVIRONMENT={scripts / 'environment.py'}", "-DEXTRAS=network"]
    words += ["-DPROGRAM=the Slicer core", f"-DREQUIREMENTS={tests / 'requirements.txt'}"]
    run(args.cmake, *words, "-P", scripts / "HostEnvironment.cmake")
    library = tests / "test_library.py"
    parts = {"library": ("", library), "panel": ("PySide6", f"{tests};--ignore={library}")}
    for name, (qt, files) in parts.items():
        words = [f"-DVENV={venv}", f"-DNAME={name}", f"-DQT={qt}", f"-DTESTS={files}"]
        words += [f"-DSUBJECT=the extension's {name}"]
        said = run(args.cmake, *words, "-P", scripts / "HostTest.cmake").strip()
        if " passed" not in said:  # it skips where there is no Slicer core or no Qt
            say(f"SKIPPED: the extension's {name} was NOT tried; ctest -L slicer says why")
            sys.exit(77)
        say(f"the Slicer extension's {name}: {said.splitlines()[-1]}")


# --------------------------------------------------------------------------------------------- bare

BARE = r"""
set -e
mkdir -p "$1/dev"
for file in null urandom; do
  touch "$1/dev/$file"
  mount --bind "/dev/$file" "$1/dev/$file"
done
mkdir -p "$1/proc" "$1/tmp" "$1/root"; mount -t proc proc "$1/proc"; chmod 1777 "$1/tmp"
for tool in cc gcc g++ clang make go; do
  if test -e "$1/usr/bin/$tool"; then echo "$tool is there"; exit 1; fi
done
exec chroot "$@"
"""


def check_bare(args: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        say("SKIPPED: bare was NOT tried; it is for root")
        sys.exit(77)
    pair, first = reference(args.dist, args.work)
    native = run("dpkg", "--print-architecture").strip()
    root = debian(args.work, native, "python3", "python3-venv", "libstdc++6", "ca-certificates")
    for name in ("ssl/certs/ca-certificates.crt", "resolv.conf", "hosts", "pip.conf"):
        if (file := Path("/etc", name)).exists():
            (root / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, root / "etc" / name)
    home = fresh(root / "root")
    home.mkdir()
    wheel = only(args.dist, "*manylinux*x86_64.whl")
    for source in (wheel, PAIR, *pair.iterdir()):
        shutil.copy2(source, home)
    kept = {
        k: v
        for k, v in os.environ.items()
        if re.match("PIP_(INDEX|TRUSTED|DEFAULT)|https?_proxy", k, re.I)
    }
    kept |= {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    kept |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt")

    def inside(*words: str) -> str:
        variables = [f"{name}={value}" for name, value in kept.items()]
        space = ("unshare", "--mount", "--propagation", "private", "sh", "-c", BARE, "sh", root)
        return run("env", "-i", *variables, *space, *words)

    inside("/usr/bin/python3", "-m", "venv", "/root/venv")
    inside("/root/venv/bin/pip", "install", "--quiet", f"/root/{wheel.name}")
    said = inside("/root/venv/bin/python", "/root/pair.py", "register", "/root", "/root/out")
    compare(said.splitlines()[-1], home / "out", first)
    command = ("register", "/root/fixed.nii.gz", "/root/moving.nii.gz", "--out", "/root/whole")
    inside("/root/venv/bin/morphseek", *command, "--report", "small", "--quiet", "--model", "none")
    assert (home / "whole/report.html").stat().st_size > 10_000
    size = sum(p.lstat().st_size for p in (home / "venv").rglob("*") if p.is_file())
    say(
        f"Debian with Python alone: pip installs {size / 1e6:.0f} MB; register, apply and report"
        " work"
    )


# ------------------------------------------------------------------------------------------ aarch64


def debian(work: Path, processor: str, *packages: str) -> Path:
    """Unpack Debian's packages for a processor, with what they need, into a folder; nothing is
    installed here.
    """
    root = work / f"debian-{processor}"
    if (root / ".done").exists():
        return root
    apt = work / f"apt-{processor}"
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "state/status").write_text("")
    options = [
        f"Dir::State={apt}/state",
        f"Dir::State::status={apt}/state/status",
        f"Dir::Cache={apt}/cache",
        f"APT::Architecture={processor}",
        f"APT::Architectures::={processor}",
        "Debug::NoLocking=1",
    ]
    words = [word for option in options for word in ("-o", option)]
    run("apt-get", *words, "update")
    fetch = ("-y", "--no-install-recommends", "--download-only", "install")
    run("apt-get", *words, *fetch, *packages)
    root.mkdir()
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        run("dpkg-deb", "-x", package, root)
    (root / ".done").touch()
    return root


def check_aarch64(args: argparse.Namespace) -> None:
    pair, first = reference(args.dist, args.work)
    root = debian(args.work, "arm64", "python3", "libstdc++6", "libgomp1")
    emulator = (shutil.which("qemu-aarch64-static"), "-L", str(root))
    (python,) = root.glob("usr/bin/python3.[0-9]*")
    minor = python.name.removeprefix("python3.")
    site = fresh(args.work / "site-aarch64")
    where = ["--platform", "manylinux_2_28_aarch64", "--platform", "manylinux_2_27_aarch64"]
    where += ["--platform", "manylinux_2_17_aarch64", "--platform", "manylinux2014_aarch64"]
    where += ["--only-binary=:all:", "--python-version", f"3.{minor}", "--target", str(site)]
    wheel = only(args.dist, "*manylinux*aarch64.whl")
    run(sys.executable, "-m", "pip", "install", "--quiet", *where, wheel)
    variables = {
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": str(site),
        "PAIR_EMULATOR": " ".join(emulator),
    }
    out = args.work / "out-aarch64"
    said = run(*emulator, python, PAIR, "register", pair, out, **variables)
    compare(said.splitlines()[-1], out, first)

    sdk = unpacked(only(args.dist, "*-c-linux-aarch64.tar.gz"), args.work / "sdk-linux-aarch64")
    example = args.work / "register-aarch64"
    zig_cc("aarch64-linux-gnu.2.17", sdk, example, f"-L{sdk}/lib", "-lmorphseek", "-lm")
    said = run(*emulator, "-E", f"LD_LIBRARY_PATH={sdk}/lib", example)
    say(f"C: {said.split(chr(13))[-1].strip()}")
    program = args.work / "filter-aarch64"
    zig_cc("aarch64-linux-gnu.2.17", sdk, program, *FILTER, *LIBRARIES, language="c++")
    said = run(*emulator, program, sdk / "lib/libmorphseek.so.1").strip()
    say(f"C++: {said}")
    assert said == as_here(args), "the field of the C++ program differs from x86-64's"

    shims = args.work / "go-exec"
    shims.write_text(f'#!/bin/sh\nexec {" ".join(emulator)} "$@"\n')
    shims.chmod(0o755)
    packages = ["./engine/internal/" + name for name in ARM_PACKAGES]
    words = ("test", "-short", "-vet=off", "-timeout=60m", f"-exec={shims}", *packages)
    done = subprocess.run(
        [args.go, *words],
        cwd=ROOT,
        env={**clean(), "GOARCH": "arm64", "CGO_ENABLED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    say(done.stdout.strip()[-3000:])
    assert done.returncode == 0


# Where arithmetic is, and so where processors may differ; the rest is the same code above it.
ARM_PACKAGES = "align blocks filter interp mind moments refine search referee".split()


# Fused products would draw other images on ARM.
FILTER = ("-std=c++17", "-O2", "-ffp-contract=off")
LIBRARIES = ("-ldl", "-lpthread")


def as_here(args: argparse.Namespace) -> str:
    """What filter.cpp says on this machine, with the x86-64 library."""
    sdk = unpacked(only(args.dist, "*-c-linux-x86_64.tar.gz"), args.work / "sdk-here")
    program = args.work / "filter-here"
    zig_cc("x86_64-linux-gnu.2.17", sdk, program, *FILTER, *LIBRARIES, language="c++")
    return run(program, sdk / "lib/libmorphseek.so.1").strip()


def zig_cc(target: str, sdk: Path, out: Path, *words: str, language: str = "cc") -> None:
    """Compile the C example of an archive, or filter.cpp, for another system."""
    import ziglang

    example = sdk / "share/morphseek/example/register.c"
    source = example if language == "cc" else HERE / "filter.cpp"
    zig = Path(ziglang.__file__).parent / "zig"
    run(zig, language, "-target", target, source, f"-I{sdk}/include", *words, "-o", out)


# ------------------------------------------------------------------------------------------ Windows

PRNG = """#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG); /* RtlGenRandom */
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE p, SIZE_T n) {
  return SystemFunction036(p, (ULONG)n);
}
"""


class Wine:
    """Windows' CPython under Wine, in a folder, with what Wine 8 lacks."""

    def __init__(self, work: Path) -> None:
        self.folder = work / "wine"
        self.python = self.folder / "python"
        self.site = self.folder / "site"
        self.variables = {
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEARCH": "win64",
            "WINEDEBUG": "-all",
            "PYTHONIOENCODING": "utf-8",
            "PYTHONHOME": self.path(self.python),
            "PYTHONPATH": self.path(self.site),
            "MPLCONFIGDIR": self.path(self.folder / "matplotlib"),
        }
        if not (self.folder / ".done").exists():
            fresh(self.folder)
            self.make()
            (self.folder / ".done").touch()
        self.start()

    def start(self) -> None:
        """Start what Wine keeps running. It would hold the pipe of the first program open, and
        Python under Wine writes to pipes alone.
        """
        environment = {**clean(), **self.variables}
        (self.folder / "prefix").mkdir(exist_ok=True)  # which wineserver does not make
        for command, fine in ((("wineserver", "-p"), (0, 2)), (("wineboot", "-i"), (0,))):
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE,
            )
            if done.returncode not in fine:  # 2: it runs already
                sys.exit(f"This failed ({done.returncode}): {' '.join(command)}")

    def stop(self) -> None:
        subprocess.run(("wineserver", "-k"), env={**clean(), **self.variables})

    @staticmethod
    def path(path: Path) -> str:
        return "Z:" + str(path).replace("/", "\\")

    def run(self, *command: object, **variables: str) -> str:
        words = [self.path(word) if isinstance(word, Path) else word for word in command[1:]]
        return run("wine", command[0], *words, **{**self.variables, **variables})

    def make(self) -> None:
        import lief
        import ziglang
        from abi3info import DATAS, FUNCTIONS

        zig = Path(ziglang.__file__).parent / "zig"
        downloads = self.folder / "downloads"
        downloads.mkdir(parents=True)
        maven = ("mvn", "-q", "-B", f"-Dmaven.repo.local={downloads / 'm2'}", "dependency:copy")
        run(*maven, f"-Dartifact={CPYTHON}", f"-DoutputDirectory={downloads}")
        with zipfile.ZipFile(only(downloads, "*.jar")) as jar:
            jar.extractall(downloads)
        (downloads / "org/bytedeco/cpython/windows-x86_64").rename(self.python)
        for pattern in ("*.dll", "*.pyd"):
            for file in (self.python / "lib").glob(pattern):
                if file.stem != "_wmi":  # Wine 8 ends the process where Python asks by it
                    shutil.copy2(file, self.python)
                file.unlink()
        where = ("--platform", "win_amd64", "--only-binary=:all:", "--python-version", "3.13")
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *where)
        run(*pip, "-d", downloads, "msvc-runtime")
        with zipfile.ZipFile(only(downloads, "msvc_runtime*.whl")) as wheel:
            for name in wheel.namelist():
                if "/Scripts/" in name and name.endswith(".dll"):
                    (self.python / Path(name).name).write_bytes(wheel.read(name))
        library = lief.parse(str(self.python / "python313.dll"))
        exported = {entry.name for entry in library.get_export().entries}
        names = [s.name for table in (FUNCTIONS, DATAS) for s in table if s.name in exported]
        (downloads / "python3.def").write_text(
            "LIBRARY python3.dll\nEXPORTS\n" + "".join(f"{n}=python313.{n}\n" for n in names)
        )
        (downloads / "empty.c").write_text(
            "int DllMain(void *a, unsigned b, void *c) { return 1; }\n"
        )
        (downloads / "prng.c").write_text(PRNG)
        shared = (zig, "cc", "-target", "x86_64-windows-gnu", "-shared", "-o")
        forwarder = self.python / "python3.dll"
        run(*shared, forwarder, downloads / "empty.c", downloads / "python3.def")
        self.start()
        key = r"HKCU\Software\Wine"
        run("wine", "reg", "add", key, "/v", "Version", "/d", "win10", "/f", **self.variables)
        system = self.folder / "prefix/drive_c/windows/system32"
        prng = system / "bcryptprimitives.dll"
        run(*shared, prng, downloads / "prng.c", "-ladvapi32")

    def install(self, wheel: Path, *more: str) -> None:
        """Install a wheel and what it needs into an empty folder; NumPy is the last that Wine 8
        can run.
        """
        where = ["--platform", "win_amd64", "--only-binary=:all:", "--python-version", "3.13"]
        where += ["--target", str(fresh(self.site))]
        pip = (sys.executable, "-m", "pip", "install", "--quiet", *where)
        run(*pip, "numpy==2.1.0", "colorama", *more, wheel)


def check_windows(args: argparse.Namespace) -> None:
    pair, first = reference(args.dist, args.work)
    wine = Wine(args.work)
    try:
        under_wine(args, wine, pair, first)
    finally:
        wine.stop()


def under_wine(args: argparse.Namespace, wine: Wine, pair: Path, first: Path) -> None:
    wine.install(only(args.dist, "*win_amd64.whl"))
    python = wine.python / "python.exe"
    out = args.work / "out-windows"
    said = wine.run(python, PAIR, "register", pair, out)
    compare(said.splitlines()[-1], out, first)

    say(wine.run(python, PAIR, "rough", pair, fresh(args.work / "rough-windows")).strip())

    sdk = unpacked(only(args.dist, "*-c-windows-x86_64.zip"), args.work / "sdk-windows-x86_64")
    programs = fresh(args.work / "programs-windows")
    programs.mkdir()
    shutil.copy2(sdk / "bin/morphseek.dll", programs)
    library = f"{sdk}/lib/morphseek.lib"
    zig_cc("x86_64-windows-gnu", sdk, programs / "register.exe", library)
    said = wine.run(programs / "register.exe").replace("\r\n", "\n")
    say(f"C: {said.split(chr(13))[-1].strip()}")
    zig_cc("x86_64-windows-gnu", sdk, programs / "filter.exe", *FILTER, language="c++")
    said = wine.run(programs / "filter.exe", programs / "morphseek.dll").strip()
    say(f"C++: {said}")
    assert said == as_here(args), "the field of the C++ program differs from x86-64's"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    checks = {
        "files": check_files,
        "sdist": check_sdist,
        "bare": check_bare,
        "linux": check_linux,
        "slicer": check_slicer,
        "aarch64": check_aarch64,
        "windows": check_windows,
    }
    parser.add_argument("what", choices=checks)
    parser.add_argument("--dist", type=lambda text: Path(text).absolute(), required=True)
    parser.add_argument("--work", type=lambda text: Path(text).absolute(), required=True)
    parser.add_argument("--go", default="go")
    parser.add_argument("--cmake", default="cmake")
    args = parser.parse_args()
    missing = [
        f"{tool} (Debian: {package})"
        for tool, package in TOOLS.get(args.what, {}).items()
        if not shutil.which(tool)
    ]
    if missing:
        say(f"SKIPPED: {args.what} was NOT tried; there is no {', no '.join(missing)}")
        sys.exit(77)
    args.work.mkdir(parents=True, exist_ok=True)
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        os.environ.setdefault(name, str(args.work / "zig-cache"))
    checks[args.what](args)


if __name__ == "__main__":
    main()
