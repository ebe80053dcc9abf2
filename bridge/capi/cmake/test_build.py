"""The build's own scripts: what they say when something is missing, which Go they take, and folders
with a blank in their name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import environment
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CMAKE = os.environ.get("CMAKE_COMMAND") or shutil.which("cmake")
GO = os.environ.get("GO_EXECUTABLE") or shutil.which("go")


def program(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def script(*words: str, timeout: float = 300, **variables: str | None) -> str:
    """Run cmake with variables of the environment set, or where None removed; return its words in
    single spaces.
    """
    changed = {**os.environ, **{k: v for k, v in variables.items() if v is not None}}
    for name in (k for k, v in variables.items() if v is None):
        changed.pop(name, None)
    done = subprocess.run(
        [CMAKE, *words],
        env=changed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    return " ".join(done.stdout.split())


def required(
    generator: str = "Unix Makefiles", directory: str = "/somewhere", **variables: str | None
) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (caller := Path(folder) / "caller.cmake").write_text(
            f'set(CMAKE_SOURCE_DIR "{directory}")\ninclude("{HERE}/RequireTools.cmake")\n'
        )
        return script(
            f"-DCMAKE_GENERATOR={generator}",
            "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
            "-P",
            str(caller),
            **variables,
        )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with what the build needs and nothing more, to be the whole PATH; Go says that it
    has everything.
    """
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("cc", "c++", "make", "sh", "mkdir", "test"):
        (folder / name).symlink_to(shutil.which(name))
    (folder / "python3").symlink_to(sys.executable)
    program(
        folder / "go",
        f"#!/bin/sh\ncase $2 in GOVERSION) echo go1.99 ;; *) echo {tmp_path}/cache ;; esac\n",
    )
    return folder


def test_nothing_is_missing(tools: Path):
    assert required(PATH=str(tools)) == ""


@pytest.mark.parametrize(
    "gone, there, generator, said",
    [
        (
            "make",
            "ninja",
            "Unix Makefiles",
            "make (Debian: make), which the presets call (ninja does not stand in for it)",
        ),
        ("make", "", "Ninja", "ninja (Debian: ninja-build), which the generator Ninja calls"),
        ("cc", "", "Unix Makefiles", "a C compiler (Debian: gcc)"),
        ("python3", "", "Unix Makefiles", "Python >= 3.10 with its headers"),
    ],
)
def test_a_tool_that_is_missing_is_named(
    tools: Path, gone: str, there: str, generator: str, said: str
):
    (tools / gone).unlink()
    if there:
        program(tools / there, "#!/bin/sh\n")
    assert said in required(generator, PATH=str(tools), CC=None)


@pytest.mark.parametrize(
    "name, fits", [("it's", False), ("a:b", False), ("a;b", False), ("a b", True), ("größer", True)]
)
def test_folders_that_cannot_be_built_in_are_refused(tools: Path, name: str, fits: bool):
    said = required(PATH=str(tools), directory=f"/somewhere/{name}")
    assert (
        said == ""
        if fits
        else "a folder whose name has no quote, colon, semicolon or backslash: this is /somewhere/"
        in said
    ), said


GO_SAYS = "#!/bin/sh\necho {}\n"


@pytest.mark.parametrize(
    "versions, taken",
    [
        (("go1.99", "go1.98"), 0),  # the first on PATH, whatever lies elsewhere
        (("go1.98", "go1.19"), 0),
        (("go1.19.8", "go1.25.0"), 1),  # an old one in front does not hide a good one
        (("nothing of use", "go1.26.1 X:nocoverageredesign"), 1),
    ],
)
def test_the_first_go_that_fits(tmp_path: Path, versions: tuple[str, ...], taken: int):
    found = [
        program(tmp_path / str(i) / "go", GO_SAYS.format(version))
        for i, version in enumerate(versions)
    ]
    (tmp_path / "show.cmake").write_text(
        f'include("{HERE}/GoTool.cmake")\nmessage("${{GO_EXECUTABLE}} ${{go_missing}}")\n'
    )
    said = script(
        "-P",
        str(tmp_path / "show.cmake"),
        PATH=":".join([*(str(f.parent) for f in found), os.environ["PATH"]]),
    )
    assert said == str(found[taken])


def test_a_go_that_is_too_old_is_named(tmp_path: Path):
    old = program(tmp_path / "go", GO_SAYS.format("go1.19.8"))
    (tmp_path / "show.cmake").write_text(
        f'include("{HERE}/GoTool.cmake")\nmessage("${{GO_EXECUTABLE}} ${{go_missing}}")\n'
    )
    assert (
        script(f"-DGO_EXECUTABLE={old}", "-P", str(tmp_path / "show.cmake"))
        == f"Go >= 1.25 ({old} says: go1.19.8)"
    )


NO_CACHES = dict.fromkeys(("GOPATH", "GOCACHE", "GOMODCACHE", "XDG_CACHE_HOME"))


@pytest.mark.parametrize(
    "variables, said",
    [
        ({"HOME": None, **NO_CACHES}, "HOME, which is not set: Go keeps its caches there"),
        (
            {"HOME": "/proc/nowhere", **NO_CACHES},
            "a GOCACHE that can be written: /proc/nowhere/.cache/go-build cannot",
        ),
        (
            {
                "GOMODCACHE": "{new}",
                "GOPROXY": "https://someone:secret@127.0.0.1:9",
                "GOFLAGS": "-modcacherw",
            },
            (
                "No Go module proxy could be reached (GOPROXY=https://127.0.0.1:9): connect this"
                " machine"
            ),
        ),
        (
            {"GOMODCACHE": "{new}", "GOPROXY": "off", "GOFLAGS": "-modcacherw"},
            "No Go module proxy could be reached (GOPROXY=off)",
        ),
    ],
)
def test_what_go_lacks_is_one_sentence(tmp_path: Path, variables: dict[str, str | None], said: str):
    given = {
        name: value and value.format(new=tmp_path / "new") for name, value in variables.items()
    }
    path = f"{Path(GO).parent}:{os.environ['PATH']}"
    output = script(
        "-P",
        str(HERE / "RequireTools.cmake"),
        PATH=path,
        https_proxy=None,
        HTTPS_PROXY=None,
        **given,
    )
    assert said in output and "secret" not in output


@pytest.mark.parametrize(
    "said, sentence",
    [
        (
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            (
                "The certificate of Go's module proxy (GOPROXY=direct) is not trusted here: install"
                " ca-certificates"
            ),
        ),
        (
            "dial tcp: lookup proxy.invalid: no such host",
            "No Go module proxy could be reached (GOPROXY=direct)",
        ),
        ("write /x: no space left on device", "The disk of Go's module cache is full"),
        ("mkdir /x: permission denied", "Go's module cache cannot be written"),
        ("a surprise", "Go could not fetch its modules. Go said: a surprise"),
    ],
)
def test_what_stops_a_fetch_is_one_sentence(tools: Path, tmp_path: Path, said: str, sentence: str):
    cache = tmp_path / "cache"
    program(
        tools / "go",
        '#!/bin/sh\ncase "$1 $2" in "env GOVERSION") echo go1.99 ;; "env GOPROXY") echo direct ;;'
        f' env*) echo {cache} ;; *) echo "go: downloading a v1" >&2; echo "{said}" >&2; exit 1 ;;'
        " esac\n",
    )
    output = required(PATH=str(tools))
    assert sentence in output and "downloading" not in output


# --------------------------------------------------------------------------------------------- gopy


# A folder with a blank: the linker's version script, and go.mod's replace. A `go` on PATH that is
# not the one found: gopy, which takes that from PATH, must not meet it.
def test_a_blank_in_the_path_and_a_bad_go_on_it(tmp_path: Path):
    tree = tmp_path / "Grüße Ordner"
    for name in ("bridge", "engine", "python/cmake", "python/CMakeLists.txt", "go.mod", "go.sum"):
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, tree / name, ignore=shutil.ignore_patterns("testdata", "__pycache__")
            )
        else:
            shutil.copy(ROOT / name, tree / name)
    bad = program(
        tmp_path / "bad" / "go", "#!/bin/sh\necho this is not the go that was found >&2\nexit 1\n"
    )
    path = f"{bad.parent}:{os.environ['PATH']}"
    build = tree / "build dir"
    said = script(
        "-S",
        str(tree / "python"),
        "-B",
        str(build),
        "-G",
        "Unix Makefiles",
        "-DSKBUILD=ON",
        f"-DGO_EXECUTABLE={GO}",
        f"-DPython_EXECUTABLE={sys.executable}",
        PATH=path,
    )
    assert (build / "Makefile").exists(), said
    said = script(
        "--build", str(build), "--target", "binding", timeout=1800, MAKEFLAGS=None, PATH=path
    )
    source = (build / "_native" / "native.go").read_text()
    assert (
        "#cgo LDFLAGS" not in source
        and "bridge/gopy" in source
        and "is not the go that was found" not in said
    ), said


# ------------------------------------------------------------------------------------------ release


def test_what_a_release_lacks_is_named_at_once(tools: Path, tmp_path: Path):
    (caller := tmp_path / "caller.cmake").write_text(
        f'cmake_minimum_required(VERSION 3.25)\nset(PYTHON_EXECUTABLE "{sys.executable}")\n'
        "set(MORPHSEEK_RELEASE ON)\n"
        f'include("{ROOT}/bridge/release/Release.cmake")\n'
    )
    said = script("-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", "-P", str(caller), PATH=str(tools))
    for program, package in (
        ("qemu-aarch64-static", "qemu-user-static"),
        ("wine", "wine64"),
        ("mvn", "maven"),
    ):
        assert f"{program} (Debian: apt-get install {package})" in said, said


def test_the_licences_of_what_is_linked(tmp_path: Path):
    (extra := tmp_path / "extra").write_text("do as you like\n")
    out = tmp_path / "licences"
    command = [sys.executable, str(HERE / "licences.py"), GO, str(ROOT), str(out)]
    subprocess.run([*command, f"--also=Extra={extra}"], check=True, timeout=300)
    text = out.read_text()
    direct = re.findall(r"^\t(\S+) (v\S+)$", (ROOT / "go.mod").read_text(), re.MULTILINE)
    assert len(direct) == 5
    for name, version in direct:
        assert f"{name} {version}\n---" in text
    assert "Copyright (c) 2009 The Go Authors" in text or "Copyright 2009 The Go Authors" in text
    assert text.endswith("Extra\n-----\n\ndo as you like\n")


# ---------------------------------------------------------------------------------------------- pip

NO_ROUTE = (
    "WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by"
    " 'NewConnectionError(': Failed to establish a new connection: [Errno -3] Temporary failure in"
    " name resolution')': /simple/numpy/\nERROR: Could not find a version that satisfies the"
    " requirement numpy (from versions: none)\nERROR: No matching distribution found for numpy\n"
)


@pytest.mark.parametrize(
    "said, sentence",
    [
        (NO_ROUTE, "No package registry could be reached"),
        (
            (
                "Could not fetch URL https://x/simple/pip/: There was a problem confirming the ssl"
                " certificate: (Caused by SSLError(SSLCertVerificationError(1, '[SSL:"
                " CERTIFICATE_VERIFY_FAILED] certificate verify failed"
            ),
            "certificate of the package registry is not trusted",
        ),
        (
            (
                "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on"
                " device"
            ),
            "The disk is full",
        ),
        (
            (
                "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied:"
                " '/x'"
            ),
            "cannot be written",
        ),
        (
            "ERROR: No matching distribution found for onnxruntime>=1.26",
            "The package registry has no onnxruntime>=1.26 for this Python and system.",
        ),
        ("error: subprocess-exited-with-error", ""),
    ],
)
def test_why_pip_failed_is_one_sentence(said: str, sentence: str):
    reason = environment.reason(said)
    assert sentence in reason and bool(reason) == bool(sentence)


def test_no_registry(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    for name in (
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
        "http_proxy",
        "HTTP_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SystemExit) as failure:
        environment.pip(
            Path(sys.prefix),
            "--quiet",
            "download",
            "--no-deps",
            "--index-url",
            "http://127.0.0.1:9/simple",
            "no-such-thing-here",
        )
    assert str(failure.value).splitlines()[-1].startswith("No package registry could be reached: ")
    assert capsys.readouterr().out.splitlines() == [environment.TRYING]


def test_steps_are_said_as_they_come_and_make_is_not_inherited(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MAKEFLAGS", " -j2 --jobserver-auth=3,4")
    said = (
        "echo '  [ 10%] Generating x'; echo '[2/5] Building the C library'; echo '  [100%] Built"
        ' target x\'; echo "noise $MAKEFLAGS"'
    )
    program(tmp_path / "bin" / "python", f'#!/bin/sh\n{said}\ntest -z "$MAKEFLAGS"\n')
    environment.pip(tmp_path, "wheel")
    assert capsys.readouterr().out == "  Generating x\n  Building the C library\n"


# ------------------------------------------------------------------------------- Tests inside hosts


def host_test(venv: Path, qt: str = "") -> str:
    (venv / "installed").touch()
    words = [f"-DVENV={venv}", "-DNAME=x", f"-DQT={qt}", "-DSUBJECT=the adapter", "-DTESTS=x"]
    return script(*words, "-P", str(HERE / "HostTest.cmake"))


@pytest.mark.parametrize(
    "said, skipped",
    [
        (
            "ImportError: libEGL.so.1: cannot open shared object file: No such file or directory",
            True,
        ),
        (
            (
                'qt.qpa.plugin: Could not load the Qt platform plugin "offscreen" in "" even though'
                " it was found."
            ),
            True,
        ),
        ("ImportError: cannot import name 'QtUiTools'", False),  # a defect, no lack of the system's
    ],
)
def test_a_panel_without_qt_is_skipped_in_words(tmp_path: Path, said: str, skipped: bool):
    program(
        tmp_path / "bin" / "python", f"#!/bin/sh\necho Traceback >&2\necho '{said}' >&2\nexit 1\n"
    )
    output = host_test(tmp_path, "PySide6")
    assert ("SKIPPED: no Qt here" in output and said in output) == skipped, output


def test_a_program_that_cannot_be_installed_is_skipped_in_words(tmp_path: Path):
    (tmp_path / "environment.py").write_text(
        "import sys\nsys.exit('No X for this Python' if '--requirements' in sys.argv else 0)\n"
    )
    make = {
        "PYTHON": sys.executable, "ENVIRONMENT": tmp_path / "environment.py", "VENV": tmp_path,
        "WHEEL_DIR": tmp_path, "PROGRAM": "the program X", "REQUIREMENTS": tmp_path / "x.txt",
    }  # fmt: skip
    words = [f"-D{name}={value}" for name, value in make.items()]
    warned = script(*words, "-P", str(HERE / "HostEnvironment.cmake"))
    assert "the program X could not be installed" in warned
    output = host_test(tmp_path)
    assert "SKIPPED: no environment here, so the adapter was NOT tested: without the program X" in (
        output
    )
    assert "No X for this Python" in output


def test_a_test_that_fails_in_a_program_fails(tmp_path: Path):
    program(tmp_path / "bin" / "python", "#!/bin/sh\necho SKIPPED [1] needs X\nexit 1\n")
    output = host_test(tmp_path)
    assert "Child return code: 1" in output
    assert "SKIPPED: no " not in output


# ----------------------------------------------------------------------------- The tests themselves


def test_what_tests_leave_in_the_tree_is_named(tmp_path: Path):
    tree = tmp_path / "tree"
    (tree / "python" / "tests" / "__pycache__").mkdir(parents=True)  # there before
    tidy = [f"-DTREE={tree}", f"-DLIST={tmp_path / 'list'}"]
    then = ["-P", str(HERE / "TestTidy.cmake")]
    assert script(*tidy, *then) == "" and script(*tidy, "-DAFTER=ON", *then) == ""
    for new in ("slicer/Testing/__pycache__", ".pytest_cache"):
        (tree / new).mkdir(parents=True)
        said = script(*tidy, "-DAFTER=ON", *then)
        assert (
            "the tests left in the source tree:" in said
            and new in said
            and "python/tests" not in said
        )
        (tree / new).rmdir()


def test_the_bare_system_is_skipped_where_it_cannot_be_made(tmp_path: Path):
    for name in ("bash", "sh", "realpath", "dirname", "id"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        [tmp_path / "bash", ROOT / "bridge" / "nightly.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    why = "there is no debootstrap here" if os.getuid() == 0 else "only root may make a bare system"
    assert (done.returncode, done.stdout) == (
        77,
        f"SKIPPED: {why}; a bare system was NOT tried\n",
    ), done.stderr


def test_the_floor_of_coverage_only_rises():
    """No percentage of floor.json is less than it was in any commit that this one comes from."""
    path = "bridge/coverage/floor.json"

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    commits = git("log", "--format=%H", "--", path).split()
    if not commits:
        pytest.skip("no history: this is no clone of the repository")
    floor = json.loads((ROOT / path).read_text())
    for commit in commits:
        for name, least in json.loads(git("show", f"{commit}:{path}") or "{}").items():
            assert floor.get(name, 0) >= least, f"{name} was {least} in {commit}"
