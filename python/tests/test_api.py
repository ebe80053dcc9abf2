"""Compares the public names with the promised ones in api.txt. After a check of the differences:
python tests/test_api.py > tests/api.txt. docs/stability.md says what a difference means.
"""

import doctest
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import morphseek
from morphseek.cli import app

PROMISED = Path(__file__).with_name("api.txt")
MODULES = ("images", "info", "phantom", "presets", "report", "scoring", "studies", "transforms")


def parameters(thing: Any) -> str:
    """Return names, kinds and defaults; more exact annotations would break nobody's code."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    bare = [
        each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()
    ]
    return str(inspect.Signature(bare))


def members(thing: type) -> Iterator[tuple[str, Any]]:
    """Return the public members that a class defines itself, or has of a base that is private."""
    rooms = (importlib.import_module(f"morphseek.{module}") for module in MODULES)
    public = {*morphseek.__all__}.union(*(room.__all__ for room in rooms))
    bases = (base for base in thing.__mro__ if base.__module__.startswith("morphseek."))
    own = {thing, *(base for base in bases if base.__name__ not in public)}
    for member in sorted({name for base in own for name in vars(base)}):
        value = inspect.getattr_static(thing, member)
        if not member.startswith("_"):
            bound = isinstance(value, (staticmethod, classmethod))
            yield member, getattr(thing, member) if bound else value


def lines_of(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing):
        yield f"{name}{'' if issubclass(thing, BaseException) else parameters(thing)}"
        for member, value in members(thing):
            yield f"{name}.{member}{parameters(value) if callable(value) else ''}"
    elif not isinstance(thing, ModuleType):
        yield f"{name}{parameters(thing) if callable(thing) else ''}"


def test_everything_public_has_an_example_whose_output_is_compared():
    rooms = [morphseek, *(importlib.import_module(f"morphseek.{module}") for module in MODULES)]
    public = {name: getattr(room, name) for room in rooms for name in room.__all__}
    for name, thing in list(public.items()):
        if inspect.isclass(thing):
            public |= {f"{name}.{member}": value for member, value in members(thing)}
    said = {
        name: inspect.getdoc(thing) or ""
        for name, thing in public.items()
        if inspect.isroutine(thing) or inspect.isclass(thing)
    }
    examples = {name: doctest.DocTestParser().get_examples(doc) for name, doc in said.items()}
    assert [n for n, each in examples.items() if not any(one.want for one in each)] == []


def python_lines() -> Iterator[str]:
    for name in sorted(morphseek.__all__):
        yield from lines_of(f"morphseek.{name}", getattr(morphseek, name))
    for module in MODULES:
        room = importlib.import_module(f"morphseek.{module}")
        for name in sorted(room.__all__):
            yield from lines_of(f"morphseek.{module}.{name}", getattr(room, name))
    for failure in morphseek.errors.TABLE:
        yield f"morphseek.errors.{failure['python']} {failure['code']} {failure['exit']}"


def command_lines(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command)
    shown = [o for p in command.params for o in (*p.opts, *p.secondary_opts)]
    yield f"$ {name} {' '.join(sorted(shown))}".rstrip()
    if isinstance(command, click.Group):
        for each in sorted(command.list_commands(context)):
            found = command.get_command(context, each)
            assert found is not None
            yield from command_lines(found, f"{name} {each}")


def found() -> list[str]:
    return [*python_lines(), *command_lines(app, "morphseek")]


def test_what_was_promised_is_there():
    promised, there = PROMISED.read_text(encoding="utf-8").splitlines(), found()
    assert len(promised) > 150
    broken = [line for line in promised if line not in there]
    new = [line for line in there if line not in promised]
    assert (broken, new) == ([], []), "docs/stability.md, 'When a promise changes'"


def test_a_room_shows_its_public_names_alone():
    for module in ("", "errors", *MODULES):
        room = importlib.import_module(f"morphseek.{module}".rstrip("."))
        shown = {name for name in dir(room) if not name.startswith("__")}
        assert shown == {*room.__all__} - {"__version__"}, module


def test_what_is_public_is_documented():
    """Every public class, function and method says what it does, and every parameter of the
    functions in ``morphseek`` itself is listed.
    """
    bare = []
    for module in ("", *MODULES):
        room = importlib.import_module(f"morphseek.{module}".rstrip("."))
        for name in room.__all__:
            thing = getattr(room, name)
            if inspect.isclass(thing):
                bare += [
                    f"{name}.{member}"
                    for member, value in vars(thing).items()
                    if not member.startswith("_")
                    and (inspect.isfunction(value) or isinstance(value, property))
                    and not inspect.getdoc(getattr(thing, member))
                ]
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and not inspect.getdoc(thing):
                bare.append(name)
            if inspect.isfunction(thing) and not module:
                text = inspect.getdoc(thing) or ""
                kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
                listed = inspect.signature(thing).parameters.values()
                bare += [
                    f"{name}({each.name})"
                    for each in listed
                    if each.kind not in kinds and each.name not in text
                ]
    assert bare == []


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in found()))
