"""Measures the CPU seconds of the command on a pair, phase by phase, beside greedy's.

    python python/benchmarks/command.py FIXED MOVING --fixed-labels FL --moving-labels ML

The runs alternate, so that other work on the machine affects all of them; the least of each counts.
greedy needs its extra: pip install morphseek[benchmark], or --greedy with a Python that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

PHASES = ("start", "read", "engine", "score", "page", "write")
# affine, then deformable, by the settings of its tutorial; methods/greedy.py compares its results
GREEDY = """import sys
from picsl_greedy import Greedy3D
fixed, moving, out = sys.argv[1:]
common = f"-i {fixed} {moving} -threads 1 -m NCC 2x2x2 -n 100x50x10"
greedy = Greedy3D()
greedy.execute(f"{common} -a -ia-image-centers -o {out}/affine.mat")
greedy.execute(f"{common} -it {out}/affine.mat -o {out}/warp.nii.gz")
chain = f"{out}/warp.nii.gz {out}/affine.mat"
greedy.execute(f"-rf {fixed} -rm {moving} {out}/warped.nii.gz -r {chain}")
"""


def cpu_seconds(arguments: list[str]) -> tuple[float, str]:
    """Run a command; return its CPU time, its end included, and what it printed."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        out.seek(0)
        text = out.read()
    if status:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{text}")
    return used.ru_utime + used.ru_stime, text


def measure(
    images: tuple[Path, Path], labels: tuple[Path, Path] | None, repeats: int, greedy: str
) -> dict[str, float]:
    """Return the least CPU seconds of each phase, of "all" and of "greedy", over runs by turns.
    `greedy` is a Python that has picsl-greedy; empty: without it.
    """
    least: dict[str, float] = {}

    def keep(name: str, seconds: float) -> None:
        least[name] = min(seconds, least.get(name, seconds))

    with tempfile.TemporaryDirectory() as folder:
        fixed, moving = map(str, images)
        ours = [sys.executable, "-m", "morphseek", "register", fixed, moving]
        ours += ["--threads", "1", "--out", f"{folder}/ours"]
        if labels is not None:
            ours += ["--fixed-labels", str(labels[0]), "--moving-labels", str(labels[1])]
        theirs = [greedy, "-c", GREEDY, fixed, moving, folder]
        for _ in range(repeats):
            seconds, text = cpu_seconds([*ours, "--json"])
            keep("all", seconds)
            for phase, each in json.loads(text.splitlines()[-1])["cpu_seconds"].items():
                keep(phase, each)
            if greedy:
                keep("greedy", cpu_seconds(theirs)[0])
    return least


@click.command(context_settings={"show_default": True})
@click.argument("fixed", type=Path)
@click.argument("moving", type=Path)
@click.option("--fixed-labels", type=Path, help="With the moving ones: scores.")
@click.option("--moving-labels", type=Path, help="As fixed-labels.")
@click.option("--repeats", default=5, type=click.IntRange(1), help="Runs of each, by turns.")
@click.option(
    "--greedy", default=sys.executable, help="Python that has picsl-greedy; empty: without it."
)
def main(
    fixed: Path,
    moving: Path,
    fixed_labels: Path | None,
    moving_labels: Path | None,
    repeats: int,
    greedy: str,
) -> None:
    """Print a row for a table: the phases, the total, greedy, and the ratio of both."""
    both = (fixed_labels, moving_labels) if fixed_labels and moving_labels else None
    least = measure((fixed, moving), both, repeats, greedy)
    names = [*PHASES, "all", *(["greedy"] if greedy else [])]
    click.echo(f"| {' | '.join(names)} |")
    click.echo(f"|{'---:|' * len(names)}")
    click.echo(f"| {' | '.join(f'{least[name]:.2f}' for name in names)} |")
    if greedy:
        click.echo(f"\ngreedy takes {least['greedy'] / least['all']:.1f} times as long")


if __name__ == "__main__":
    main()
