"""What the site has beyond `docs/`: pages that lie elsewhere in the repository, and pages that are
written from the package as it is installed. Links are turned so that they work in both places, on
the site and where the files are read in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[3]
DOCS = "python/docs"

#: Pages that lie elsewhere: their place in the site, and in the repository.
ELSEWHERE = {
    "index.md": "README.md",
    "recipes.md": "python/recipes/README.md",
    "slicer.md": "slicer/README.md",
    "itk.md": "plugin/README.md",
    "rationale.md": "engine/RATIONALE.md",
    "benchmarks.md": "python/benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": ".github/SECURITY.md",
    "conduct.md": ".github/CODE_OF_CONDUCT.md",
    "changelog.md": "CHANGELOG.md",
}
_PLACES = {source: place for place, source in ELSEWHERE.items()}
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)#\s]*)(?P<heading>#[^)\s]*)?(?P<after>\))")
_FENCE = re.compile(r"^ *(```|~~~)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that lie elsewhere, the images that they show, and the generated ones."""
    for place, source in ELSEWHERE.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=text))
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            image = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            if not image.startswith(f"{DOCS}/"):
                path = str(REPOSITORY / image)
                files.append(File.generated(config, image, abs_src_path=path))
    for place, text in {"reference/errors.md": _errors(), "reference/header.md": _header()}.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the links of a page: to the page of the site, or to the file in the repository."""
    source = ELSEWHERE.get(page.file.src_uri, f"{DOCS}/{page.file.src_uri}")
    lines, code = [], False
    for line in markdown.split("\n"):
        if _FENCE.match(line):
            code = not code
        lines.append(line if code else _LINK.sub(lambda m: _turned(m, source, page, config), line))
    return "\n".join(lines)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leaves the default of an option without one empty: Click 8.3 has an object of its own there,
    which mkdocs-click 0.9 prints.
    """
    html = html.replace("<code>Sentinel.UNSET</code>", "")
    if "Sentinel." in html:
        raise ValueError(f"{page.file.src_uri} prints an object of Click: see on_page_content")
    return html


def _turned(match: re.Match[str], source: str, page: Page, config: MkDocsConfig) -> str:
    target, heading = match["target"], match["heading"] or ""
    if not target or re.match(r"[a-z]+:", target):
        return match[0]
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(target)))
    place = _PLACES.get(file)
    if place is None and file.startswith(f"{DOCS}/") and file.endswith((".md", ".png", ".jpg")):
        place = file.removeprefix(f"{DOCS}/")
    if place is None and file.endswith((".png", ".jpg")):
        place = file
    if place is not None:
        link = posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".")
    elif (REPOSITORY / file).exists():
        kind = "tree" if (REPOSITORY / file).is_dir() else "blob"
        link = f"{config.repo_url.rstrip('/')}/{kind}/main/{file}"
    else:
        link = target  # the build's own check names it
    return f"{match['before']}{link}{heading}{match['after']}"


def _errors() -> str:
    from morphseek import errors

    rows = [
        f"| `{e['name']}` | {e['code']} | {e['exit']} | `{e['python']}` | {e['help']} |"
        for e in errors.TABLE
    ]
    return "\n".join(
        [
            "# Errors",
            "",
            "Every failure has one name in all front ends. `code` is C's `ms_status`, `exit` the"
            " status with which the command ends. The Python classes are in"
            " `morphseek.errors`; each is also the built-in exception that fits.",
            "",
            "| name | code | exit | Python | what happened |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _header() -> str:
    text = (REPOSITORY / "bridge/capi/include/morphseek.h").read_text(encoding="utf-8")
    return f"# C header\n\n`morphseek.h`, whole. [C](../c.md) shows a program.\n\n```c\n{text}```\n"
