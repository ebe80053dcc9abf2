"""What check.py runs in the Python of each platform; nothing but an installed morphseek is needed.

pair.py make FOLDER              the demonstration pair as files, 64 voxels along each axis
pair.py register FOLDER OUT      registers it, saves, applies and reports; prints JSON
pair.py rough FOLDER SCRATCH     names, paths and folders as users have them; a line for each try
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

THREADS = 2
QUICK = {"model": "none", "search": False, "refine": 0, "threads": THREADS}
# an emulator stands before Python where the kernel does not know the processor
COMMAND = (*os.environ.get("PAIR_EMULATOR", "").split(), sys.executable, "-m", "morphseek")
WORDS = ("--model", "none", "--search", "off", "--refine", "0", "--report", "none", "--quiet")
LONG = "abc" if os.name == "nt" else "abcde"  # Windows allows 260 characters unless told otherwise
NAMES = ("fixed", "moving", "fixed_labels", "moving_labels")


def make(folder: Path) -> None:
    from morphseek import images, phantom

    pair = phantom.make_pair(64)
    for name in NAMES:
        images.write(folder / f"{name}.nii.gz", getattr(pair, name))


def register(folder: Path, out: Path) -> None:
    import numpy as np

    import morphseek

    fixed, moving, fixed_labels, moving_labels = (folder / f"{name}.nii.gz" for name in NAMES)
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    result = morphseek.register(fixed, moving, model="none", threads=THREADS)
    seconds = time.perf_counter() - started
    scores = result.score(fixed_labels, moving_labels)
    np.save(out / "field.npy", result.displacement())
    result.save(out / "result")
    applied = out / "applied.nii.gz"
    words = ("apply", "--transform", out / "result" / "transform.h5", "--input", moving_labels)
    words += ("--reference", fixed, "--interpolation", "nearest", "--out-file", applied)
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL)
    from morphseek import images

    carried = images.read(applied).array
    warped = result.apply(images.read(moving_labels), interpolation="nearest").array
    said = {
        "version": morphseek.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "package": str(Path(morphseek.__file__).parent),
        "seconds": round(seconds, 1),
        "dice": float(np.mean([score.dice_after for score in scores])),
        "verdict": result.verdict.grade,
        "applied_differs": int((carried != warped).sum()),
    }
    print(json.dumps(said))


def rough(folder: Path, scratch: Path) -> None:
    """Try what differs between systems; the exit status is the number of tries that failed."""
    import morphseek
    from morphseek import errors, images

    fixed, moving = folder / "fixed.nii.gz", folder / "moving.nii.gz"

    def a_name(name: str) -> Callable[[], None]:
        def copies_registers_and_reads() -> None:
            place = scratch / name
            place.mkdir(parents=True)
            mine = place / f"{Path(name).name[:20]} fixed.nii.gz"
            shutil.copyfile(fixed, mine)
            out = place / "out"
            words = ("register", mine, moving, "--out", out, *WORDS)
            subprocess.run([*COMMAND, *words], check=True)
            assert (out / "transform.h5").stat().st_size > 1000
            morphseek.Transform.read(out / "transform.h5").apply(moving)

        return copies_registers_and_reads

    def replaced() -> None:
        out = scratch / "again"
        for _ in range(2):
            words = ("register", fixed, moving, "--out", out, *WORDS)
            subprocess.run([*COMMAND, *words], check=True)
        assert not [p for p in out.iterdir() if p.name.startswith((".", "tmp"))], list(
            out.iterdir()
        )

    def read_only() -> None:
        result = morphseek.register(fixed, moving, **QUICK)
        place = scratch / "taken"
        place.write_text("a file where a folder is asked for")
        try:
            result.save(place)
        except errors.OutputUnwritableError as error:
            assert "taken" in str(error), error
        else:
            raise AssertionError("a folder was made where a file is")
        if os.name != "nt" or os.environ.get("WINEPREFIX"):  # Windows' folders have no such bit
            return
        place = scratch / "locked.nii.gz"
        images.write(place, images.read(fixed))
        place.chmod(stat.S_IREAD)
        images.write(place, images.read(fixed))

    def two_at_once() -> None:
        words = ("register", fixed, moving, *WORDS, "--out")
        running = [subprocess.Popen([*COMMAND, *words, scratch / f"two{i}"]) for i in range(2)]
        assert [process.wait() for process in running] == [0, 0]
        one, two = (images.read(scratch / f"two{i}" / "warped.nii.gz").array for i in range(2))
        assert (one == two).all()

    def backslashes() -> None:
        if os.sep != "\\":
            return
        shutil.copyfile(fixed, scratch / "back.nii.gz")
        assert images.read(f"{scratch}\\back.nii.gz").array.shape
        assert images.read(f"{scratch}/back.nii.gz".replace("\\", "/")).array.shape

    def interrupted() -> None:
        reached = []

        def at_a_fraction(progress: object) -> None:
            reached.append(progress)
            if len(reached) == 3:
                signal.raise_signal(signal.SIGINT)

        try:
            morphseek.register(fixed, moving, model="none", progress=at_a_fraction)
        except KeyboardInterrupt:
            return
        raise AssertionError("Ctrl-C did not end it")

    tries: dict[str, Callable[[], None]] = {
        "a blank and letters beyond ASCII": a_name("Grüße Ordner"),
        "letters of another script": a_name("日本語 データ"),
        "a long path": a_name("/".join("a long folder's name " + c * 35 for c in LONG)),
        "a file that is there already": replaced,
        "a folder that cannot be made": read_only,
        "two processes": two_at_once,
        "backslashes": backslashes,
        "Ctrl-C": interrupted,
    }
    failed = 0
    for name, attempt in tries.items():
        try:
            attempt()
            print(f"works: {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILS: {name}: {type(error).__name__}: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    {"make": make, "register": register, "rough": rough}[sys.argv[1]](*map(Path, sys.argv[2:]))
