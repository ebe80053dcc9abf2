"""Output of the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from .._plain import plain
from ..verdict import GRADES, UNKNOWN, Verdict, explain as explain_in_words, explanation, notes

_FURTHER_MM = 0.1  # what marking a point again differs by at least
NOT_GOOD = 7  # what --strict exits with; no failure of the engine's table does


class Reply(NamedTuple):
    """The facts that a command returns, and a function that prints them."""

    facts: Any
    """For ``--json``."""
    show: Callable[[bool], None]
    """Print them for people; True: with ``--quiet``, what is wrong alone."""
    exit_code: int = 0


def reply(
    facts: Any,
    lines: Iterable[str],
    exit_code: int = 0,
    alerts: Iterable[tuple[str, str | None]] = (),
) -> Reply:
    """Return the reply that prints ``lines``, but for quiet, and ``alerts`` to standard error."""

    def show(quiet: bool) -> None:
        for text, color in alerts:
            say(text, color, to_errors=True)
        for line in () if quiet else lines:
            say(line)

    return Reply(facts, show, exit_code)


def say(text: str, color: str | None = None, to_errors: bool = False) -> None:
    """Print a line to standard output or error, in a colour where a terminal shows one."""
    stream = sys.stderr if to_errors else sys.stdout
    if stream is None:  # a program with a window may have none
        return
    is_shown = color and (stream.isatty() or os.environ.get("FORCE_COLOR"))
    is_shown = bool(is_shown and not os.environ.get("NO_COLOR"))
    click.secho(plain(text), file=stream, fg=color, color=is_shown)


_COLORS = {"good": "green", "check": "yellow", "failed": "red"}


def summary_reply(
    summary: dict[str, Any], out: Path, explain: bool = False, strict: bool = False
) -> Reply:
    """Return what a command says that registered one pair."""
    verdict = Verdict.of(summary)
    is_good = verdict is not None and verdict.grade == GRADES[0]

    def show(quiet: bool) -> None:
        for text in notes(summary):
            say(*note(text), to_errors=True)
        rows = [] if quiet else _summary_rows(summary, out)
        for line in [*aligned(rows), *aligned(explanation(summary) if explain else [])]:
            say(line)
        if not (quiet and is_good):  # to who wants to see nothing else, it is an error
            color = _COLORS[verdict.grade] if verdict else None
            say(f"verdict: {verdict or UNKNOWN}", color, to_errors=quiet)

    facts = summary | ({"explanation": explain_in_words(summary)} if explain else {})
    return Reply(facts, show, NOT_GOOD if strict and not is_good else 0)


def _summary_rows(summary: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    rows = []
    if "dice_after" in summary:
        rows.append(("mean Dice", f"{summary['dice_before']:.3f} -> {summary['dice_after']:.3f}"))
    if "landmarks" in summary:
        rows += _landmark_rows(summary["landmarks"], summary["align"]["method"])
    if truth := summary.get("truth"):
        rows += _truth_rows(truth, summary["align"]["method"])
    course = f"{summary['similarity_before']:.4f} -> {summary['similarity_after']:.4f}"
    rows += [(summary["similarity"], course), ("folding (NJD)", f"{summary['njd_percent']:.4f} %")]
    if spread := summary["uncertainty"]:
        span = f"mean {spread['mean_mm']:.1f} mm, 95 % below {spread['p95_mm']:.1f} mm"
        rows.append(("uncertainty", span))
    when = " (then; now from the cache)" if summary["cached"] else ""
    page = out / "report.html"
    return [
        *rows,
        ("model, device", f"{summary['model']}, {summary['device']}"),
        ("time", f"{summary['seconds']['total']:.1f} s{when}"),
        ("report", str(page if page.exists() else out / "report.json")),
    ]


def _landmark_rows(landmarks: dict[str, Any], method: str) -> list[tuple[str, str]]:
    """Return the errors at landmarks: before, after the initial alignment, after all."""
    points = landmarks["points"]
    worst = max(points, key=lambda p: p["after_mm"])
    role = "steered" if landmarks["steered"] else "only measure"
    how = f"before -> initial alignment ({method}) -> after, at {len(points)} points that {role}"
    rows = [
        ("landmarks", f"{_course(landmarks)} mm on average: {how}"),
        ("  worst", f"{worst['name']}: {worst['before_mm']:.1f} -> {worst['after_mm']:.1f} mm"),
    ]
    if further := [p for p in points if p["after_mm"] > p["before_mm"] + _FURTHER_MM]:
        courses = (f"{p['name']} {p['before_mm']:.1f} -> {p['after_mm']:.1f}" for p in further)
        rows.append(("  worse than before", ", ".join(courses) + " mm"))
    return rows


def _course(errors: dict[str, Any], key: str = "mean_mm") -> str:
    return " -> ".join(f"{errors[when][key]:.1f}" for when in ("before", "initial", "after"))


def _truth_rows(truth: dict[str, Any], method: str) -> list[tuple[str, str]]:
    """Return the errors of the demonstration pair: before, after the alignment, after all."""
    how = f"before -> initial alignment ({method}) -> after, at {truth['points']} points in organs"
    return [
        ("error to the truth", f"{_course(truth)} mm on average: {how}"),
        ("  median", f"{_course(truth, 'median_mm')} mm"),
        ("  95th percentile", f"{_course(truth, 'p95_mm')} mm"),
    ]


def note(text: str) -> tuple[str, str]:
    """Return the alert of a note."""
    return f"note: {text}", "yellow"


def failures(rows: Iterable[Any]) -> list[tuple[str, str | None]]:
    """Return an alert for every row of a study that has an error."""
    return [(f"morphseek: {row}", "red") for row in rows if row.error]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines whose columns stand below one another."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(f"{cell:<{n}}" for cell, n in zip(row, widths)).rstrip() for row in rows]
