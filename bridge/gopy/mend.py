"""Mends what gopy 0.4.10 and PyBindGen generate, so that one extension serves every Python >= 3.10
(the limited API) on every system:

    mend.py native.go [--include DIR]... [--link FLAG]...    after `gopy gen`
    mend.py native.c                                         after its build.py

Each mend is a row below and says why it is needed. A row that no longer finds what it mends ends
the build: gopy has changed, and so must this. upstream.patch has the same for gopy itself.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

LIMITED_API = "0x030A0000"  # Python 3.10; python/pyproject.toml has the same as wheel.py-api


class Mend(NamedTuple):
    """What to look for, how often it is there, and what comes in its place."""

    why: str
    pattern: str
    replacement: str
    times: int = 1


GO = (
    Mend(
        "the limited API lacks PyMethod_Check",
        r"return PyMethod_Check\(obj\);",
        'return PyObject_HasAttrString(obj, "__func__") &&'
        ' PyObject_HasAttrString(obj, "__self__");',
    ),
    Mend(
        "the limited API lacks Py_complex",
        r"v := C\.PyComplex_AsCComplex\(o\)\n\treturn complex\((\w+)\(v\.real\), \w+\(v\.imag\)\)",
        r"return complex(\1(C.PyComplex_RealAsDouble(o)), \1(C.PyComplex_ImagAsDouble(o)))",
        2,
    ),
    Mend(
        "Py_BuildValue's k is 32 bits on Windows",
        r'return Py_BuildValue\("k", val\);',
        'return Py_BuildValue("L", val);',
    ),
    Mend("C's long is 32 bits on Windows", r"C\.long\(size\)", "C.Py_ssize_t(size)"),
    Mend(
        "what a callback returned was read after Python's lock had been given back, and where it"
        " raised there was nothing to read",
        r"( *\t*)C\.PyGILState_Release\(_gstate\)\n"
        r"\s*return boolPyToGo\(C\.char\(C\.PyLong_AsLongLong\(_fcret\)\)\)",
        r"\1_answer := _fcret != nil && C.PyObject_IsTrue(_fcret) == 1\n"
        r"\1C.gopy_decref(_fcret)\n"
        r"\1C.PyGILState_Release(_gstate)\n"
        r"\1return _answer",
        2,
    ),
)
C = (
    Mend(
        "the limited API lacks PyAsyncMethods, which nothing here uses",
        r"#if PY_VERSION_HEX >= 0x03050000\ntypedef PyAsyncMethods\* cmpfunc;\n"
        r"#else\n(.*\n)#endif\n",
        r"\1",
    ),
    Mend(
        "Windows exports PyInit__native by another word",
        r"#if defined\(__GNUC__\) && __GNUC__ >= 4\n"
        r'(__attribute__ \(\(visibility\("default"\)\)\)\n)',
        r"#if defined(_WIN32)\n__declspec(dllexport)\n#elif defined(__GNUC__) && __GNUC__ >= 4\n\1",
    ),
)


def flags(include: list[str], link: list[str]) -> Mend:
    """The compiler's and the linker's flags: ours, in place of those of Python's own build."""
    # gnu17: gopy's `typedef uint8_t bool` is an error in C23, which is what GCC 15 compiles
    compiler = [*(f'"-I{folder}"' for folder in include), f"-DPy_LIMITED_API={LIMITED_API}"]
    compiler += ["-std=gnu17", "-Wno-error", "-Wno-implicit-function-declaration"]
    lines = [f"#cgo CFLAGS: {' '.join(compiler)} -Wno-int-conversion\n"]
    if link:
        lines.append("#cgo LDFLAGS: " + " ".join(f'"{flag}"' for flag in link) + "\n")
    return Mend(
        "Debian's -fwrapv, Fedora's -specs= and conda's -Wl,... are refused by Go or do harm",
        r"#cgo CFLAGS:[^\n]*\n#cgo LDFLAGS:[^\n]*\n",
        "".join(lines).replace("\\", r"\\"),
    )


def mend(name: str, text: str, mends: tuple[Mend, ...]) -> str:
    """Return the text with every mend made."""
    for one in mends:
        text, found = re.subn(one.pattern, one.replacement, text)
        if found != one.times:
            sys.exit(
                f"{name}: what gopy 0.4.10 writes {one.times} times is there {found} times"
                f" ({one.why}). Another gopy? Mend {Path(__file__).name}"
            )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--include", action="append", default=[], metavar="DIR")
    parser.add_argument("--link", action="append", default=[], metavar="FLAG")
    args = parser.parse_args()
    mends = C if args.file.suffix == ".c" else (flags(args.include, args.link), *GO)
    text = args.file.read_text(encoding="utf-8")
    args.file.write_text(mend(args.file.name, text, mends), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
