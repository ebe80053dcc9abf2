"""The engine several times in one process: the Python extension, the C library and a copy of it (as
with two versions), from several threads, also after dlclose. Each has its own Go runtime, and none
can be unloaded.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(
    os.environ.get("MORPHSEEK_LIBRARY")
    or Path(__file__).parents[3] / "build" / "lib" / "libmorphseek.so.1"
)
SCRIPT = """
import ctypes, os, sys, threading, _ctypes
import numpy as np, morphseek

quick = dict(model="none", refine=0, search=False, initial="none")
image = np.random.default_rng(0).random((12, 12, 12))

def use(library):
    engine = ctypes.c_uint64(0)
    assert library.ms_engine_create(None, ctypes.byref(engine)) == 0 and engine.value
    library.ms_engine_destroy(engine)

def everything():
    for library in libraries:
        use(library)
    return morphseek.register(image, image, **quick).warped

libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
for library in libraries:
    library.ms_engine_destroy.argtypes = [ctypes.c_uint64]
assert libraries[0]._handle != libraries[1]._handle
alone = everything()
found = []
threads = [threading.Thread(target=lambda: found.append(everything())) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 4 and all((warped == alone).all() for warped in found)
for library in libraries:
    _ctypes.dlclose(library._handle)
assert (morphseek.register(image, image, **quick).warped == alone).all()
use(ctypes.CDLL(sys.argv[1]))
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), 2)).start()
    big = np.random.default_rng(0).random((64, 64, 64))
    morphseek.register(big, big[::-1], model="none", refine=1000)
except KeyboardInterrupt:
    print("all is well")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are loaded otherwise there")
def test_several_in_one_process(tmp_path: Path):
    if not LIBRARY.is_file():
        pytest.skip(f"needs {LIBRARY}: two libraries in one process are not tried here")
    copies = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        copies.append(shutil.copy(LIBRARY, tmp_path / name))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *copies], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "all is well\n", done.stderr
