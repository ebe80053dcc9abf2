"""morphseek bids"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import errors
from ..verdict import tally
from ._command import command
from .options import (
    PATH,
    entity_option,
    option,
    read_entities,
    study_options,
    suffix_option,
    template_options,
)
from .output import Reply, aligned, failures, reply


@command(
    "bids",
    click.argument("dataset", type=PATH, metavar="BIDS_DIR"),
    click.argument("out", type=PATH, metavar="OUTPUT_DIR"),
    click.argument("level", type=click.Choice(["participant", "group"])),
    template_options,
    option(
        "--space", default="", show_default=False,
        help="Name of the template in the outputs' names, letters and digits; by default read off"
        " its file's name.",
    ),
    option(
        "--participant-label", "--participant_label", "participants", multiple=True,
        metavar="LABEL[,LABEL]", help="These subjects alone, with or without sub-.",
    ),
    option(
        "--session-label", "--session_label", "sessions", multiple=True, metavar="LABEL[,LABEL]",
        help="These sessions alone, with or without ses-.",
    ),
    suffix_option,
    entity_option,
    option(
        "--work", "-w", type=PATH, help="Folder for a folder a registration; else OUTPUT_DIR/work."
    ),
    study_options,
)  # fmt: skip
def bids(
    dataset: Path, out: Path, level: str, template: str | None, participants: tuple[str, ...],
    sessions: tuple[str, ...], suffix: str, entity: tuple[str, ...],
    options: dict[str, Any], progress: bool, **how: Any,
) -> Reply:  # fmt: skip
    """Register the images of a BIDS dataset onto a template, as a BIDS App.

    \b
    morphseek bids BIDS_DIR OUTPUT_DIR participant --template IMAGE
    morphseek bids BIDS_DIR OUTPUT_DIR group

    participant writes a derivative dataset with the names of fMRIPrep:
    sub-01/anat/sub-01_from-T1w_to-SPACE_mode-image_xfm.h5 brings the image onto the template, and
    sub-01_from-SPACE_to-T1w_mode-image_xfm.h5 back; the images in space-SPACE; a page a
    registration. The same command goes on after an interruption. group writes group_xfm.tsv, a row
    a transform, worst verdict first.
    """
    from .. import studies

    if level == "group":
        table, problems = studies.write_group(out)
        code = errors.InputUnreadableError.exit_code if problems else 0
        facts = {"table": str(table), "problems": problems}
        return reply(facts, [f"wrote {table}"], code, [(f"morphseek: {p}", None) for p in problems])
    if template is None:
        raise errors.InvalidArgumentError(
            "--template IMAGE is missing: give the image to register onto"
        )
    wanted = read_entities(entity, "--entity")
    wanted |= {k: ",".join(v) for k, v in (("sub", participants), ("ses", sessions)) if v}
    items = studies.find_bids(dataset, suffix=suffix, entities=wanted)
    study, paths = studies.register_bids(items, template, out, progress=progress, **how, **options)
    facts = {**study.to_dict(), "transforms": [str(path) for path in paths]}
    rows = [("transforms", str(len(paths))), ("results", str(out))]
    rows.append(("verdict", tally(study.summary()["verdict"])))
    alerts = [] if progress else failures(study.rows)  # which has told of them
    return reply(facts, aligned(rows), study.exit_code, alerts)
