"""Generates damaged files for every reader and reads them one after another.

``python mutants.py --count 10000 [--module MorphSeekRegistration]`` reads that many files, a fifth
of them by the command-line module if it is given, and prints the defects. A child process reads
them. If it dies, the file that killed it is named and another child continues.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import io
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import image_cases as cases
import numpy as np
import SimpleITK as sitk

import morphseek
from morphseek import errors, images, worker
from morphseek._engine import core
from morphseek.landmarks import Landmarks
from morphseek.studies import read_pairs
from morphseek.transforms import h5

_SECONDS = 10
_MEGABYTES = 200
_HUGE = (
    "1e308", "-1", "0", "4294967296", "9223372036854775807", "99999999999999999999", "1e-308",
    "nan", "inf", "", "0x10", "1.5", "65536", "2147483647", "-2147483649",
)  # fmt: skip
_WORDS = ("abc", "%s%n", "../../etc/passwd", "\u00e9", "True", "LIST", "(", '"', "\x1b[31m", "\x00")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclasses.dataclass(frozen=True)
class Seed:
    """A sound file, and how it is read."""

    data: bytes
    reader: str
    """A key of READERS."""
    text: int = -1
    """How many of its first bytes are text; -1: all."""
    gzipped: bool = False
    """Whether its content may be damaged before it is compressed."""
    beside: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """Other files that must be in the folder."""
    read: str = ""
    """The file to read, if it is another one."""


def _json(**values: Any) -> bytes:
    return json.dumps(values).encode()


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, cases.VOXELS.astype("<f4"))
    return file.getvalue()


FCSV = (
    b"# Markups fiducial file version = 4.11\n# CoordinateSystem = LPS\n# columns ="
    b" id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID\n"
    b"1,1.5,2,3,0,0,0,1,1,1,0,tip,,\n2,4,5,6,0,0,0,1,1,1,0,base,,\n"
)
POINTS = [{"label": str(i), "position": [i, 2.5, -3], "orientation": [1, 0]} for i in range(3)]
MARKUPS = {"type": "Fiducial", "coordinateSystem": "LPS", "controlPoints": POINTS}
GRID = [3, 4, 5, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]
REPORT = {
    "version": "0.20.0", "fixed_grid": GRID, "moving_grid": GRID,
    "initial_transform": np.eye(4).tolist(), "options": {"model": "none"}, "njd_percent": 0.5,
}  # fmt: skip
FIELD = (
    cases.NRRD.replace("short", "float").replace("dimension: 3", "dimension: 4")
    .replace("sizes: 8 7 6", "sizes: 3 3 4 5").replace("directions: ", "directions: none ")
    .replace("kinds: ", "kinds: vector ").encode() + bytes(720)
)  # fmt: skip
WARPED = gzip.compress(cases.nifti((3, 4, 5), bytes(120)), mtime=0)
ENTRY = {"file": "v.npy", "spacing": [1] * 3, "origin": [0] * 3, "direction": GRID[9:]}
REQUEST = _json(fixed=ENTRY, moving=ENTRY, outputs=["none"], options={})
VECTORS = cases.meta(
    "ElementType = MET_SHORT", "ElementNumberOfChannels = 3\nElementType = MET_FLOAT", b""
)
TWO_MHD = cases.meta("LOCAL", "two.raw", b"")
TWO_NHDR = cases.nrrd("encoding: raw", "encoding: gzip\ndata file: two.raw.gz", b"")
PART = cases.packed_meta(b"").replace(b"= LOCAL", b"= part.zraw")
BUNDLE = Path(__file__).parents[3] / "engine" / "internal" / "network" / "testdata" / "tiny.onnx"


def _transforms(folder: Path) -> Iterator[tuple[str, Seed]]:
    """Yield transform files, which their writers make in the folder."""
    field = sitk.DisplacementFieldTransform(
        sitk.Cast(sitk.GetImageFromArray(np.ones((5, 4, 3, 3))), sitk.sitkVectorFloat64)
    )
    affine = sitk.AffineTransform(3)
    affine.SetTranslation((1, 2, 3))
    files = {f"affine.{ending}": affine for ending in ("tfm", "txt", "mat", "h5")} | {
        "composite.tfm": sitk.CompositeTransform([affine, sitk.Euler3DTransform()]),
        "composite.h5": sitk.CompositeTransform([affine, field]),
        "field.h5": field,
    }
    place = np.array([3, 4, 5, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1.0])
    own = h5.Part("DisplacementFieldTransform", place, np.ones(180, np.float32))
    for name, transform in files.items():
        sitk.WriteTransform(transform, str(folder / name))
    h5.write(folder / "own.h5", [own], (morphseek.Grid.from_numbers(GRID), None))
    for name in (*files, "own.h5"):
        text = 0 if name.endswith((".h5", ".mat")) else -1
        yield name, Seed((folder / name).read_bytes(), "transform", text)


def _texts() -> Iterator[tuple[str, Seed]]:
    """Yield image files that begin with a text."""
    for name in ("plain.mha", "packed.mha", "big.mha", "plain.nrrd", "packed.nrrd", "big.nrrd",
                 "members.nrrd"):  # fmt: skip
        data = cases.SOUND[name]
        mark = b"ElementDataFile = LOCAL\n" if name.endswith("mha") else b"\n\n"
        yield name, Seed(data, "image", data.index(mark) + len(mark))


def make_seeds(folder: Path) -> dict[str, Seed]:
    """Return the sound files by name; some are made by writers in the folder."""
    lists = {"train": [["a", "b"]], "test": [["c", "d"], ["e", "f"]]}
    return {
        **dict(_texts()),
        "plain.nii": Seed(cases.SOUND["plain.nii"], "image", 0),
        "packed.nii.gz": Seed(cases.SOUND["packed.nii.gz"], "image", 0, True),
        "two.mhd": Seed(TWO_MHD, "image", beside={"two.raw": cases.RAW}),
        "two.nhdr": Seed(TWO_NHDR, "image", beside={"two.raw.gz": cases.GZIP}),
        "part.zraw": Seed(cases.ZLIB, "image", 0, beside={"part.mhd": PART}, read="part.mhd"),
        "vectors.mha": Seed(VECTORS + bytes(len(cases.RAW) * 6), "vectors", len(VECTORS)),
        **dict(_transforms(folder)),
        "pairs.csv": Seed(b"fixed,moving,id\na.nii.gz,b.nii.gz,one\nc.mha,d.mha,two\n", "list"),
        "split.json": Seed(_json(pairs=lists), "split"),
        "points.csv": Seed(b"name,x,y,z\ntip,1.5,2,3\nbase,4,5,6e1\n", "landmarks"),
        "points.fcsv": Seed(FCSV, "landmarks"),
        "points.mrk.json": Seed(_json(markups=[MARKUPS]), "landmarks"),
        "report.json": Seed(
            _json(**REPORT), "result",
            beside={"displacement.nrrd": FIELD, "warped.nii.gz": WARPED},
        ),
        "request.json": Seed(REQUEST, "request", beside={"v.npy": _npy()}),
        "v.npy": Seed(
            _npy(), "request", 128, beside={"request.json": REQUEST}, read="request.json"
        ),
        "tiny.onnx": Seed(BUNDLE.read_bytes(), "bundle", 0),
    }  # fmt: skip


# ---------------------------------------------------------------------- damage


def damage(seed: Seed, chance: random.Random) -> bytes:
    """Return the file with one to three things wrong."""
    if seed.gzipped and chance.random() < 0.5:
        inner = dataclasses.replace(seed, data=gzip.decompress(seed.data), gzipped=False)
        return gzip.compress(damage(inner, chance), mtime=0)
    data = seed.data
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        text = len(seed.data) if seed.text < 0 else seed.text
        in_text = (_line, _replaced(_HUGE), _replaced(_WORDS)) * 2 * (text > 0)
        ways = (_flip, _cut, _extreme, _insert) + in_text
        data = chance.choice(ways)(data, text, chance)
    return data


Way = Callable[[bytes, int, random.Random], bytes]


def _flip(data: bytes, text: int, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8)) if out else 0):
        # half of the damage hits headers, which are short and at the beginning
        most = min(len(out), 400) if chance.random() < 0.5 else len(out)
        out[chance.randrange(most)] ^= 1 << chance.randrange(8)
    return bytes(out)


def _cut(data: bytes, text: int, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _extreme(data: bytes, text: int, chance: random.Random) -> bytes:
    out, width = bytearray(data), chance.choice((1, 2, 4, 8))
    most = len(out) - width if chance.random() < 0.5 else min(len(out) - width, 400)
    if most < 1:
        return data
    at = chance.randrange(most)
    ones = b"\xff" * (width - 1)
    ends = (b"\xff" * width, bytes(width), b"\x7f" + ones, ones + b"\x7f")
    out[at : at + width] = chance.choice((*ends, bytes(width - 1) + b"\x80"))
    return bytes(out)


def _insert(data: bytes, text: int, chance: random.Random) -> bytes:
    at, size = chance.randrange(len(data) + 1), chance.choice((1, 8, 100))
    pieces = (bytes(size), b"[" * size * 50, data[at : at + size], chance.randbytes(size))
    return data[:at] + chance.choice(pieces) + data[at:]


def _line(data: bytes, text: int, chance: random.Random) -> bytes:
    lines = data[:text].splitlines(keepends=True)
    if not lines:
        return data
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    what = chance.randrange(4)
    if what == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif what == 1:
        lines.insert(other, lines[one])
    elif what == 2:
        del lines[one]
    else:
        lines[one] = lines[one] * chance.choice((2, 300))
    return b"".join(lines) + data[text:]


def _replaced(words: tuple[str, ...]) -> Way:
    """Return a way to put one of these words in place of a number."""

    def change(data: bytes, text: int, chance: random.Random) -> bytes:
        by = chance.choice(words)
        if not (found := list(_NUMBER.finditer(data[:text]))):
            return data
        number = chance.choice(found)
        return data[: number.start()] + by.encode() + data[number.end() :]

    return change


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A damaged file in a folder of its own."""

    index: int
    name: str
    seed: Seed
    data: bytes

    def put(self, folder: Path) -> Path:
        """Write it and the files that belong to it; return the file to read."""
        for name, data in {**self.seed.beside, self.name: self.data}.items():
            (folder / name).write_bytes(data)
        return folder / (self.seed.read or self.name)


def mutants(seeds: dict[str, Seed], indices: range, front: str, salt: str = "") -> Iterator[Mutant]:
    """Return damaged files, always the same ones."""
    names = sorted(n for n, s in seeds.items() if front == "python" or s.reader in MODULE)
    for index in indices:
        name = names[index % len(names)]
        seed = seeds[name]
        yield Mutant(index, name, seed, damage(seed, random.Random(f"{salt}{name} {index}")))


# --------------------------------------------------------------------- readers


READERS: dict[str, Callable[[Path], Any]] = {
    "image": lambda path: images.read(path, "moving").array,
    "vectors": images.read_vectors,
    "transform": lambda path: morphseek.Transform.read(path).transform_points([[1.0, 2.0, 3.0]]),
    "landmarks": Landmarks.read,
    "list": read_pairs,
    "split": lambda path: read_pairs(path, data=path.parent, subset="test"),
    "result": lambda path: morphseek.Registration.read(path.parent),
    "request": lambda path: worker.run(path.parent, print),
    "bundle": lambda path: core.verify_model(str(path)),
}
MODULE = ("image", "transform")  # what the command-line module reads
_FAILURES = {3, 4}  # exit codes: an input, a model


def _expected(mutant: Mutant, array: Any) -> str:
    """Return what is wrong with the voxels that were read: they must be those in the file, and a
    checksum of the file must match.
    """
    data = mutant.data
    if array.tobytes() in (cases.RAW, cases.BIG):
        return ""
    if mutant.name == "part.zraw":
        payload, packed = data, True
    elif mutant.name.endswith((".mha", ".nrrd")):
        mark = b"\n\n" if mutant.name.endswith("nrrd") else b"ElementDataFile"
        data = data.replace(b"\r\n", b"\n") if b"\r\n\r\n" in data else data
        at = data.index(mark) + len(mark)
        payload = data[at if mark == b"\n\n" else data.index(b"\n", at) + 1 :]
        head = data[:at].lower()
        packed = re.search(rb"compresseddata *= *(true|1)|encoding: *gz", head) is not None
        elsewhere = rb"headersize|byte ?skip|line ?skip|data ?file:|binarydata *= *(false|0)"
        if re.search(elsewhere, head):
            return ""
    elif mutant.name.endswith(".nii.gz"):
        try:
            gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return "" if _trailing(data, mutant) else "a damaged stream was taken"
        return ""
    else:
        return ""
    if packed:
        whole = b""
        try:
            while payload[:2] in (b"\x1f\x8b", b"x\x9c", b"x\xda", b"x\x01"):
                stream = zlib.decompressobj(47)
                whole += stream.decompress(payload)
                if not stream.eof:
                    return "a stream that is cut short was taken"
                payload = stream.unused_data
        except zlib.error:
            if len(whole) < array.nbytes:
                return "a damaged stream was taken"
        payload = whole
    raw, size = payload[: array.nbytes], array.itemsize
    swapped = np.frombuffer(raw, f"u{size}").byteswap().tobytes() if len(raw) % size == 0 else raw
    return "" if array.tobytes() in (raw, swapped) else "other voxels than those in the file"


def _trailing(data: bytes, mutant: Mutant) -> bool:
    """Whether a stream is complete and only bytes after it are damaged."""
    stream = zlib.decompressobj(31)
    try:
        stream.decompress(data)
    except zlib.error:
        return False
    return stream.eof


def _peak(reset: bool = False) -> int:
    """Return the peak memory since the last reset, in kB; 0 if the system does not report it."""
    with contextlib.suppress(OSError):
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def _names(mutant: Mutant) -> tuple[str, ...]:
    """Return the names that a message may use for a file: its own, or that of its image."""
    files = (mutant.name, mutant.seed.read or mutant.name, *mutant.seed.beside)
    if mutant.seed.reader == "request":  # the caller knows no files of its images
        return (*files, "fixed", "moving", "there is no output")
    return files


def read_one(mutant: Mutant, folder: Path) -> str:
    """Read a mutant in this process; return what is wrong, or an empty string."""
    path = mutant.put(folder)
    before = _peak(reset=True)
    started = sum(os.times()[:4])  # CPU time, also of children: the machine may be busy
    wrong = ""
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            value = READERS[mutant.seed.reader](path)
        if mutant.seed.reader == "image":
            wrong = _expected(mutant, value)
    except errors.MorphSeekError as error:
        # a damaged request may ask for something that does not exist
        usage = mutant.seed.reader in ("request", "split") and error.exit_code == 2
        if error.exit_code not in _FAILURES and not usage:
            wrong = f"exit code {error.exit_code}: {error}"
        elif not any(name in str(error) for name in _names(mutant)):
            wrong = f"the file is not named: {error}"
    except Exception as error:
        wrong = f"unexpected: {type(error).__name__}: {error}"[:300]
    seconds, grown = sum(os.times()[:4]) - started, (_peak() - before) / 1024
    if seconds > _SECONDS:
        wrong = wrong or f"{seconds:.0f} s"
    size = sum(map(len, (mutant.data, *mutant.seed.beside.values()))) / 2**20
    if grown > 2 * size + _MEGABYTES:
        wrong = wrong or f"{grown:.0f} MB"
    return wrong


# ------------------------------------------------------------------------ runs


def _child(pipe: Connection, folder: Path) -> None:
    """Read the mutants that come through a pipe; send what is wrong with each."""
    while True:
        pipe.send(read_one(pipe.recv(), folder))


def run_python(count: int, salt: str = "", first: int = 0) -> list[str]:
    """Read ``count`` files in a child process; return the defects."""
    spawn, found, child = multiprocessing.get_context("spawn"), [], None
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as place:
        for mutant in mutants(make_seeds(Path(name)), range(first, first + count), "python", salt):
            if child is None:
                pipe, its_end = spawn.Pipe()
                child = spawn.Process(target=_child, args=(its_end, Path(place)), daemon=True)
                child.start()
                its_end.close()
            try:
                pipe.send(mutant)
                wrong = pipe.recv() if pipe.poll(6 * _SECONDS) else "a hang"
            except (EOFError, OSError):
                child.join()
                wrong = f"the process ended with {child.exitcode}"
            if wrong:
                found.append(f"{mutant.name} {mutant.index}: {wrong}")
            if wrong == "a hang" or not child.is_alive():
                child.kill()
                child = None
            for file in Path(place).iterdir():
                file.unlink()
        if child:
            child.kill()
    return found


def run_module(count: int, module: str, salt: str = "", first: int = 0) -> list[str]:
    """Let the command-line module read ``count`` files; return the defects."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seeds = make_seeds(folder)
        (folder / "sound.nii").write_bytes(cases.SOUND["plain.nii"])
        for mutant in mutants(seeds, range(first, first + count), "module", salt):
            place = folder / "one"
            place.mkdir()
            path = mutant.put(place)
            sound, size = folder / "sound.nii", len(mutant.data) / 2**20
            # the other image is missing, so that nothing is registered
            arguments = [path.parent / "absent.nii", path]
            if mutant.seed.reader == "transform":
                arguments = [sound, sound, "--initial-transform", path]
            if why := _watched([module, *map(str, arguments)], size, path):
                found.append(f"module: {mutant.name} {mutant.index}: {why}")
            for file in place.iterdir():
                file.unlink()
            place.rmdir()
    return found


def _watched(command: list[str], size: float, path: Path) -> str:
    import resource  # not on Windows

    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        end = time.monotonic() + 6 * _SECONDS  # the machine may be busy
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > end:
                process.kill()
                process.wait()
                return "a hang"
            time.sleep(0.005)
        said.seek(0)
        words = said.read().decode(errors="replace")
    if usage.ru_utime + usage.ru_stime > _SECONDS:
        return f"{usage.ru_utime + usage.ru_stime:.0f} s"
    # before exec a child counts as large as its parent
    started_by = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if usage.ru_maxrss > started_by and usage.ru_maxrss / 1024 > 2 * size + _MEGABYTES:
        return f"{usage.ru_maxrss / 1024:.0f} MB"
    taken = "absent.nii does not exist" in words or "nothing is to be written" in words
    if (process.returncode in (2, 3) and taken) or (process.returncode == 3 and str(path) in words):
        return ""
    return f"exit code {process.returncode}: {words[-300:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--salt", default="", help="another one gives other files")
    parser.add_argument("--module", help="the command-line module, for a fifth of the files")
    given = parser.parse_args()
    modules = given.count // 5 if given.module else 0
    found = run_python(given.count - modules, given.salt, given.first)
    if given.module:
        found += run_module(modules, given.module, given.salt, given.first)
    print(f"{given.count} files, {len(found)} found", *found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
