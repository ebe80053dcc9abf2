"""Checks that nothing opens a network connection or leaves files in HOME: every front end, the
training, and every library that they load.

    silence.py [--library LIBMORPHSEEK] [--module MORPHSEEKREGISTRATION] [--seconds 25] [--only
    NAME]

Each case runs with its own HOME and environment, without the variable CI, because some libraries
are silent under CI. Processes of ours stay alive long enough for telemetry to send. The ctest
"silence" runs this; the exit code is 77 if processes cannot be watched here.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from pace import limit

TESTS = Path(__file__).resolve().parent
LINGER = "\nimport time; time.sleep(float(sys.argv[1]))"

# The built-in network was trained on images of a tenth of this size in mm.
PAIR = """
from morphseek import images, phantom
pair = phantom.make_pair(size=32)
for name in ("fixed", "moving"):
    image = getattr(pair, name)
    small = images.Image(image.array, tuple(0.1 * s for s in image.spacing), tuple(0.1 * o for o in image.origin), image.direction)
    images.write(f"{name}.nii.gz", small)
"""  # noqa: E501 a program
ENGINE = """
import sys, morphseek
assert morphseek.devices()["version"]
alone = {"model": "hippocampus", "search": False, "refine": 0}
result = morphseek.register("fixed.nii.gz", "moving.nii.gz", device="cpu", **alone)
assert result.metrics["steps"]
result.save("out")
"""
TRAINING = """
import json, sys
from pathlib import Path
from click.testing import CliRunner
sys.path.insert(0, sys.argv[2])
from morphseek.training.cli import app
from training_helpers import write_phantom
for i, name in enumerate("abcd"):
    write_phantom(Path(f"images/{name}.nii.gz"), Path(f"labels/{name}.nii.gz"), (i / 2, 0, 0), seed=i)
pairs = {"warmup": [["a", "b"], ["b", "a"]], "grpo": [["a", "b"]], "val": [["c", "d"]], "test": [["c", "d"]]}
Path("split.json").write_text(json.dumps({"train": ["a", "b"], "pairs": pairs}))
tiny = {"model.backbone": "compact", "run.pretrain": 0, "data.min_size": "[24, 24, 24]", "run.threads": 1, "run.val_every": 2,
        "run.iterations": 2, "run.amp": "none", "run.steps_schedule": "[]", "run.device": "cpu",
        "model.options": '{"widths": [4, 4, 8], "latent_channels": 8, "decoder": [8, 8]}'}
def run(*words):
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
run("warmup", "warmup", "--out", "w", "-q", "--data", ".", *(word for key, value in tiny.items() for word in ("--set", f"{key}={value}")))
run("export", "paper", "--checkpoint", "w/last.pt", "--out", "mine.onnx")
import onnxruntime
onnxruntime.InferenceSession("mine.onnx", providers=["CPUExecutionProvider"])
"""  # noqa: E501 a program
LIBRARIES = """
import sys, morphseek
import numpy, scipy.ndimage, SimpleITK, nibabel, matplotlib.figure, rich, onnxruntime
import torch, monai.losses, onnx, onnxscript, distributed
from torch.utils.tensorboard import SummaryWriter
SummaryWriter("log").close()
onnxruntime.SessionOptions()
"""
NIPYPE = """
import sys, morphseek.hosts.nipype
morphseek.hosts.nipype.MorphSeekRegistration()
"""
C_LIBRARY = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[2])
engine, needed = ctypes.c_uint64(), ctypes.c_size_t()
assert library.ms_engine_create(None, ctypes.byref(engine)) == 0
found = ctypes.create_string_buffer(100000)
assert library.ms_devices(engine, found, ctypes.c_size_t(len(found)), ctypes.byref(needed)) == 0
assert b"libonnxruntime" in found.value, found.value
"""
# Files that the cases may leave: Matplotlib's list of fonts, and PyTorch's folder for
# compiled code.
KEPT = (".cache/matplotlib", ".config/matplotlib", "$TMPDIR/torchinductor_")

Case = tuple[str, list[str]]


def cases(arguments: argparse.Namespace) -> list[Case]:
    def lingering(script: str, *more: str) -> list[str]:
        return [sys.executable, "-c", script + LINGER, str(arguments.seconds), *more]

    command = [sys.executable, "-m", "morphseek"]
    found = [
        ("engine", lingering(ENGINE)),
        ("training", lingering(TRAINING, str(TESTS / "training"))),
        ("libraries", lingering(LIBRARIES)),
        ("nipype", lingering(NIPYPE)),
        ("devices", [*command, "info", "devices"]),
        ("doctor", [*command, "info", "doctor"]),
        ("worker", [sys.executable, "-m", "morphseek.worker", "--describe"]),
        ("demo", [*command, "demo", "--size", "32", "--out", "demo"]),
    ]
    if arguments.library:
        found.append(("C library", lingering(C_LIBRARY, arguments.library)))
    if arguments.module:
        words = "fixed.nii.gz moving.nii.gz --model hippocampus --device cpu"
        output = ["--output-transform", "transform.h5"]
        found.append(("ITK module", [arguments.module, *words.split(), *output]))
    return [case for case in found if arguments.only in (None, case[0])]


def with_strace(command: list[str], log: Path) -> list[str]:
    calls = "trace=socket,connect,sendto,sendmsg,sendmmsg"
    how = ["-f", "--seccomp-bpf", "-qq", "-e", calls, "-e", "signal=none", "-o", str(log)]
    return ["strace", *how, *command]


def read_strace(log: Path) -> list[str]:
    """Return the lines about other sockets than unix ones, by their address family."""
    other = re.compile(r"\b[AP]F_(?!UNIX|LOCAL)\w+")
    lines = list(filter(other.search, log.read_text(errors="replace").splitlines()))
    if len(lines) == 1 and "socket(AF_INET6, SOCK_STREAM" in lines[0]:
        return []  # urllib3 tests at import whether IPv6 exists, without sending
    return lines


def in_namespace(command: list[str], log: Path) -> list[str]:
    # root needs no user namespace, which a container or chroot may refuse
    own = "-n" if os.getuid() == 0 else "-rn"
    script = '"$@"; code=$?; cat /proc/net/snmp /proc/net/snmp6 >"$0"; exit $code'
    return ["unshare", own, "sh", "-c", script, str(log), *command]


def read_namespace(log: Path) -> list[str]:
    """Return the counters that show an attempt to send, from a namespace without a network."""
    told, names = [], []
    for words in map(str.split, log.read_text(encoding="utf-8").splitlines()):
        if len(words) == 2:
            pairs = [(words[0], words[1])]
        elif words[1].isalpha():
            names, pairs = words, []
        else:
            pairs = [(words[0][:-1] + name, value) for name, value in zip(names[1:], words[1:])]
        told += [
            f"{name} {value}"
            for name, value in pairs
            if re.fullmatch(r"Ip6?Out(NoRoutes|Requests)", name) and int(value)
        ]
    return told


WAYS = {
    "strace": (with_strace, read_strace),
    "an empty network namespace": (in_namespace, read_namespace),
}


class Outcome(NamedTuple):
    code: int
    said: str
    calls: list[str]  # of other than unix sockets
    left: list[str]  # in HOME and TMPDIR
    seconds: float


def run(command: list[str], folder: Path, way: str) -> Outcome:
    """Run a command in a folder of its own, watched."""
    wrap, read = WAYS[way]
    home, temporary, log = folder / "home", folder / "tmp", folder / "calls"
    for new in (home, temporary, work := folder / "work"):
        new.mkdir()
    kept = ("PATH", "PYTHONPYCACHEPREFIX")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary)}
    environment |= {"LANG": "C.UTF-8", "VIRTUAL_ENV": sys.prefix}
    for image in folder.parent.glob("pair/*"):
        shutil.copy(image, work)
    began = time.monotonic()
    done = subprocess.run(
        wrap(command, log), cwd=work, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        timeout=limit(1200),
    )  # fmt: skip
    left = [path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir()]
    left += [f"$TMPDIR/{path.name}" for path in temporary.iterdir()]
    left = [path for path in left if not path.startswith(KEPT)]
    seconds = time.monotonic() - began
    return Outcome(done.returncode, done.stdout, read(log) if log.exists() else [], left, seconds)


def way_to_watch(folder: Path) -> str | None:
    """Return the first way to watch that sees a connection which we open ourselves."""
    probe = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\ntry:"
        " s.connect(('192.0.2.1', 9))\nexcept OSError: pass"
    )
    for i, way in enumerate(WAYS):
        (trial := folder / str(i)).mkdir()
        try:
            seen = run([sys.executable, "-c", probe], trial, way)
        except OSError:
            continue
        if seen.code == 0 and seen.calls:
            return way
    return None


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--library", help="libmorphseek.so.1, to be watched too")
    parser.add_argument("--module", help="MorphSeekRegistration, to be watched too")
    parser.add_argument("--seconds", type=float, default=25, help="for which a process lives on")
    parser.add_argument("--only", help="the one case to run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        way = way_to_watch(folder)
        if way is None:
            needs = "neither strace nor an empty network namespace (unshare -rn) is available here"
            print(f"SKIPPED: {needs}; whether anything calls home was NOT tested")
            return 77
        print(f"watched by {way}", flush=True)
        (folder / "pair").mkdir()
        subprocess.run([sys.executable, "-c", PAIR], cwd=folder / "pair", check=True)
        failed = False
        with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
            jobs = {}
            for name, command in cases(arguments):
                (own := folder / name.replace(" ", "-")).mkdir()
                jobs[pool.submit(run, command, own, way)] = name
            for job in concurrent.futures.as_completed(jobs):
                seen = job.result()
                bad = bool(seen.code or seen.calls or seen.left)
                failed |= bad
                lines = [
                    f"{'FAILED' if bad else 'silent'}: {jobs[job]}, {len(seen.calls)} calls,"
                    f" {len(seen.left)} files, {seen.seconds:.0f} s"
                ]
                lines += [f"  exit code {seen.code}:", seen.said] if seen.code else []
                lines += [f"  {line}" for line in [*seen.calls[:12], *seen.left]]
                print(*lines, sep="\n", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
