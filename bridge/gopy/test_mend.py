"""What is mended in gopy's output, and that another gopy is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mend
import pytest

HERE = Path(__file__).resolve().parent
GO = os.environ.get("GO_EXECUTABLE") or shutil.which("go")
CALLBACK = (
    "\t\tC.gopy_err_handle()\n\t\tC.PyGILState_Release(_gstate)\n"
    "\t\treturn boolPyToGo(C.char(C.PyLong_AsLongLong(_fcret)))\n"
)
COMPLEX = "\tv := C.PyComplex_AsCComplex(o)\n\treturn complex(float{0}(v.real), float{0}(v.imag))\n"
# As gopy 0.4.10 and PyBindGen 0.22.1 write them.
GO_SOURCE = (
    'package main\n\n/*\n\n#cgo CFLAGS: "-I/usr/include/python3.11" -Wno-error\n'
    "#cgo LDFLAGS: {}\n\n"
    '#include <stdint.h>\n*/\nimport "C"\n\nfunc main() {{ _ = C.int8_t(0) }}\n\n/*\n'
    '\treturn Py_BuildValue("k", val);\n\treturn PyMethod_Check(obj);\n'
    "\treturn C.PyBytes_FromStringAndSize((*C.char)(ptr), C.long(size))\n"
    + COMPLEX.format(32)
    + COMPLEX.format(64)
    + CALLBACK
    + CALLBACK
    + "*/\n"
)
C_SOURCE = (
    "#if PY_VERSION_HEX >= 0x03000000\n#if PY_VERSION_HEX >= 0x03050000\n"
    "typedef PyAsyncMethods* cmpfunc;\n#else\ntypedef void* cmpfunc;\n#endif\n#endif\n"
    '#if defined(__cplusplus)\nextern "C"\n#endif\n#if defined(__GNUC__) && __GNUC__ >= 4\n'
    '__attribute__ ((visibility("default")))\n#endif\n'
)


def mended(folder: Path, name: str, text: str, *words: str) -> tuple[str, str]:
    """Run mend.py on a file; return what is in it and what was said."""
    (file := folder / name).write_text(text)
    command = [sys.executable, str(HERE / "mend.py"), str(file), *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
    return file.read_text(), done.stderr


@pytest.mark.parametrize(
    "linker",
    [
        "-shared -Wl,-O1 -Wl,-Bsymbolic-functions   -g -fwrapv -O2",  # Debian, Ubuntu
        # Fedora
        (
            "-shared -Wl,-z,relro -Wl,-z,now -specs=/usr/lib/rpm/redhat/redhat-hardened-ld"
            " -specs=/usr/lib/rpm/redhat/redhat-annobin-cc1"
        ),
        # conda
        (
            "-shared -Wl,--allow-shlib-undefined -Wl,-rpath,/opt/conda/lib"
            " -Wl,-rpath-link,/opt/conda/lib -L/opt/conda/lib -fno-semantic-interposition"
        ),
    ],
)
def test_python_own_linker_flags_are_left_out(tmp_path: Path, linker: str):
    text, said = mended(
        tmp_path, "native.go", GO_SOURCE.format(linker), "--include=/a b", "--include=/c"
    )
    assert not said
    (tmp_path / "go.mod").write_text("module flags\n\ngo 1.25\n")
    flags = [line for line in text.splitlines() if line.startswith("#cgo")]
    assert flags == [
        '#cgo CFLAGS: "-I/a b" "-I/c" -DPy_LIMITED_API=0x030A0000 -std=gnu17 -Wno-error'
        " -Wno-implicit-function-declaration -Wno-int-conversion"
    ]
    command = [GO, "build", "-o", tmp_path / "out", "."]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "GOFLAGS": ""})


def test_the_linker_gets_what_a_system_needs(tmp_path: Path):
    words = (r"--include=C:\py\include", r"--link=C:\py\libs\python3.lib")
    text, _ = mended(tmp_path, "native.go", GO_SOURCE.format("-shared"), *words)
    assert r'#cgo CFLAGS: "-IC:\py\include" ' in text
    assert '#cgo LDFLAGS: "C:\\py\\libs\\python3.lib"\n' in text


def test_what_the_limited_api_and_windows_lack_is_gone(tmp_path: Path):
    text, said = mended(tmp_path, "native.go", GO_SOURCE.format("-shared"))
    assert not said
    for gone in ("PyMethod_Check", "AsCComplex", "v.real", "C.long(", '"k"', "PyLong_AsLongLong"):
        assert gone not in text
    assert "complex(float64(C.PyComplex_RealAsDouble(o)), float64(C.PyComplex_ImagAs" in text
    assert text.index("PyObject_IsTrue(_fcret)") < text.index("C.PyGILState_Release(_gstate)")
    text, said = mended(tmp_path, "native.c", C_SOURCE)
    assert not said
    assert (
        "PyAsyncMethods" not in text and "typedef void* cmpfunc;\n#endif\n#if defined(__c" in text
    )
    assert text.count("#if") == text.count("#endif")
    assert "#if defined(_WIN32)\n__declspec(dllexport)\n#elif" in text


@pytest.mark.parametrize(
    ("name", "source", "mends"),
    [
        ("native.go", GO_SOURCE.format("-shared"), (mend.flags([], []), *mend.GO)),
        ("native.c", C_SOURCE, mend.C),
    ],
)
def test_another_gopy_is_told(tmp_path: Path, name: str, source: str, mends: tuple[mend.Mend, ...]):
    for one in mends:
        left, said = mended(tmp_path, name, re.sub(one.pattern, "", source, count=1))
        assert one.why in said and f"is there {one.times - 1} times" in said
        assert left == re.sub(one.pattern, "", source, count=1)


def test_the_wheel_says_what_the_extension_is():
    pyproject = (HERE.parents[1] / "python" / "pyproject.toml").read_text()
    major, minor = re.search(r'wheel\.py-api = "cp(\d)(\d+)"', pyproject).groups()
    assert int(mend.LIMITED_API, 16) == int(major) << 24 | int(minor) << 16


def test_the_patch_for_gopy_fits_the_gopy_in_use(tmp_path: Path):
    command = [GO, "list", "-m", "-f", "{{.Dir}}", "github.com/go-python/gopy"]
    source = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    if not shutil.which("patch"):
        pytest.skip("no patch here")
    command = ["patch", "-p1", "--dry-run", "--fuzz=0", "-d", source.stdout.strip()]
    with (HERE / "upstream.patch").open() as text:
        done = subprocess.run(command, stdin=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
