"""Every code block of every page: Python runs, the tutorials run from end to end, and shell
commands use only commands, flags, scripts, presets and extras that exist.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from morphseek.cli import app

PYTHON = Path(__file__).parents[1]
REPOSITORY = PYTHON.parent
DOCS = PYTHON / "docs"
PAGES = [
    *sorted(DOCS.rglob("*.md")),
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", ".github/SECURITY.md")),
    *(REPOSITORY / name / "README.md" for name in ("python", "plugin", "slicer")),
    *(PYTHON / name / "README.md" for name in ("recipes", "benchmarks")),
]
LONGEST = 300  # lines
README = 100


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    start, language = None, ""
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start, language = number, line.strip()[3:]
        else:
            yield Block(page, start, language, "\n".join(lines[start : number - 1]) + "\n")
            start = None
    assert start is None, f"{page}:{start}: the block does not end"


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_is_short(page: Path):
    longest = README if page == REPOSITORY / "README.md" else LONGEST
    assert len(page.read_text(encoding="utf-8").splitlines()) <= longest


def test_the_site_has_every_page():
    """The site's build checks this, too; this test works without mkdocs."""
    listed = (PYTHON / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted(DOCS.rglob("*.md")):
        assert re.search(rf"[ :]{page.relative_to(DOCS).as_posix()}$", listed, re.M), page


# ----------------------------------------------------------------- The tutorials from end to end


@pytest.mark.parametrize("name", ["first-pair", "many-pairs"])
def test_a_tutorial_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its blocks run one after the other in one folder, as a reader would do it."""
    monkeypatch.chdir(tmp_path)
    bin_folder = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": bin_folder + os.pathsep + os.environ["PATH"],
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    names: dict[str, Any] = {}
    ran = 0
    for block in blocks_of(DOCS / "tutorials" / f"{name}.md"):
        if block.language == "python":
            exec(compile(block.text, str(block), "exec"), names)
        else:
            assert block.language == "sh", f"{block}: what is it?"
            done = subprocess.run(
                ["sh", "-euc", block.text], capture_output=True, text=True, env=environment
            )
            assert done.returncode == 0, f"{block}:\n{done.stdout}\n{done.stderr}"
        ran += 1
    assert ran >= 5
    for made in re.findall(r"^\| `([\w.]+)`(?:, `([\w.]+)`)? \|", read(name), re.M):
        assert all((tmp_path / "result" / file).is_file() for file in made if file), made


def read(tutorial: str) -> str:
    return (DOCS / "tutorials" / f"{tutorial}.md").read_text(encoding="utf-8")


def test_the_itk_tutorial_is_the_example():
    """The plugin's tests build the example against an installed library and run it."""
    folder = REPOSITORY / "plugin" / "examples" / "external"
    shown = [b.text for b in blocks_of(DOCS / "tutorials" / "itk.md") if b.language != "sh"]
    files = ("registration.cxx", "CMakeLists.txt")
    assert shown == [(folder / name).read_text(encoding="utf-8") for name in files]


# --------------------------------------------------------------------------------- Python blocks


def images_named(*names: str, size: int = 24) -> dict[str, Any]:
    """Return the two sides of made-up patients by turns."""
    found: dict[str, Any] = {}
    for k, name in enumerate(names):
        pair = morphseek.phantom.make_pair(size=size, seed=k // 2)
        found[name] = pair.moving if k % 2 else pair.fixed
    return found


def on_disk(**found: morphseek.Image) -> dict[str, Any]:
    for name, image in found.items():
        morphseek.images.write(f"{name}.nii.gz", image)
    return found


def for_channels() -> dict[str, Any]:
    pair = morphseek.phantom.make_pair(size=24)
    names = {"t1": pair.fixed, "flair": pair.fixed, "t1_before": pair.moving}
    names |= {"flair_before": pair.moving, "ct": pair.fixed, "other_ct": pair.moving}
    return {**names, "organs": pair.fixed_labels, "other_organs": pair.moving_labels}


def for_landmarks() -> dict[str, Any]:
    pair = morphseek.phantom.make_pair(size=32)
    points = pair.target_points(4)[::9][:6]
    morphseek.Landmarks(points).write("F.mrk.json")
    morphseek.Landmarks(pair.truth(points)).write("M.mrk.json")
    return {"fixed": pair.fixed, "moving": pair.moving}


def for_series() -> dict[str, Any]:
    frame = sitk.GetImageFromArray(morphseek.phantom.make_pair(size=32).fixed.array)
    sitk.WriteImage(sitk.JoinSeries([frame, frame + 1.0, frame, frame]), "bold.nii.gz")
    return {}


def for_shape() -> dict[str, Any]:
    pair = morphseek.phantom.make_pair(size=24)
    names = images_named("before", "after", "baseline", "followup")
    vertebrae = pair.fixed_labels.like((pair.fixed_labels.array == 3).astype(np.uint8))
    up = morphseek.images.Image(pair.fixed.array)
    down = morphseek.images.Image(np.roll(pair.fixed.array, 1, axis=1))
    return {**names, "vertebrae": vertebrae, "labels": pair.fixed_labels, "up": up, "down": down}


def for_slices() -> dict[str, Any]:
    middle = morphseek.phantom.make_pair(size=48).fixed.array[24]
    return {"morphseek": morphseek, "fixed": middle, "moving": np.roll(middle, 1, axis=0)}


def for_templates() -> dict[str, Any]:
    for k, name in enumerate("abc"):
        pair = morphseek.phantom.make_pair(size=24, seed=k)
        on_disk(**{name: pair.moving, f"l{name}": pair.moving_labels})
    return {}


def for_pipelines() -> dict[str, Any]:
    for package in ("nipype", "pydra", "brainles_preprocessing"):
        pytest.importorskip(package)
    pair = morphseek.phantom.make_pair(size=32)
    on_disk(atlas=pair.fixed, a=pair.moving, b=pair.moving, tissue=pair.fixed_labels)
    return images_named("t1", "flair", "t1c")


def for_training() -> dict[str, Any]:
    pytest.importorskip("torch")
    return {}


PREPARED: dict[str, Callable[[], dict[str, Any]]] = {
    "channels.md": for_channels,
    "hosts/pipelines.md": for_pipelines,
    "landmarks.md": for_landmarks,
    "series.md": for_series,
    "shape.md": for_shape,
    "slices.md": for_slices,
    "templates.md": for_templates,
    "training/synthetic.md": for_training,
}
#: Pages that test_docs.py or the tests above run, and that of 3D Slicer, which needs the
#: application: `slicer/Testing` tests its calls.
ELSEWHERE = ("README.md", "python/README.md", "slicer/README.md", "python/docs/tutorials/")
ALONE = [
    page
    for page in PAGES
    if any(b.language == "python" and ">>>" not in b.text for b in blocks_of(page))
    and not str(page.relative_to(REPOSITORY)).startswith(ELSEWHERE)
]


@pytest.mark.parametrize("page", ALONE, ids=lambda page: str(page.relative_to(DOCS)))
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"morphseek": morphseek, "np": np}
    names |= PREPARED[page.relative_to(DOCS).as_posix()]()
    for block in blocks_of(page):
        if block.language == "python" and ">>>" not in block.text:
            exec(compile(block.text, str(block), "exec"), names)


def test_python_is_python():
    for block in BLOCKS:
        if block.language == "python" and ">>>" not in block.text:
            compile(block.text, str(block), "exec")


def test_every_page_with_a_prompt_is_run():
    """test_docs.py runs each of them by name."""
    run = (PYTHON / "tests" / "test_docs.py").read_text(encoding="utf-8")
    for page in PAGES:
        if re.search(r"^>>> ", page.read_text(encoding="utf-8"), re.M):
            assert f'"{page.name}"' in run, page


# ---------------------------------------------------------------------------------- Shell blocks


def commands() -> Iterator[tuple[Block, list[str]]]:
    """Yield every command of every shell block, split into words."""
    for block in BLOCKS:
        if block.language not in ("", "sh"):
            continue
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            for part in re.split(r"&&|;|\|\|", re.sub(r"(^|\s)#.*", "", line)):
                try:
                    words = shlex.split(part)
                except ValueError:  # prose in a drawing
                    continue
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words:
                    yield block, words


COMMANDS = list(commands())
INLINE = [
    (Block(page, 0, "sh", line), shlex.split(line))
    for page in PAGES
    for line in re.findall(r"`(morphseek [^`\n]+)`", page.read_text(encoding="utf-8"))
]


def flags(words: list[str]) -> list[str]:
    return [m[1] for w in words if (m := re.match(r"\[?(--?[a-z][\w-]*)", w))]


def test_the_command_has_what_pages_say():
    seen = 0
    for block, words in COMMANDS + INLINE:
        words = words[: words.index("&&")] if "&&" in words else words
        if Path(words[0]).name != "morphseek":
            continue
        command: click.Command = app
        context, words = click.Context(app), words[1:]
        while hasattr(command, "get_command") and words and re.match(r"[a-z]", words[0]):
            if words[0] == "train":  # passes its arguments on to a command that needs PyTorch
                found = pytest.importorskip("morphseek.training.cli").app
            else:
                found = command.get_command(context, words[0])
            assert found is not None, f"{block}: morphseek has no {words[0]}"
            context, command, words = click.Context(found), found, words[1:]
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        for flag in flags(words):
            assert flag in known, f"{block}: morphseek {command.name} has no {flag}"
            seen += 1
    assert seen > 300


def test_scripts_have_what_pages_say():
    seen = 0
    for block, words in COMMANDS:
        script = next((w for w in words[1:2] if w.endswith(".py")), None)
        if script is None or "python" not in Path(words[0]).name:
            continue
        places = [REPOSITORY / script, PYTHON / script, block.page.parent / script]
        path = next((place for place in places if place.is_file()), None)
        assert path is not None, f"{block}: there is no {script}"
        beside = [path, *path.parent.glob("*.py")]
        text = "".join(p.read_text(encoding="utf-8") for p in beside)
        for flag in flags(words[2:]):
            assert flag in text or re.search(rf"\b{flag[2:].replace('-', '_')}\b", text), (
                f"{block}: {script} has no {flag}"
            )
            seen += 1
    assert seen > 20


def test_presets_exist():
    """The extras that pages name are tested in test_doctor.py."""
    presets = json.loads((REPOSITORY / "CMakePresets.json").read_text(encoding="utf-8"))
    names = {each["name"] for kind in presets if kind.endswith("Presets") for each in presets[kind]}
    seen = 0
    for block in BLOCKS:
        for preset in re.findall(r"cmake [^\n]*--preset (\w+)", block.text):
            assert preset in names, f"{block}: no preset {preset}"
            seen += 1
    assert seen > 3
