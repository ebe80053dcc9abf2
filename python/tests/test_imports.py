"""Which module may import which: the rules between the subpackages, and no import cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "morphseek"
# what training may use of the rest: register, errors, images, and the door to what is private
OPEN = {"", "errors", "images", "_shared"}


class Import(NamedTuple):
    importer: str
    target: str
    name: str
    """The name that is imported from the target; empty for the module itself."""
    line: int
    lazy: bool
    """Whether the import is inside a function, or only for the type checker."""


def module_of(path: Path) -> str:
    parts = ("morphseek", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = [path for path in sorted(SOURCE.rglob("*.py")) if "_native" not in path.parts]
FILES = {module_of(path): path for path in SOURCES}


def is_typing(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports_of(module: str) -> Iterator[Import]:
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(module, alias.name, "", child.lineno, lazy)
            elif isinstance(child, ast.ImportFrom):
                target = child.module or ""
                if child.level:
                    base = package.split(".")[: len(package.split(".")) - child.level + 1]
                    target = ".".join([*base, *target.split(".")]).rstrip(".")
                for alias in child.names:
                    whole = f"{target}.{alias.name}"
                    if whole in FILES:
                        yield Import(module, whole, "", child.lineno, lazy)
                    else:
                        yield Import(module, target, alias.name, child.lineno, lazy)
            else:
                inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                typing = isinstance(child, ast.If) and is_typing(child)
                yield from walk(child, lazy or inside or typing)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False)


IMPORTS = [found for module in FILES for found in imports_of(module)]


def within(module: str, room: str) -> bool:
    return module == f"morphseek.{room}" or module.startswith(f"morphseek.{room}.")


def test_the_rules_see_something():
    assert len(FILES) > 100 and len(IMPORTS) > 500
    assert any(i.target == "morphseek.images.grid" for i in IMPORTS)


def test_only_the_command_imports_training():
    for i in IMPORTS:
        if within(i.target, "training") and not within(i.importer, "training"):
            assert i.importer == "morphseek.cli.train" and i.lazy, i


def test_training_uses_public_rooms():
    for i in IMPORTS:
        ours = i.target.split(".")[0] == "morphseek"
        if within(i.importer, "training") and ours and not within(i.target, "training"):
            assert i.target.partition("morphseek")[2].lstrip(".").split(".")[0] in OPEN, i
            assert not i.name.startswith("_"), i


def test_the_binding_is_named_in_one_room():
    for i in IMPORTS:
        if "_native" in i.target or "gopy" in (i.name, i.target):
            assert within(i.importer, "_engine"), i


def test_torch_stays_below_training():
    for i in IMPORTS:
        if i.target.split(".")[0] in ("torch", "monai", "onnx", "onnxscript", "tensorboard"):
            assert within(i.importer, "training") or i.importer == "morphseek.monai", i


def test_no_private_name_crosses_rooms():
    """A name with an underscore is private to its file."""
    for i in IMPORTS:
        if i.target.startswith("morphseek") and i.name.startswith("_"):
            assert i.name == "__version__", i


def edges() -> dict[str, set[str]]:
    """Return what each module loads when it is imported; importing a file runs its package, too."""
    found: dict[str, set[str]] = {module: set() for module in FILES}
    for i in IMPORTS:
        if i.lazy or i.target not in FILES:
            continue
        parts = i.target.split(".")
        for n in range(1, len(parts) + 1):
            loaded = ".".join(parts[:n])
            if n == len(parts) or not f"{i.importer}.".startswith(f"{loaded}."):
                found[i.importer].add(loaded)
    return found


def test_no_circle():
    graph = edges()
    state: dict[str, int] = {}

    def visit(module: str, way: list[str]) -> None:
        if state.get(module) == 2:
            return
        if state.get(module) == 1:
            pytest.fail(f"a circle: {' -> '.join([*way[way.index(module) :], module])}")
        state[module] = 1
        for target in sorted(graph[module]):
            visit(target, [*way, module])
        state[module] = 2

    for module in graph:
        visit(module, [])
