"""Make a function a command: options in sections, one way to print, one to fail."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Callable
from typing import Any

import click

from .._engine.table import in_python, is_preset_file, option_table
from .._typed import COMMAND
from ._app import app, reported
from .output import Reply

_SECTIONS = ("Options", "Images of a BIDS folder", "Registration", "Running", "Output")
_BIDS = ("bids", "suffix", "entity", "label_entity", "no_labels")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*decorators: Decorator) -> Decorator:
    """Return decorators as one; the first one's option comes first."""
    return lambda function: functools.reduce(lambda f, d: d(f), reversed(decorators), function)


class Option(click.Option):
    """An option that stands in a section of the help."""

    def __init__(self, *names: Any, section: str = "Options", **how: Any):
        super().__init__(*names, **how)
        self.section = section


class _Command(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _SECTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and isinstance(parameter, click.Option):
                sections[getattr(parameter, "section", "Output")].append(record)  # --help has none
        for section, records in sections.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


def command(
    name: str, *parameters: Decorator, group: click.Group = app
) -> Callable[[Callable[..., Reply]], click.Command]:
    """Make a function a command that prints its reply.

    The function takes the parameters by name. In place of ``quiet`` it takes ``progress``, and in
    place of the engine's options ``options``, those that the user set; in place of those of a BIDS
    folder ``where``.
    """

    def make(function: Callable[..., Reply]) -> click.Command:
        @functools.wraps(function)
        def run(as_json: bool = False, **values: Any) -> None:
            with reported(as_json, goes_on="resume" in values) as notes:
                quiet = values.get("quiet", False)
                if "quiet" in values:
                    values["progress"] = not (values.pop("quiet") or as_json)
                if "save_preset" in values:
                    values["options"] = set_options(values)
                if "bids" in values:
                    values["where"] = {name: values.pop(name) for name in _BIDS}
                token = COMMAND.set(command_line())
                try:
                    reply = function(**values)
                finally:
                    COMMAND.reset(token)
                if as_json:
                    if notes and isinstance(reply.facts, dict):
                        reply.facts.setdefault("warnings", notes)
                    print(json.dumps(reply.facts))
                else:
                    reply.show(quiet)
                if reply.exit_code:
                    raise click.exceptions.Exit(reply.exit_code)

        return group.command(name, cls=_Command)(together(*parameters)(run))

    return make


def set_options(values: dict[str, Any]) -> dict[str, Any]:
    """Take the engine's options out of a command's values; return those that the user set, and
    those of a preset's file. Write them to the file that ``save_preset`` names.
    """
    source = click.get_current_context().get_parameter_source
    names = [one["name"] for one in option_table() if one["name"] in values]
    plain = {name: values.pop(name) for name in names}
    options = {
        name: in_python(name, value)
        for name, value in plain.items()
        if source(name) is not click.core.ParameterSource.DEFAULT
    }
    path, is_file = values.pop("save_preset"), is_preset_file(options.get("preset"))
    if is_file or path is not None:
        from .._engine.options import plain_options, save_preset

        options = plain_options(options) if is_file else options
        if path is not None:
            save_preset(path, **options)
    return options


def command_line() -> str:
    """Return what the user typed, as a shell of the system takes it, for reports."""
    words = sys.argv[1:]
    if sys.platform == "win32":  # whose shells know double quotes alone
        import subprocess

        return "morphseek " + subprocess.list2cmdline(words)
    return "morphseek " + shlex.join(words)
