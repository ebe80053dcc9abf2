"""The recipes of containers, packages and hosted runners pass linters and agree with the rest of
the repository.
"""

import fnmatch
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import recipe_steps

import morphseek
from morphseek import _features

REPOSITORY = Path(__file__).parents[2]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
FILES = [
    *(path for path in recipe_steps.RECIPES.rglob("*") if path.is_file()),
    *WORKFLOWS,
    REPOSITORY / "CITATION.cff",
]


def tool(name: str) -> str:
    """Return a linter's path; it comes with the extra `lint`."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"needs the extra: pip install morphseek[lint] ({name})")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_version_is_repeated(path: Path):
    """Only engine.go has the version; everything else reads it there or is given it."""
    assert morphseek.__version__ not in path.read_text(encoding="utf-8")


def test_dockerfile_is_linted():
    words = [tool("hadolint"), str(recipe_steps.RECIPES / "Dockerfile")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "schema, path",
    [
        *(("github-workflows", path) for path in WORKFLOWS),
        ("citation-file-format", REPOSITORY / "CITATION.cff"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_files_fit_their_schema(schema: str, path: Path):
    words = [tool("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_images_have_the_same_steps():
    """The Dockerfile's steps, which recipe_steps.py runs, equal apptainer.def's."""
    assert [*recipe_steps.steps(), "rm -r /wheels"] == recipe_steps.apptainer("post")
    (python,) = re.findall(r"ARG PYTHON=(\S+)", (recipe_steps.RECIPES / "Dockerfile").read_text())
    assert f"From: python:{python}-slim" in (recipe_steps.RECIPES / "apptainer.def").read_text()
    (entry,) = recipe_steps.docker()["ENTRYPOINT"]
    assert recipe_steps.apptainer("runscript") == [f'exec {json.loads(entry)[0]} "$@"']


def test_conda_recipe(monkeypatch: pytest.MonkeyPatch):
    """It renders, and has the wheel's requirements."""
    rattler_build = pytest.importorskip("rattler_build", reason="pip install morphseek[lint]")
    monkeypatch.setenv("MORPHSEEK_VERSION", morphseek.__version__)
    monkeypatch.setenv("MORPHSEEK_WHEELS", str(REPOSITORY))
    recipe = recipe_steps.RECIPES / "conda" / "recipe.yaml"
    (variant,) = rattler_build.Stage0Recipe.from_file(str(recipe)).render()
    made = variant.recipe.to_dict()
    assert made["package"] == {"name": "morphseek", "version": morphseek.__version__}
    wanted = {name: _features.requirements(f) for name, f in _features.BY_NAME.items()}
    asked = {text.replace(" ", "") for text in made["requirements"]["run"]} - {"python"}
    asked = {text.replace("python-isal", "isal") for text in asked}  # conda-forge's name
    assert asked == {each.wanted.lower() for each in wanted["registration"]}
    limits = {text.replace(" ", "") for text in made["requirements"]["run_constraints"]}
    assert limits == {each.wanted for each in wanted["network"]}
    for source in made["source"][1:]:
        assert (recipe.parent / source["path"]).is_file()


def test_workflows_say_that_they_are_unproven():
    for path in WORKFLOWS:
        assert path.read_text(encoding="utf-8").startswith("# Unproven: no hosted runner")
    publish = (REPOSITORY / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    assert "id-token: write" in publish and "pypa/gh-action-pypi-publish" in publish
    assert "password" not in publish and "attestations: false" not in publish


def test_the_workflow_publishes_wheels_and_the_sdist_alone():
    """The index refuses other archives, and with them the whole release."""
    publish = (REPOSITORY / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    globs = re.findall(r"^ +(!?build/dist/\S+)$", publish, re.MULTILINE)
    made = [
        "morphseek-1.0-cp310-abi3-manylinux_2_17_x86_64.whl",
        "morphseek-1.0.tar.gz",
        "morphseek-1.0-c-linux-x86_64.tar.gz",
        "morphseek-1.0-c-windows-x86_64.zip",
        "morphseek-1.0.cdx.json",
        "SHA256SUMS",
    ]
    taken = [
        name
        for name in made
        if any(fnmatch.fnmatch(f"build/dist/{name}", glob) for glob in globs)
        and not any(fnmatch.fnmatch(f"!build/dist/{name}", glob) for glob in globs)
    ]
    assert taken == made[:2]


def test_the_workflow_installs_what_a_release_needs():
    publish = (REPOSITORY / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    page = (REPOSITORY / "python" / "docs" / "release.md").read_text(encoding="utf-8")
    for text in (publish, page):
        (packages,) = re.findall(r"apt-get install (?:-y )?(qemu[^`\n]+)", text)
        assert packages == "qemu-user-static wine64 wine maven"
    assert publish.index("apt-get install") < publish.index("- run: cmake --workflow")


def test_the_workflow_reads_the_version():
    publish = (REPOSITORY / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    (command,) = re.findall(r"\$\((sed .+)\)\" =", publish)
    said = subprocess.run(
        command, shell=True, cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == morphseek.__version__


def test_the_paper_is_told_alike():
    title = "Fine-grained Latent Representation-Level Policy Optimization for Deformable Image"
    for path in (REPOSITORY / "CITATION.cff", REPOSITORY / "README.md"):
        assert title in path.read_text(encoding="utf-8"), path
