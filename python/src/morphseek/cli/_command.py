"""Make a function a command: options in sections, one way to print, one to fail."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from .._engine.table import in_python, is_preset_file, option_table
from ._app import app, reported
from .output import Reply

_SECTIONS = ("Options", "Images of a BIDS folder", "Registration", "Running", "Output")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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
    name: str, *parameters: Decorator, group: click.Group = app, cancelled: str = ""
) -> Callable[[Callable[..., Reply]], click.Command]:
    """Make a function a command that prints its reply.

    The function takes the parameters by name. In place of ``quiet`` it takes ``progress``, and in
    place of the engine's options ``options``: those that the user set. ``cancelled`` says how to go
    on after Ctrl-C.
    """

    def make(function: Callable[..., Reply]) -> click.Command:
        @functools.wraps(function)
        def run(as_json: bool = False, **given: Any) -> None:
            with reported(as_json, cancelled) as notes:
                quiet = given.get("quiet", False)
                if "quiet" in given:
                    given["progress"] = not (given.pop("quiet") or as_json)
                if "save_preset" in given:
                    given["options"] = set_options(given)
                reply = function(**given)
                if as_json:
                    if notes and isinstance(reply.facts, dict):
                        reply.facts.setdefault("warnings", notes)
                    print(json.dumps(reply.facts))
                else:
                    reply.show(quiet)
                if reply.exit_code:
                    raise click.exceptions.Exit(reply.exit_code)

        decorated: Callable[..., Any] = run
        for parameter in reversed(parameters):
            decorated = parameter(decorated)
        return group.command(name, cls=_Command)(decorated)

    return make


def set_options(given: dict[str, Any]) -> dict[str, Any]:
    """Take the engine's options out of what a command is given; return those that the user set, and
    those of a preset's file. Write them to the file that ``save_preset`` names.
    """
    source = click.get_current_context().get_parameter_source
    values = {one["name"]: given.pop(one["name"]) for one in option_table() if one["name"] in given}
    found = {
        name: in_python(name, value)
        for name, value in values.items()
        if source(name) is not click.core.ParameterSource.DEFAULT
    }
    path = given.pop("save_preset")
    if is_preset_file(found.get("preset")):
        from .._engine.options import plain_options

        found = plain_options(found)
    if path is not None:
        from .._engine.options import save_preset

        save_preset(path, **found)
    return found
