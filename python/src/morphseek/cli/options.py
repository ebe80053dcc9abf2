"""Options that several commands share, the engine's among them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from .._engine.table import is_flag, is_preset_file, limits, option_table
from ._command import Decorator, Option, together
from .output import NOT_GOOD

if TYPE_CHECKING:
    from ..studies import Item

PATH = click.Path(path_type=Path)
MAPS = ["linear", "cubic", "sinc", "nearest", "label"]

option = functools.partial(click.option, cls=Option)
_images = functools.partial(option, section="Images of a BIDS folder")
_running = functools.partial(option, section="Running")
_output = functools.partial(option, section="Output")


out_folder = functools.partial(
    option, "--out", type=PATH, required=True, metavar="FOLDER",
    help="Folder for the results; created if missing.",
)  # fmt: skip
out_file = functools.partial(
    option, "--out-file", "-o", "out", type=PATH, required=True, metavar="FILE"
)
json_option = _output(
    "--json", "as_json", is_flag=True,
    help="Print the result, or the error, as JSON on standard output.",
)  # fmt: skip
quiet_option = _output(
    "--quiet", "-q", is_flag=True, help="Print nothing but errors; no progress bar."
)


def strict_option(where: str = "a verdict is not good") -> Decorator:
    return _output(
        "--strict", is_flag=True,
        help=f"Exit with code {NOT_GOOD} where {where}; all results are written all the same.",
    )  # fmt: skip


def output_options(strict_where: str = "a verdict is not good") -> Decorator:
    return together(strict_option(strict_where), quiet_option, json_option)


running_options = together(
    _running(
        "--workers", type=click.IntRange(1),
        help="Pairs at a time; each gets its share of the cores unless --threads says otherwise."
        " By default as many as there are cores for, and memory; one with a network.",
    ),
    _running(
        "--scheduler", metavar="threads|processes|ADDRESS",
        help="How the workers run: in threads, the default, or in processes here; or, by its"
        " address, on a Dask cluster, one thread a pair (extra: pip install morphseek[dask]).",
    ),
    _running(
        "--no-resume", "resume", flag_value=False, default=True, show_default=False,
        help="Repeat what is finished.",
    ),
)  # fmt: skip
reference_option = option(
    "--reference", "-r", type=PATH,
    help="Image whose grid the output gets: the fixed one. Where it is left out, the transform's"
    " own, if it holds one.",
)  # fmt: skip
stage_option = option(
    "--stage", type=click.Choice(["initial", "final"]), default="final",
    help="initial: the rigid or affine part alone, where the transform has one apart. final: all"
    " of it.",
)  # fmt: skip
template_options = together(
    option(
        "--template", metavar="IMAGE", help="Register every image onto this one, which is fixed."
    ),
    option("--template-labels", "labels", type=PATH, help="Label map of the template."),
    option(
        "--template-mask", "mask", type=PATH,
        help="Mask of the template: where not zero, it counts.",
    ),
)  # fmt: skip
labels_csv_option = option(
    "--labels-csv", type=PATH, help="Names of the labels: columns id and name."
)
suffix_option = _images("--suffix", default="T1w", help="The kind of image: T1w, T2w, FLAIR, ...")
entity_option = _images(
    "--entity", multiple=True, metavar="KEY=VALUE[,VALUE]",
    help="What the images' names must say, such as ses=01 or acq=mprage; several times for more.",
)  # fmt: skip
bids_options = together(
    _images("--bids", type=PATH, metavar="FOLDER", help="A BIDS folder whose images are taken."),
    suffix_option,
    entity_option,
    _images(
        "--label-entity", multiple=True, metavar="KEY=VALUE[,VALUE]",
        help="What the label maps' names must say, such as desc=aseg.",
    ),
    _images("--no-labels", is_flag=True, help="Use no label maps."),
)  # fmt: skip


def read_items(
    sources: tuple[Path, ...], bids: Path | None, suffix: str, entity: tuple[str, ...],
    label_entity: tuple[str, ...], no_labels: bool,
) -> list[Item]:  # fmt: skip
    """Return the images that the user names, or those of the BIDS folder."""
    from .. import studies

    if bids is not None:
        if sources:
            raise errors.InvalidArgumentError(
                f"--bids {bids} finds the images itself; leave out {sources[0]}"
            )
        return studies.find_bids(
            bids, suffix=suffix, entities=read_entities(entity, "--entity"), labels=not no_labels,
            label_entities=read_entities(label_entity, "--label-entity"),
        )  # fmt: skip
    if not sources:
        raise errors.InvalidArgumentError("there is no image; give files, a folder or --bids")
    return studies.read_items(sources[0] if len(sources) == 1 else sources)


def read_entities(texts: tuple[str, ...], name: str) -> dict[str, str]:
    """Return what the user asks of names by KEY=VALUE."""
    entities: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key in entities:
            raise errors.InvalidArgumentError(
                f"{name} {text}: give KEY=VALUE, each key once, such as ses=01"
            )
        entities[key] = value
    return entities


def engine_options(**defaults: Any) -> Decorator:
    """Give a command the engine's options, with the engine's names, ranges and helps, and in the
    help those defaults that are the command's own.
    """
    save = option(
        "--save-preset", type=PATH, metavar="FILE.json", section="Registration",
        help="Also write the options that were set to a file, for --preset FILE.json.",
    )  # fmt: skip
    rows = ({**row, "default": defaults.get(row["name"], row["default"])} for row in option_table())
    return together(*map(_option, rows), save)


def common_options(report: str) -> Decorator:
    """Give a command what all have that register: its report, its silence, the engine's options."""
    page = _output(
        "--report", type=click.Choice(["full", "small", "none"]), default=report,
        help="What report.html is: interactive, up to 6 MB; one picture and the numbers, below 200"
        " kB; or not written.",
    )  # fmt: skip
    return together(engine_options(), page, quiet_option, json_option)


def _option(entry: dict[str, Any]) -> Decorator:
    """Return an option of the engine's table; its help is the first sentence of the table's."""
    name, choices = entry["name"], list(entry.get("choices", ()))
    flag = f"--{name.replace('_', '-')}"
    more: dict[str, Any] = {"default": None if entry.get("unset") else entry["default"]}
    least, most = limits(entry)
    if is_flag(entry):
        flag = f"{flag}/--no-{flag[2:]}"
        more = {"default": False, "show_default": False}
    elif "prefix" in entry or "number" in entry:  # the engine knows what else it takes
        more["shell_complete"] = _completion(choices)
        words = [*choices, *([f"{entry['prefix']}..."] if "prefix" in entry else [])]
        words += [f"{entry['number']} from {least:g} to {most:g}"] if "number" in entry else []
        more |= {"type": str, "metavar": "|".join(words), "callback": _checked}
    elif name == "preset":
        words = [*choices, "FILE.json"]
        more |= {"type": str, "metavar": "|".join(words), "callback": _checked_preset}
        more["shell_complete"] = _completion(choices, or_file=True)
    elif choices:
        more["type"] = click.Choice(choices)
    elif entry["type"] == "string":
        more |= {"type": str, "metavar": "NAME|FILE.onnx"}
        if name == "cache":  # of two, the last one on the line counts
            more |= {"metavar": "FOLDER", "callback": lambda ctx, parameter, value: value or None}
    elif entry["type"] == "int":
        more["type"] = click.IntRange(least, most)
    else:
        more["type"] = click.FloatRange(least, most, min_open=entry.get("unset", False))
    first, stop, _ = entry["help"].partition(". ")
    one = option(flag, name, section="Registration", help=first + stop.strip(), **more)
    if name != "cache":
        return one
    none = {"flag_value": "", "callback": more["callback"], "default": None}
    return together(
        one,
        option("--no-cache", name, section="Registration", help="Keep none: the default.", **none),
    )


def _completion(words: list[str], or_file: bool = False) -> Callable[..., list[Any]]:
    """Return what completes an option's value by the tab key: words, and a file's name."""

    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        known = [CompletionItem(word) for word in words if word.startswith(begun)]
        return known + ([CompletionItem(begun, type="file")] if or_file else [])

    return complete


def _checked(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return an option's value if the engine takes it."""
    if value == parameter.default:
        return value
    from .._engine import bindings

    try:
        bindings.check_options({str(parameter.name): value})
    except errors.InvalidArgumentError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
    return value


def _checked_preset(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return a preset of the engine's, or the name of a file, which is read later."""
    return value if is_preset_file(value) else _checked(ctx, parameter, value)


study_options = together(running_options, common_options("small"))
