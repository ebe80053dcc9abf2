"""What the commands over many images share: where the images are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import errors
from .options import PATH, Command

if TYPE_CHECKING:
    from ..cohort import Scans


def bids_options(command: Command) -> Command:
    """Give a command the options by which images are found in a BIDS folder."""
    options: tuple[Callable[[Command], Command], ...] = (
        click.option(
            "--bids", type=PATH, metavar="FOLDER", help="A BIDS folder whose images are taken."
        ),
        click.option(
            "--suffix", default="T1w", help="With --bids: the kind of image: T1w, T2w, FLAIR, ..."
        ),
        click.option(
            "--entity", multiple=True, metavar="KEY=VALUE[,VALUE]",
            help="With --bids: what the images' names must say, such as ses=01 or acq=mprage;"
            " several times for several.",
        ),
        click.option(
            "--label-entity", multiple=True, metavar="KEY=VALUE[,VALUE]",
            help="With --bids: what the label maps' names must say, such as desc=aseg.",
        ),
        click.option("--no-labels", is_flag=True, help="With --bids: take no label maps."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def found_scans(
    sources: tuple[Path, ...],
    bids: Path | None,
    suffix: str,
    entity: tuple[str, ...],
    label_entity: tuple[str, ...],
    no_labels: bool,
) -> Scans:
    """Return the images that the user names, or those of the BIDS folder."""
    from .. import cohort

    if bids is not None:
        if sources:
            raise errors.InvalidArgumentError(
                f"--bids {bids} finds the images itself; leave out {sources[0]}"
            )
        return cohort.find_bids(
            bids, suffix=suffix, entities=read_entities(entity, "--entity"), labels=not no_labels,
            label_entities=read_entities(label_entity, "--label-entity"),
        )  # fmt: skip
    if not sources:
        raise errors.InvalidArgumentError("there is no image; give files, a folder or --bids")
    return cohort.read_scans(sources[0] if len(sources) == 1 else sources)


def read_entities(given: tuple[str, ...], name: str) -> dict[str, str]:
    """Return what a user asks of names by KEY=VALUE."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or key in found:
            raise errors.InvalidArgumentError(
                f"{name} {text}: give KEY=VALUE, each key once, such as ses=01"
            )
        found[key] = value
    return found
