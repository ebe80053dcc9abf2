"""Registers the same pairs with MorphSeek and its peers, and writes one table: python peers.py
--help.

Every registration is a process of its own, from two image files to a transform on disk. The
operating system measures its wall-clock time, CPU time and peak memory. All transforms are scored
by the same code. Each result is one JSON file: an interrupted run can be continued, and the table
can be made again without a run.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import measure
import pairs as data_sets
import scoring
import SimpleITK as sitk
import summary
from methods import METHODS, Job, Method

from morphseek._streams import open_streams
from morphseek.errors import MorphSeekError

HERE = Path(__file__).parent
UNREGISTERED = "unregistered"


@dataclasses.dataclass(frozen=True)
class Probe:
    """Whether a method runs here, its version, and the cost of its start: the import that each of
    its processes pays.

    It is also the warm-up, which reads files from disk for the first time.
    """

    version: str
    seconds: float
    cpu_seconds: float
    error: str = ""


def probe(method: Method, threads: int) -> Probe:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        for _ in range(2):  # the first reads the disk, the second counts
            cost = _step(method, "version", threads, 300, log)
        last = last_line(log)
    if cost.timed_out:
        last = "it did not start within 300 s"
    failed = cost.exit_status != 0
    return Probe("" if failed else last, cost.seconds, cost.cpu_seconds, last if failed else "")


def run_pair(
    method: Method, data: data_sets.DataSet, fixed: str, moving: str, threads: int, timeout: float
) -> dict[str, Any]:
    """Register one pair, score it, and return the row. A failure or a timeout is scored like the
    unregistered pair, and the row says why.
    """
    with tempfile.TemporaryDirectory() as folder:
        row, field = carry_out(
            method,
            Job(data.image(fixed), data.image(moving), Path(folder), threads, data.two_modalities),
            timeout,
        )
    return {**row, **scoring.score(data.labels(fixed), data.labels(moving), field)}


def carry_out(method: Method, job: Job, timeout: float) -> tuple[dict[str, Any], sitk.Image | None]:
    """Register in a process of its own; return how it ended with its cost, and the displacement in
    mm, LPS, on the fixed grid.

    The displacement is None if the method failed or was killed after `timeout` seconds; the row
    says why.
    """
    log = job.folder / "log"
    cost = _step(method, "register", job.threads, timeout, log, job)
    row = {"status": "ok", "reason": "", **dataclasses.asdict(cost)}
    if not cost.timed_out and cost.exit_status == 0:
        converted = _step(method, "field", job.threads, timeout, log, job)
        if converted.exit_status == 0:
            return row, sitk.ReadImage(str(job.folder / "field.mha"))
    if cost.timed_out:
        return {**row, "status": "timeout", "reason": f"killed after {timeout:g} s"}, None
    return {**row, "status": "failed", "reason": last_line(log)}, None


def _step(
    method: Method, step: str, threads: int, timeout: float, log: Path, job: Job | None = None
) -> measure.Cost:
    command = [sys.executable, "-m", "methods", step, method.name]
    if job is not None:
        command.append(json.dumps(dataclasses.asdict(job), default=str))
    return measure.run(command, threads=threads, timeout=timeout, log=log, folder=HERE)


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def chosen(names: str) -> list[Method]:
    """Return the methods of a comma-separated list; "all", "ours" and "peers" name several."""
    groups = {"all": lambda m: True, "ours": lambda m: m.ours, "peers": lambda m: not m.ours}
    found: dict[str, Method] = {}
    for name in names.split(","):
        if name in groups:
            found.update({m.name: m for m in METHODS.values() if groups[name](m)})
        elif name in METHODS:
            found[name] = METHODS[name]
        else:
            raise click.BadParameter(
                f"there is no method {name!r}; there are {', '.join(METHODS)}, and all, ours,"
                " peers",
                param_hint="--methods",
            )
    return list(found.values())


def run(
    sets: list[data_sets.DataSet], methods: list[Method], out: Path, threads: int, timeout: float
) -> None:
    """Run the registrations that `out` lacks, and write the table."""
    write(out / "run.json", {"machine": measure.machine(), "threads": threads})
    probes = {}
    for method in methods:
        probes[method.name] = found = probe(method, threads)
        click.echo(f"{method.name}: {found.version or 'NOT RUN: ' + found.error}")
    _note_left_out(out / "left_out.json", sets, methods, probes)
    for data in sets:
        fit = [
            m
            for m in methods
            if not probes[m.name].error
            and m.only in ("", data.name)
            and not (m.one_modality and data.two_modalities)
        ]
        for fixed, moving in data.pairs:
            folder = out / "rows" / data.name / f"{fixed}--{moving}".replace("/", "_")
            folder.mkdir(parents=True, exist_ok=True)
            pair = {"data": data.name, "fixed": fixed, "moving": moving}
            path = folder / f"{UNREGISTERED}.json"
            if not path.exists():
                write(
                    path,
                    {
                        "method": UNREGISTERED,
                        **pair,
                        "status": "ok",
                        **scoring.score(data.labels(fixed), data.labels(moving)),
                    },
                )
            # all methods on one pair before the next, so that an interrupted run has equal pairs
            for method in fit:
                found = probes[method.name]
                settings = {"how": method.how, "version": found.version, "threads": threads}
                path = folder / f"{method.name}.json"
                row = json.loads(path.read_text()) if path.exists() else {}
                kept = settings.items() <= row.items()
                if not kept:
                    start = {"start_seconds": found.seconds, "start_cpu_seconds": found.cpu_seconds}
                    measured = run_pair(method, data, fixed, moving, threads, timeout)
                    row = {
                        "method": method.name,
                        "ours": method.ours,
                        **pair,
                        **settings,
                        **start,
                        **_size(data.image(fixed)),
                        **measured,
                    }
                    write(path, row)
                ended = f"{row['status']} {row['reason']}".strip()
                figures = f"Dice {row['mean_dice']:.3f}, {row['cpu_seconds']:.1f} CPU s"
                click.echo(
                    f"{'kept' if kept else 'ran'} {data.name} {fixed} <- {moving} {method.name}:"
                    f" {ended}, {figures}"
                )
    summary.write(out)


def _note_left_out(
    path: Path, sets: list[data_sets.DataSet], methods: list[Method], probes: dict[str, Probe]
) -> None:
    """Keep for the table the reason why a method does not run, also for later runs that do not try
    it again.
    """
    before = json.loads(path.read_text()) if path.exists() else {}
    left_out = {name: why for name, why in before.items() if name not in probes}
    left_out.update({name: found.error for name, found in probes.items() if found.error})
    for method, data in itertools.product(methods, sets):
        if method.one_modality and data.two_modalities:
            left_out.setdefault(
                method.name,
                f"not on {data.name}: it compares intensities directly, which two modalities do not"
                " allow",
            )
    write(path, left_out)


def _size(path: Path) -> dict[str, Any]:
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    return {"fixed_size": list(reader.GetSize())}


def write(path: Path, content: dict[str, Any]) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(content, file, indent=1)
    Path(file.name).replace(path)


@click.command(context_settings={"show_default": True})
@click.option(
    "--out",
    type=Path,
    required=True,
    help="Folder of the results: rows/, table.md, table.json, *.png. Old rows are kept.",
)
@click.option(
    "--data",
    multiple=True,
    help="NAME=FOLDER or NAME=FOLDER:SUBSET; may be given again. Without it: made-up torsos.",
)
@click.option(
    "--two-modalities",
    multiple=True,
    help="Name of a data set whose pairs are of two modalities; may be given again.",
)
@click.option(
    "--methods", default="all", help="Names, comma-separated; all, ours and peers stand for many."
)
@click.option(
    "--pairs",
    default=0,
    help="Take only the first pairs of each data set; 0 takes all (of the torsos: 3).",
)
@click.option("--phantom-size", default=96, help="Voxels along each axis of the made-up torsos.")
@click.option("--threads", default=1, help="For every method.")
@click.option(
    "--timeout",
    default=1800,
    type=float,
    help="Seconds after which a registration is killed and counts as failed.",
)
@click.option(
    "--table-only/--no-table-only", help="Make the table again from the rows; run nothing."
)
def main(
    out: Path,
    data: tuple[str, ...],
    two_modalities: tuple[str, ...],
    methods: str,
    pairs: int,
    phantom_size: int,
    threads: int,
    timeout: float,
    table_only: bool,
) -> None:
    """Register the same pairs with MorphSeek and its peers, and write one table."""
    out = out.resolve()
    if table_only:
        if not (out / "run.json").exists():
            raise click.BadParameter(f"{out} has no results of this script", param_hint="--out")
        summary.write(out)
        return
    selected = chosen(methods)
    out.mkdir(parents=True, exist_ok=True)
    try:
        sets = [
            data_sets.read(spec, pairs or None, spec.partition("=")[0] in two_modalities)
            for spec in data
        ]
    except (ValueError, MorphSeekError) as error:
        raise click.BadParameter(str(error), param_hint="--data") from None
    run(
        sets or [data_sets.make_phantom(out / "phantom", pairs or 3, phantom_size)],
        selected,
        out,
        threads,
        timeout,
    )


if __name__ == "__main__":
    open_streams()
    main()
