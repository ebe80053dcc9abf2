"""Makes the tables of the pages from results.json, which everything.py writes.

A page has a block between two comments, `<!-- figures: NAME -->` and `<!-- end -->`. NAME is a key
of :data:`BLOCKS`. :func:`fill` writes what the file gives between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Results = dict[str, Any]

REPOSITORY = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "python" / "docs").rglob("*.md"))]
OURS = "morphseek"
PEERS = {"greedy": "greedy", "ants-syn": "ANTs SyN", "convexadam": "convexAdam"}
"""The peers' names in methods/, and those in tables."""
NAMED = {
    "points: heads, 32 anatomical fiducials": "templates of heads, 32 anatomical fiducials",
    "points: mouse heads, micro-CT": "mouse heads, micro-CT, 45 landmarks",
    "points: sections of a lung, five stains": "sections of a lung, five stains, 78 landmarks",
    "other: brain tumour pre<-post": "brain tumour, before <- after surgery",
    "other: brain tumour pre<-post, two contrasts": "the same, two contrasts",
    "other: acdc ED<-ES": "heart, two phases",
    "other: acdc inter-patient": "hearts of two people",
    "other: prostate TRUS<-MR": "prostate, ultrasound <- MR",
    "other: spinal cord": "spinal cord, several contrasts",
    "other: 3-D echo": "3-D echo of a valve",
    "other: iguana CT (synthetic)": "iguana CT, known motion",
    "other: prostate ADC/b1400 (synthetic)": "prostate, ADC <- b1400, known motion",
}
"""Kinds of zoo.py that have another name in tables."""
README_ROWS = [  # part, kind, measure
    ("truth", "brain", "error"),
    ("truth", "brain, two contrasts", "error"),
    ("truth", "abdomen CT", "error"),
    ("truth", "abdomen MR, two contrasts", "error"),
    ("overlap", "brain, two people", "dice"),
    ("overlap", "abdomen MR <- CT, two people", "dice"),
]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: list[str], rows: Iterable[list[str]], right: int = 0) -> str:
    """Return a table whose last `right` columns are aligned to the right."""
    rule = "|" + "---|" * (len(head) - right) + "---:|" * right
    return "\n".join([_line(head), rule, *map(_line, rows)])


def _by_kind(results: Results, part: str) -> dict[str, dict[str, Row]]:
    """Return kind, method, entry; kinds without an entry of ours are left out."""
    kinds: dict[str, dict[str, Row]] = {}
    for row in results["parts"].get(part, []):
        kinds.setdefault(row["kind"], {})[row["method"]] = row
    return {kind: by for kind, by in kinds.items() if OURS in by}


def _better(row: Row, what: str) -> bool:
    """Whether a peer is better than ours on the pairs that both ran."""
    theirs, own = row.get(what), row.get(f"ours_{what}")
    if theirs is None or own is None:
        return False
    digits = 3 if what == "dice" else 2
    theirs, own = round(theirs, digits), round(own, digits)
    return bool(theirs > own if what == "dice" else theirs < own)


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _figure(value: float | None, what: str, bold: bool) -> str:
    if value is None:
        return ""
    if what == "dice":
        text = f"{value:.3f}"
    elif what == "cpu":
        text = f"{value:.2g}" if value < 10 else f"{value:.0f}"
    else:
        text = f"{value:.2f}"
    return _bold(text, bold)


def _cell(by: dict[str, Row], method: str, what: str, cpu: bool = True, p95: bool = False) -> str:
    """Return a method's figure; bold where a peer is better than ours, or ours than each of them.
    A peer's brackets hold its pairs where they are fewer, its failures after a plus.
    """
    row = by.get(method)
    if row is None:
        return ""
    peers = [row for name, row in by.items() if name != OURS]

    def bold(which: str) -> bool:
        if method != OURS:
            return _better(row, which)
        return bool(peers) and not any(_better(peer, which) for peer in peers)

    text = _figure(row.get(what), what, bold(what))
    if p95 and row.get("p95") is not None:
        text += f" ({row['p95']:.2f})"
    if cpu:
        text += f"; {_figure(row['cpu'], 'cpu', bold('cpu'))}"
    if row.get("lost"):
        text += f" ({row['lost']} lost)"
    if row["failed"]:
        text += f" ({row['failed']} failed)"
    return text


def _name(kind: str, by: dict[str, Row]) -> str:
    return f"{_public(NAMED.get(kind, kind))} ({by[OURS]['pairs']})"


def _public(kind: str) -> str:
    return kind.replace("made-up", "synthetic")


def _peers_of(kinds: dict[str, dict[str, Row]]) -> list[str]:
    return [name for name in PEERS if any(name in by for by in kinds.values())]


def _heads(results: Results, part: str, peers: list[str]) -> list[str]:
    """Return the peers' column heads; brackets say on how many of a row's pairs at most."""
    most = results["run"]["pairs_of_peers"].get(part, {})
    return [f"{PEERS[p]}{f' [{most[p]}]' if most.get(p) else ''}" for p in peers]


# -------------------------------------------------------------------------------------- The blocks


def run(results: Results) -> str:
    """Return the sentence that says what the figures of a page are of."""
    r = results["run"]
    peers = ", ".join(f"{PEERS[n]} {v}" for n, v in r["peers"].items())
    proof = " **A tiny run: it proves the script, and its figures are of one small pair each.**"
    return (
        f"The tables are of one run of version {r['version']} (commit {r['commit']}), {r['date']}:"
        f" {r['machine']}, one thread a registration, {r['jobs']} at a time,"
        f" {r['cpu_hours']:.1f} CPU hours. Beside it: {peers or 'no peers'}."
        f"{proof if r['tiny'] else ''}"
    )


def readme(results: Results) -> str:
    rows, peers = [], list(PEERS)
    for part, kind, what in README_ROWS:
        by = _by_kind(results, part).get(kind)
        if by is None:
            continue
        ours = by[OURS]
        measure = "error, mm" if what == "error" else "overlap"
        affine = ours["affine"] if what == "error" else ours["dice_affine"]
        rows.append(
            [
                f"{_name(kind, by)}{', known motion' if what == 'error' else ''}",
                f"{measure}; CPU s",
                _figure(affine, what, False),
                *(_cell(by, method, what) for method in (OURS, *peers)),
            ]
        )
    return _table(["pairs", "measure", "affine", "MorphSeek", *PEERS.values()], rows)


def grades_sentence(results: Results) -> str:
    """Return how often the verdict was right, for README."""
    rows = results["parts"].get("grades", [])
    total = next((r for r in rows if r["body"] == "all"), None)
    apart = results["parts"].get("strangers", [])
    text = []
    if total:
        known = sum(r["good"] for r in rows if r is not total and r["wrong"] is not None)
        text.append(
            f"Of {known} results that it called `good` and whose error is known, {total['wrong']}"
            f" were more than twice as far off as it estimated. Of all {total['good']} that it"
            f" called `good`, {total['harmed']} ended worse than their affine."
        )
    if apart:
        n, refused, good = (sum(r[k] for r in apart) for k in ("pairs", "failed", "good"))
        text.append(
            f"Of {n} pairs that do not belong together it called {refused} `failed`"
            f" and {good} `good`."
        )
    return " ".join(text)


def known_truth(part: str) -> Callable[[Results], str]:
    """Return the block of a part whose pairs have points of a known place."""

    def block(results: Results) -> str:
        found = _by_kind(results, part)
        peers = _peers_of(found)
        head = ["kind (pairs)", "affine", "MorphSeek", *_heads(results, part, peers)]
        rows = [
            [
                _name(kind, by),
                _figure(by[OURS]["affine"], "error", False),
                *(_cell(by, method, "error", p95=True) for method in (OURS, *peers)),
            ]
            for kind, by in found.items()
        ]
        return _table(head, rows)

    return block


truth = known_truth("truth")


def overlap(results: Results) -> str:
    kinds = _by_kind(results, "overlap")
    peers = _peers_of(kinds)
    rows = []
    for kind, by in kinds.items():
        rows.append([_name(kind, by), _figure(by[OURS]["dice_affine"], "dice", False)])
        rows[-1] += [_cell(by, method, "dice") for method in (OURS, *peers)]
        others = {
            "worst pair": lambda r: f"{r['worst_dice']:.3f}",
            "HD95, mm": lambda r: f"{r['hd95']:.1f}" if r["hd95"] is not None else "",
            "folds, %; SD log J": lambda r: f"{r['folds']:.2g}; {r['sdlogj']:.2f}",
            "peak MiB": lambda r: f"{r['mib']:.0f}",
        }
        for name, shown in others.items():
            cells = [shown(by[m]) if m in by else "" for m in (OURS, *peers)]
            rows.append([f"... {name}", "", *cells])
    head = ["pairs of two people", "affine", "MorphSeek", *_heads(results, "overlap", peers)]
    return _table(head, rows)


def points(results: Results) -> str:
    found = {k: by for k, by in _by_kind(results, "points").items() if "error" in by[OURS]}
    peers = _peers_of(found)
    rows = []
    for kind, by in found.items():
        ours = by[OURS]
        rows.append(
            [
                _name(kind, by),
                _figure(ours["before"], "error", False),
                _figure(ours["affine"], "error", False),
                *(_cell(by, method, "error") for method in (OURS, *peers)),
                f"{ours['most']:.2f}",
                f"{ours['tg132']} of {ours['pairs']}",
                f"{100 * ours['nearer']:.0f} %",
            ]
        )
    head = ["pairs", "headers", "affine", "MorphSeek", *_heads(results, "points", peers)]
    return _table([*head, "largest", "TG-132", "nearer"], rows)


def labels(results: Results) -> str:
    found = {k: by for k, by in _by_kind(results, "points").items() if "error" not in by[OURS]}
    peers = _peers_of(found)
    rows = [
        [
            _name(kind, by),
            _figure(by[OURS]["dice_affine"], "dice", False),
            *(_cell(by, method, "dice") for method in (OURS, *peers)),
        ]
        for kind, by in found.items()
    ]
    return _table(["pairs", "affine", "MorphSeek", *_heads(results, "points", peers)], rows)


FAR = 50.0
"""mm from which on a result is lost: beyond the error by the headers, or from another result."""


def steady(results: Results) -> str:
    rows = results["parts"].get("steady", [])
    names = list(dict.fromkeys(r["kind"] for r in rows))
    at = {(r["kind"], r["perturbation"], r["method"]): r["mean"] for r in rows}

    def shown(value: float | None) -> str:
        if value is None:
            return ""
        if value > FAR:
            return "lost"
        return "0" if value < 5e-5 else f"{value:.2g}" if value < 1 else f"{value:.1f}"

    def cell(kind: str, name: str) -> str:
        ours, theirs = (at.get((kind, name, method)) for method in (OURS, "greedy"))
        if theirs is None or ours is None:
            return shown(ours)
        texts = [shown(ours), shown(theirs)]
        best = 0 if ours <= theirs else 1
        if texts[0] != texts[1]:
            texts[best] = f"**{texts[best]}**"
        return "; ".join(texts)

    perturbations = list(dict.fromkeys(r["perturbation"] for r in rows))
    return _table(
        ["mean change, mm: MorphSeek; greedy", *names],
        ([name, *(cell(kind, name) for kind in names)] for name in perturbations),
    )


def grades(results: Results) -> str:
    rows = results["parts"].get("grades", [])
    return _table(
        ["pairs", "n", "good", "of them wrong", "harmed", "check", "failed", "truth / estimate"],
        (
            [
                r["body"],
                *(str(r[k]) for k in ("pairs", "good")),
                *("" if r[k] is None else str(r[k]) for k in ("wrong", "harmed")),
                *(str(r[k]) for k in ("check", "failed")),
                "" if r["ratio"] is None else f"{r['ratio']:.2f}",
            ]
            for r in rows
        ),
        right=7,
    )


def estimate(results: Results) -> str:
    e = results["parts"].get("estimate")
    if not e:
        return "No pair with a known truth was run."
    return (
        f"Over {e['pairs']} pairs whose truth is known, the truth is {e['ratio']:.2f} times the"
        f" estimate in the median, within a factor of two of it for {e['within_two']:.0f} %; rank"
        f" correlation {e['rank']:.2f}."
    )


def strangers(results: Results) -> str:
    rows = results["parts"].get("strangers", [])
    return _table(
        ["pairs", "n", "good", "check", "failed"],
        ([r["kind"], *(str(r[k]) for k in ("pairs", "good", "check", "failed"))] for r in rows),
        right=4,
    )


def command(results: Results) -> str:
    lines = []
    for r in results["parts"].get("command", []):
        both = [r[name] for name in ("command", "greedy") if name in r]
        texts = [_bold(f"{x:.2f}", x == min(both) and len(both) > 1) for x in both]
        lines.append([r["pair"], *texts, *[""] * (2 - len(both))])
    return _table(["pair", "command", "greedy"], lines, right=2)


def growth(results: Results) -> str:
    rows = results["parts"].get("growth", [])
    sides = sorted({r["side"] for r in rows})
    at = {(r["method"], r["side"]): r for r in rows}
    lines = []
    for method, name in ((OURS, "MorphSeek"), ("greedy", "greedy")):
        for what, unit in (("cpu", "CPU s"), ("mib", "peak MiB")):
            cells = [at.get((method, side)) for side in sides]
            if any(cells):
                lines.append([f"{name}, {unit}", *(f"{c[what]:.0f}" if c else "" for c in cells)])
    return _table(["voxels a side", *map(str, sides)], lines, right=len(sides))


def slices(results: Results) -> str:
    rows = results["parts"].get("slices", [])
    columns = {"dice": (".3f", max), "error": (".3f", min), "folding": (".3f", None)}
    columns["cpu"] = (".2f", min)
    lines = []
    for kind in dict.fromkeys(r["kind"] for r in rows):
        of = [r for r in rows if r["kind"] == kind]
        for r in of:
            still = r["method"] == "none"
            name = {"none": "before", "ours": "MorphSeek"}.get(r["method"], r["method"])
            lines.append([f"{kind} ({r['pairs']})" if r is of[0] else "", name])
            for what, (form, best) in columns.items():
                value = None if still and what in ("folding", "cpu") else r[what]
                known = [x[what] for x in of if x[what] is not None and x["method"] != "none"]
                text = "" if value is None else f"{value:{form}}"
                bold = value is not None and best is not None and value == best(known)
                lines[-1].append(_bold(text, bold))
    head = ["slices", "method", "Dice", "error, pixels", "folding, %", "CPU s"]
    return _table(head, lines, right=4)


def channels(results: Results) -> str:
    rows = results["parts"].get("channels", [])
    return _table(
        ["pair", "Dice without", "with", "points without, mm", "with"],
        (
            [
                r["pair"],
                f"{r['dice'][0]:.3f}",
                f"{r['dice'][1]:.3f}",
                *(_bold(f"{value:.2f}", value == min(r["points"])) for value in r["points"]),
            ]
            for r in rows
        ),
        right=4,
    )


def landmarks(results: Results) -> str:
    rows = results["parts"].get("landmarks", [])
    return _table(
        ["pair", "steer", "without", "with"],
        ([_public(r["pair"]), r["steer"], f"{r['without']:.2f}", f"{r['with']:.2f}"] for r in rows),
        right=3,
    )


def networks(results: Results) -> str:
    rows = results["parts"].get("networks", [])
    columns = {  # form, sign of what is better; 0: none is
        "dice": (".3f", 1), "inverse": (".3f", 1), "volume": (".1f", -1), "bias": ("+.1f", 0),
        "one": (".2f", -1), "two": (".2f", -1), "sdlogj": (".2f", 0),
    }  # fmt: skip
    lines = []
    for r in rows:
        lines.append([f"`--model {r['model']}`"])
        for name, (form, sign) in columns.items():
            text = f"{r[name]:{form}}"
            best = sign != 0 and sign * r[name] == max(sign * other[name] for other in rows)
            lines[-1].append(_bold(text, best))
    head = ["", "Dice", "by the inverse", "error of volume, %", "bias, %", "points, mm"]
    return _table([*head, "two contrasts, mm", "SD log J"], lines)


def gallery(results: Results) -> str:
    rows = results["parts"].get("gallery", [])

    def mm(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}"

    return _table(
        ["", "kind", "affine, mm", "error, mm", "estimated, mm", "verdict", "what to see"],
        (
            [
                f"![](img/gallery/{r['name']}.jpg)",
                r["kind"],
                *(mm(r[k]) for k in ("affine", "error", "estimated")),
                r["verdict"],
                r["see"],
            ]
            for r in rows
        ),
    )


BLOCKS: dict[str, Callable[[Results], str]] = {
    "run": run,
    "readme": readme,
    "readme-verdict": grades_sentence,
    "truth": truth,
    "overlap": overlap,
    "kinds": known_truth("kinds"),
    "points": points,
    "labels": labels,
    "steady": steady,
    "grades": grades,
    "estimate": estimate,
    "strangers": strangers,
    "command": command,
    "growth": growth,
    "slices": slices,
    "channels": channels,
    "landmarks": landmarks,
    "networks": networks,
    "gallery": gallery,
}
"""The text of each block, without the comments around it."""

_BLOCK = re.compile(r"<!-- figures: ([\w-]+) -->\n(.*?)<!-- end -->", re.S)


def filled(text: str, results: Results) -> str:
    """Return a page's text with its blocks made anew; raises KeyError for an unknown block."""
    return _BLOCK.sub(
        lambda m: f"<!-- figures: {m[1]} -->\n{_padded(BLOCKS[m[1]](results))}<!-- end -->", text
    )


def without_blocks(text: str) -> str:
    """Return what a page says beside its blocks."""
    return _BLOCK.sub("", text)


def _padded(text: str) -> str:
    """Return a table between empty lines, as Markdown's readers need it; a sentence as it is."""
    return f"\n{text}\n\n" if text.startswith("|") else f"{text}\n"


def names(text: str) -> list[str]:
    """Return the names of a page's blocks."""
    return [match[1] for match in _BLOCK.finditer(text)]


def load() -> Results:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def fill() -> list[Path]:
    """Fill the blocks of every page from results.json; return the pages that changed."""
    results, changed = load(), []
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before, results)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed
