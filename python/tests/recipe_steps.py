"""Runs the commands of the recipes of containers and packages in a plain environment, because
tests have no daemon to build images.

    python recipe_steps.py WHEELS

Runs the Dockerfile's steps (test_recipes.py checks that apptainer.def has the same), then its entry
point as a user without a home who may write only to the folder of the results, and conda's script.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

RECIPES = Path(__file__).parents[1] / "recipes"
NOBODY = 65534


def docker() -> dict[str, list[str]]:
    """Return a Dockerfile's instructions, by name."""
    text = (RECIPES / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition(" ")
            found.setdefault(name, []).append(re.sub(r"\s+", " ", value).strip())
    return found


def steps() -> list[str]:
    """Return the commands of the Dockerfile's RUN lines."""
    runs = [re.sub(r"--mount=\S+ ", "", run) for run in docker()["RUN"]]
    return [step.strip() for run in runs for step in run.split("&&")]


def apptainer(section: str) -> list[str]:
    """Return the lines of a section of apptainer.def."""
    text = (RECIPES / "apptainer.def").read_text(encoding="utf-8")
    body = text.partition(f"%{section}\n")[2].partition("\n%")[0]
    return [line.strip() for line in body.splitlines() if line.strip()]


def conda_script() -> str:
    text = (RECIPES / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    (script,) = re.findall(r"^  script: (.+)$", text, re.M)
    return script


def main(wheels: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="morphseek-recipes-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        venv.create(folder / "venv", with_pip=True)
        outer = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        outer["PATH"] = f"{folder / 'venv' / 'bin'}{os.pathsep}{outer['PATH']}"

        script = conda_script().replace("${{ PYTHON }}", "python")
        target = folder / "conda"
        subprocess.run(
            f"{script} --quiet --target {target}", shell=True, check=True, env=outer, cwd=wheels
        )
        assert (target / "morphseek" / "__init__.py").exists()

        for step in steps():
            command = step.replace("/wheels", str(wheels)) + " --quiet"
            print(command, flush=True)
            subprocess.run(command, shell=True, check=True, env=outer)

        # the entry point with the container's variables, without write permissions
        inner = {"PATH": outer["PATH"], "HOME": "/nonexistent"}
        inner |= dict(pair.split("=", 1) for pair in docker()["ENV"])
        (entry,) = (json.loads(line) for line in docker()["ENTRYPOINT"])
        data = folder / "data"
        data.mkdir()
        data.chmod(0o777)
        as_nobody = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}

        def run(*arguments: str) -> str:
            command = [*entry, *arguments]
            done = subprocess.run(
                command, env=inner, cwd=data, text=True, capture_output=True, **as_nobody
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        assert "register" in run(*json.loads(docker()["CMD"][0]))
        report = json.loads(run("info", "doctor", "--json"))
        ready = {feature["name"]: feature["ready"] for feature in report["features"]}
        assert report["well"] and ready["registration"] and ready["network"], report
        run("demo", "--size", "32", "--out", "result", "--quiet")
        assert (data / "result" / "report.json").exists()
        print(f"morphseek {report['version']}: the recipes' steps and the entry point work")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
