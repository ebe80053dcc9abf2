"""morphseek bids"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .. import errors
from ..verdict import tally
from ._app import app, reported
from .cohorts import read_entities
from .options import PATH, changed, command_line, common_options, workers_option
from .output import print_rows, say


@app.command("bids")
@click.argument("dataset", type=PATH, metavar="BIDS_DIR")
@click.argument("out", type=PATH, metavar="OUTPUT_DIR")
@click.argument("level", type=click.Choice(["participant", "group"]))
@click.option("--to", "template", metavar="TEMPLATE", help="The template: it is fixed.")
@click.option(
    "--space",
    help="Name of the template in the outputs' names, letters and digits; by default read off its"
    " file's name.",
)
@click.option("--to-labels", type=PATH, help="Label map of the template: carried to each image.")
@click.option("--to-mask", type=PATH, help="Mask of the template: where not zero, it counts.")
@click.option(
    "--participant-label", "--participant_label", "participants", multiple=True,
    metavar="LABEL[,LABEL]", help="These subjects alone, with or without sub-.",
)  # fmt: skip
@click.option(
    "--session-label", "--session_label", "sessions", multiple=True, metavar="LABEL[,LABEL]",
    help="These sessions alone, with or without ses-.",
)  # fmt: skip
@click.option("--suffix", default="T1w", help="The kind of image: T1w, T2w, FLAIR, ...")
@click.option(
    "--entity", multiple=True, metavar="KEY=VALUE[,VALUE]",
    help="What the images' names must say, such as acq=mprage; several times for several.",
)  # fmt: skip
@click.option(
    "--work", "-w", type=PATH, help="Folder for a folder a registration; else OUTPUT_DIR/work."
)
@workers_option
@common_options("small")
def bids_command(
    dataset: Path,
    out: Path,
    level: str,
    template: str | None,
    space: str | None,
    to_labels: Path | None,
    to_mask: Path | None,
    participants: tuple[str, ...],
    sessions: tuple[str, ...],
    suffix: str,
    entity: tuple[str, ...],
    work: Path | None,
    workers: int,
    report: Any,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Register the images of a BIDS dataset onto a template, as a BIDS App.

    \b
    morphseek bids BIDS_DIR OUTPUT_DIR participant --to TEMPLATE
    morphseek bids BIDS_DIR OUTPUT_DIR group

    participant writes a derivative dataset with the names of fMRIPrep:
    sub-01/anat/sub-01_from-T1w_to-SPACE_mode-image_xfm.h5 brings the image onto the template, and
    sub-01_from-SPACE_to-T1w_mode-image_xfm.h5 back; the images in space-SPACE; a page a
    registration. The same command goes on after an interruption. group writes group_xfm.tsv, a row
    a transform, worst verdict first.
    """
    with reported(as_json, "finished registrations are kept, and the same command goes on"):
        from .. import cohort
        from ..cohort import derivatives
        from ..cohort.batch import run_list

        if level == "group":
            path = cohort.write_group(out)
            if as_json:
                print(json.dumps({"table": str(path)}))
            elif not quiet:
                say(f"wrote {path}")
            return
        if template is None:
            raise errors.InvalidArgumentError(
                "--to TEMPLATE is missing: give the image to register onto"
            )
        space = space or cohort.space_of(template)
        wanted = read_entities(entity, "--entity")
        for key, given in (("sub", participants), ("ses", sessions)):
            if given:
                wanted[key] = ",".join(given)
        scans = cohort.find_bids(dataset, suffix=suffix, entities=wanted)
        if not quiet and not as_json:
            for note in scans.notes:
                say(f"note: {note}", "yellow", to_errors=True)
        derivatives.check_space(space, scans)
        folder = work or out / "work"
        done = run_list(
            cohort.pairs_to(scans, template, labels=to_labels, mask=to_mask),
            folder,
            labels_back=to_labels is not None,
            workers=workers,
            report=report,
            command=command_line(),
            progress=not (quiet or as_json),
            options=changed(options),
            shared=True,
        )
        made = cohort.write_derivatives(scans, done, folder, out, space, str(template))
        if as_json:
            print(json.dumps({**done.to_dict(), "transforms": [str(path) for path in made]}))
        elif not quiet:
            rows = [("transforms", str(len(made))), ("results", str(out))]
            print_rows([*rows, ("verdict", tally(done.summary()["verdict"]))])
        if done.exit_code:
            raise click.exceptions.Exit(done.exit_code)
