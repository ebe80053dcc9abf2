"""Measures the CPU seconds of the command on a pair beside greedy's.

    python python/benchmarks/command.py FIXED MOVING --fixed-labels FL --moving-labels ML

The runs alternate, so that other work on the machine affects all of them; the least of each counts.
greedy needs its extra: pip install morphseek[benchmark], or --greedy with a Python that has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

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


def cpu_seconds(arguments: list[str]) -> float:
    """Run a command; return its CPU time, its end included."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            out.seek(0)
            raise SystemExit(f"{' '.join(arguments)} failed:\n{out.read()}")
    return used.ru_utime + used.ru_stime


def measure(
    images: tuple[Path, Path], labels: tuple[Path, Path] | None, repeats: int, greedy: str
) -> dict[str, float]:
    """Return the least CPU seconds of "command" and of "greedy", over runs by turns. `greedy` is a
    Python that has picsl-greedy; empty: without it.
    """
    with tempfile.TemporaryDirectory() as folder:
        fixed, moving = map(str, images)
        ours = [sys.executable, "-m", "morphseek", "register", fixed, moving]
        ours += ["--threads", "1", "--out", f"{folder}/ours"]
        if labels is not None:
            ours += ["--fixed-labels", str(labels[0]), "--moving-labels", str(labels[1])]
        programs = {"command": ours}
        if greedy:
            programs["greedy"] = [greedy, "-c", GREEDY, fixed, moving, folder]
        runs = [{name: cpu_seconds(of) for name, of in programs.items()} for _ in range(repeats)]
    return {name: min(run[name] for run in runs) for name in programs}


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
    """Print a row for a table: the command, greedy, and the ratio of both."""
    both = (fixed_labels, moving_labels) if fixed_labels and moving_labels else None
    least = measure((fixed, moving), both, repeats, greedy)
    click.echo(f"| {' | '.join(least)} |")
    click.echo(f"|{'---:|' * len(least)}")
    click.echo(f"| {' | '.join(f'{seconds:.2f}' for seconds in least.values())} |")
    if greedy:
        click.echo(f"\ngreedy takes {least['greedy'] / least['command']:.1f} times as long")


if __name__ == "__main__":
    main()
