"""Measures how much of the Go, Python and C++ code the tests run: measure.py [go] [python] [cpp].

Needs the build of `cmake --workflow --preset test`. Go takes about as long as its tests; Python and
C++ take longer than theirs, so this is no part of the test command. floor.json holds the least
percentage of each; --raise writes what was found where it is more. A percentage below its floor is
an error.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOOR = Path(__file__).with_name("floor.json")


def run(*command: object, folder: Path = ROOT, **environment: str) -> str:
    """Run a command, its output shown only when it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\n{command[0]} failed")
    return done.stdout


def go(build: Path, out: Path) -> float:
    """Statements of engine/ that the tests of engine/ run."""
    profile = out / "go.out"
    venv = {"VIRTUAL_ENV": str(build / "venv")}
    run("go", "test", "-coverpkg=./engine/...", f"-coverprofile={profile}", "./engine/...", **venv)
    total = run("go", "tool", "cover", f"-func={profile}").strip().splitlines()[-1]
    return float(re.search(r"([\d.]+)%$", total)[1])


def python(build: Path, out: Path) -> float:
    """Lines of the package, training aside, that its tests run, subprocesses included."""
    settings, report = out / "coveragerc", out / "python.json"
    settings.write_text(
        "[run]\nsource_pkgs = morphseek\nomit = */morphseek/training/*, */morphseek/_native/*\n"
        f"parallel = true\npatch = subprocess\ndata_file = {out}/python.data\n"
    )
    tool = (build / "venv/bin/python", "-m", "coverage")
    for left in out.glob("python.data*"):
        left.unlink()
    tests = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not training", "tests")
    tidy = {"PYTHONPYCACHEPREFIX": str(out / "pycache"), "MPLCONFIGDIR": str(out / "matplotlib")}
    run(*tool, "run", f"--rcfile={settings}", *tests, folder=ROOT / "python", **tidy)
    run(*tool, "combine", f"--rcfile={settings}")
    run(*tool, "json", f"--rcfile={settings}", "-o", report)
    return float(json.loads(report.read_text())["totals"]["percent_covered"])


def cpp(build: Path, out: Path) -> float:
    """Lines of the ITK filters and of the command-line module that their tests run."""
    instrumented = out / "cpp"
    run(
        "cmake",
        "-S",
        ROOT,
        "-B",
        instrumented,
        "-DMORPHSEEK_INSTALL_ITK=ON",
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS=--coverage",
    )
    run("cmake", "--build", instrumented, "--target", "itkMorphSeekTest", "MorphSeekRegistration")
    for left in instrumented.rglob("*.gcda"):
        left.unlink()
    venv = {"VIRTUAL_ENV": str(build / "venv")}
    run("ctest", "--test-dir", instrumented, "-R", "^itk-", "-E", "asan|install|module", **venv)
    module = next(instrumented.rglob("MorphSeekRegistration"), None)
    assert module is not None
    tests = ROOT / "plugin/test/test_module.py"
    run(
        build / "venv/bin/python",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        tests,
        MORPHSEEK_REGISTRATION=str(module),
        **venv,
    )
    report = out / "cpp.json"
    places = ("--root", ROOT, "--filter", "plugin/(include|cli)/", "--json-summary", report)
    run(build / "venv/bin/python", "-m", "gcovr", *places, instrumented)
    return float(json.loads(report.read_text())["line_percent"])


def main() -> None:
    measures = {"go": go, "python": python, "cpp": cpp}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=[*measures, []], default=list(measures))
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--raise", action="store_true", dest="higher")
    args = parser.parse_args()
    out = args.build / "coverage"
    out.mkdir(parents=True, exist_ok=True)
    floor = json.loads(FLOOR.read_text())
    failed = False
    for name in args.what:
        percent = measures[name](args.build.resolve(), out.resolve())
        least = floor.get(name, 0.0)
        print(f"{name}: {percent:.1f} %, the floor is {least:.1f} %", flush=True)
        failed |= percent < least
        if args.higher and percent > least:
            floor[name] = int(percent * 10) / 10
    FLOOR.write_text(json.dumps(floor, indent=2) + "\n")
    sys.exit("less than the floor" if failed else 0)


if __name__ == "__main__":
    main()
