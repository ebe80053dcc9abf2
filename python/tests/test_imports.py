"""Which names may be imported where; which modules, says import-linter (pyproject.toml)."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted(path for path in (SOURCE / "morphseek").rglob("*.py") if "_native" not in path.parts)
WORDS = ("morphseek._features", "missing"), ("morphseek._features", "needing")


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """Return the module and the name of each import from morphseek."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            if module.split(".")[0] == "morphseek":
                yield from ((module, alias.name) for alias in node.names)


def test_the_imports_are_seen():
    found = [each for path in FILES for each in imports_of(path)]
    assert len(FILES) > 100 and len(found) > 500
    assert ("morphseek.images", "Image") in found and ("morphseek", "errors") in found


def test_hosts_use_public_names():
    for path in FILES:
        for module, name in imports_of(path) if "hosts" in path.parts else ():
            if not module.startswith("morphseek.hosts") and (module, name) not in WORDS:
                public = importlib.import_module(module).__all__
                assert "._" not in module and name in public, (path, module, name)


def test_the_binding_is_named_in_one_room():
    for path in FILES:
        if "_engine" not in path.parts:
            assert all("_native" not in f"{m}.{n}" and n != "gopy" for m, n in imports_of(path))


def test_no_private_name_crosses_files():
    """A name with an underscore is private to its file; a module's with one, to the package."""
    for path in FILES:
        for module, name in imports_of(path):
            is_module = (SOURCE / module.replace(".", "/") / f"{name}.py").is_file()
            folder = SOURCE / module.replace(".", "/") / name
            assert name[0] != "_" or name[:2] == "__" or is_module or folder.is_dir(), path
