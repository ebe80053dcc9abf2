"""report.html: one self-contained page that shows what a registration did."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from .. import _files, images
from ..landmarks import LandmarksLike
from ..result import RegistrationResult
from ..scoring import LabelScore, LandmarkErrors, mean_dice, score_landmarks
from ..verdict import UNKNOWN, explanation, millimetres, notes
from . import picture, viewer_data
from .markup import Markup, join, tag
from .views import Scene

if TYPE_CHECKING:
    from typing_extensions import Unpack

Size = Literal["full", "small"]

MOST_BYTES = 6_000_000
MOST_BYTES_SMALL = 200_000
SIGNS = {"good": "\u2713", "check": "!", "failed": "\u2715"}
_STILL_WIDTH, _STILL_BYTES = 960, 110_000
_DATA = Markup("<!-- data -->")


class Content(TypedDict, total=False):
    """What a page shows beside the images; :func:`write_report` says what each is."""

    fixed_labels: images.ImageLike | None
    moving_labels: images.ImageLike | None
    warped_labels: images.ImageLike | None
    scores: Sequence[LabelScore]
    label_names: dict[int, str] | None
    landmarks: tuple[LandmarksLike, LandmarksLike] | LandmarkErrors | None
    landmark_names: Sequence[str]
    estimated_error: np.ndarray | None
    command: str
    title: str
    truth: dict[str, Any] | None
    size: Size


def write_report(
    path: str | os.PathLike[str],
    result: RegistrationResult,
    fixed: images.ImageLike,
    moving: images.ImageLike,
    **content: Unpack[Content],
) -> None:
    """Write the page.

    Parameters
    ----------
    path : path
        Of the .html file.
    result : RegistrationResult
    fixed, moving : ImageLike
        What was registered.
    fixed_labels, moving_labels : ImageLike, optional
        Their outlines are drawn.
    warped_labels : ImageLike, optional
        The moving labels on the fixed grid; where they are not given, they are made.
    scores : sequence of LabelScore
        From :func:`morphseek.scoring.score_labels`.
    label_names : dict, optional
        Label number to name.
    landmarks : (LandmarksLike, LandmarksLike), optional
        Points of the fixed and of the moving image that belong together, as
        :func:`morphseek.scoring.score_landmarks` takes them, or what it returned. They are drawn
        with their errors.
    landmark_names : sequence of str
        For landmarks that have none.
    estimated_error : numpy.ndarray, optional
        The error expected at each voxel of the fixed image, mm: (z, y, x).
    command : str
        What repeats the registration; empty where no command did it.
    title : str
        Which images, for the heading.
    truth : dict, optional
        Of a made-up pair the errors at points, from :meth:`morphseek.phantoms.PhantomPair.errors`.
    size : {"full", "small"}, default "full"
        "full" is the interactive page, at most 6 MB; "small" has one picture and the numbers, below
        200 kB.

    Examples
    --------
    >>> morphseek.report.write_report("report.html", result, pair.fixed, pair.moving)
    """
    _files.write_text(path, compose(result, fixed, moving, **content))


def compose(
    result: RegistrationResult,
    fixed: images.ImageLike | None,
    moving: images.ImageLike | None,
    **content: Unpack[Content],
) -> str:
    """Return the page of :func:`write_report`."""
    if unknown := content.keys() - Content.__annotations__:
        raise TypeError(f"a page has no {', '.join(sorted(unknown))}")
    fixed_labels, moving_labels = content.get("fixed_labels"), content.get("moving_labels")
    warped_labels = content.get("warped_labels")
    target = None if fixed is None else images.read_on(fixed, result.grid, "fixed")
    source = None if moving is None else images.read_on(moving, result.moving_grid, "moving")
    outlines: tuple[images.Image | None, images.Image | None] = (None, None)
    if fixed_labels is not None and moving_labels is not None:
        outlines = (
            images.read_on(fixed_labels, result.grid, "fixed labels"),
            images.read_on(moving_labels, result.moving_grid, "moving labels"),
        )
    scene = Scene(
        result,
        target,
        source,
        *outlines,
        None
        if warped_labels is None
        else images.read_on(warped_labels, result.grid, "warped labels"),
    )
    facts = Facts(
        result,
        target,
        source,
        scene,
        content.get("scores", ()),
        content.get("label_names") or {},
        _points(result, content),
        content.get("command", ""),
        content.get("title", ""),
        content.get("truth"),
    )
    still = picture.data_url(scene.still(_STILL_WIDTH, _STILL_BYTES))
    if content.get("size", "full") == "small":
        return _document(facts, still, None)
    text = _document(facts, still, _DATA)
    data = viewer_data.of(
        scene,
        room=MOST_BYTES - len(text.encode()),
        scores=facts.scores,
        names=facts.names,
        points=facts.points,
        error=content.get("estimated_error"),
    )
    head, _, end = text.rpartition(_DATA)
    return head + data + end


def _points(result: RegistrationResult, content: Content) -> LandmarkErrors | None:
    landmarks = content.get("landmarks")
    if landmarks is None or isinstance(landmarks, LandmarkErrors):
        return landmarks
    found = score_landmarks(result, *landmarks)
    names = content.get("landmark_names", ())[: len(found.names)]
    return dataclasses.replace(found, names=[*names, *found.names[len(names) :]])


@dataclasses.dataclass
class Facts:
    """What the page tells in words and numbers."""

    result: RegistrationResult
    fixed: images.Image | None
    moving: images.Image | None
    scene: Scene
    scores: Sequence[LabelScore] = ()
    names: dict[int, str] = dataclasses.field(default_factory=dict)
    points: LandmarkErrors | None = None
    command: str = ""
    title: str = ""
    truth: dict[str, Any] | None = None

    def name(self, label: int) -> str:
        return self.names.get(label, str(label))


def asset(name: str) -> str:
    """Return a file that lies beside this module."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _script(*files: str) -> str:
    """Return JavaScript files as one function, so that nothing in them is global."""
    return f"'use strict';\n(() => {{\n{''.join(map(asset, files))}}})();\n"


def shell(title: str, icon: str, css: str, script: str, *body: Any) -> str:
    """Return a document that loads nothing and runs no script but the one given."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href=icon),
        tag("style", Markup(css)),
    )
    end = tag("script", Markup(script)) if script else None
    page = tag("html", "\n", head, "\n", tag("body", *body, "\n", end), lang="en")
    return f"<!doctype html>\n{page}\n"


def _document(facts: Facts, still: str, data: Markup | None) -> str:
    """Return the page: with the viewer where there are data for it."""
    interactive = data is not None
    title = f"Registration report: {facts.title}" if facts.title else "Registration report"
    return shell(
        title,
        picture.data_url(facts.scene.thumbnail()),
        asset("page.css"),
        _script("volumes.js", "drawing.js", "viewer.js") if interactive else "",
        "\n",
        _header(facts),
        _tiles(facts),
        "\n",
        tag("main", _viewer() if interactive else None, _still(facts, still), _repeat(facts)),
        "\n",
        _details(facts),
        _footer(facts),
        data,
    )


def _header(facts: Facts) -> Markup:
    verdict = facts.result.verdict
    grade = verdict.grade if verdict else UNKNOWN
    error = f"estimated mean error {millimetres(verdict.error_mm)}" if verdict else None
    said = verdict.meaning if verdict else "the result is of a library that gave no verdict"
    subject = facts.title or _sizes(facts)
    reasons = [tag("li", reason) for reason in (verdict.reasons if verdict else ())]
    return tag(
        "header",
        tag(
            "div",
            tag(
                "h1",
                tag("span", SIGNS.get(grade, "?"), class_="sign", aria_hidden="true"),
                f" Verdict: {grade}",
                join(", ", tag("span", error, class_="error")) if error else None,
            ),
            " ",
            tag("p", said[:1].upper() + said[1:], ". ", class_="meaning"),
            tag("ul", reasons) if reasons else None,
            class_="said",
        ),
        tag(
            "div",
            tag("b", subject, title=subject),
            tag("span", f"MorphSeek {facts.result.metrics['version']}, {_now()}"),
            tag("span", "For research use; not a medical device"),
            class_="what",
        ),
        class_=f"verdict {grade}",
    )


def _now() -> str:
    return datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")


def _sizes(facts: Facts) -> str:
    given = [image for image in (facts.moving, facts.fixed) if image is not None]
    return " onto ".join(repr(image)[6:-1].split(",")[0] for image in given)


def _tiles(facts: Facts) -> Markup:
    return tag(
        "dl",
        *(
            tag("div", tag("dt", what), tag("dd", tag("b", value), " ", tag("small", remark)))
            for what, value, remark in tiles(facts)
        ),
        class_="tiles",
    )


def tiles(facts: Facts) -> list[tuple[str, str, str]]:
    """Return the figures at the head: what, value, remark."""
    m = facts.result.metrics
    found = [*_known_errors(facts), *_overlaps(facts)]
    found.append(
        (
            f"Similarity ({m['similarity']})",
            f"{m['similarity_after']:.3f}",
            f"before {m['similarity_before']:.3f}",
        )
    )
    folds = m["njd_percent"]
    found.append(("Folding (NJD)", f"{folds:.3f} %", "of all voxels" if folds else "none"))
    found.append(
        (
            "Volume change of a voxel",
            f"\u00d7{m['jacobian_min']:.2f} to \u00d7{m['jacobian_max']:.1f}",
            "",
        )
    )
    found.append(
        (
            "Mean displacement",
            f"{m['displacement_mean_mm']:.1f} mm",
            f"at most {m['displacement_max_mm']:.1f}",
        )
    )
    if spread := m.get("uncertainty"):
        remark = f"95 % below {spread['p95_mm']:.1f} mm"
        found.append(("Uncertainty", f"{spread['mean_mm']:.1f} mm", remark))
    cached = ", from the cache" if m["cached"] else ""
    remark = f"{m['device']}, {m['threads']} threads{cached}"
    found.append(("Time", f"{m['seconds']['total']:.1f} s", remark))
    return found


def _known_errors(facts: Facts) -> list[tuple[str, str, str]]:
    found = []
    if facts.truth:
        after, initial = facts.truth["after"], facts.truth["initial"]
        remark = (
            f"median {after['median_mm']:.1f}, 95 % below {after['p95_mm']:.1f}; by the initial"
            f" transform {initial['mean_mm']:.1f}"
        )
        found.append(("Mean error to the truth", f"{after['mean_mm']:.1f} mm", remark))
    if facts.points is not None:
        points = facts.points
        remark = f"before {points.before_mm.mean():.1f}, worst {points.after_mm.max():.1f} mm"
        part = " that steered" if any(points.steered) else ""
        name = f"Error at {len(points.names)} landmarks{part}"
        found.append((name, f"{points.after_mm.mean():.1f} mm", remark))
    return found


def _overlaps(facts: Facts) -> list[tuple[str, str, str]]:
    scores = facts.scores
    if not scores:
        return []
    found = [("Mean Dice", f"{mean_dice(scores):.3f}", f"before {mean_dice(scores, 'before'):.3f}")]
    if len(scores) > 1:
        worst = min(scores, key=lambda s: s.dice_after)
        found.append(("Worst label", f"{worst.dice_after:.3f}", facts.name(worst.label)))
    return found


def _viewer() -> Markup:
    return Markup(asset("viewer.html"))


def _still(facts: Facts, still: str) -> Markup:
    rows = " The upper row is before, the lower one after." if facts.moving is not None else ""
    lines = (
        " Outlines: the fixed labels in blue, the moving ones in orange."
        if 0 < len(facts.scene.values) <= 12
        else ""
    )
    caption = f"Axial, coronal and sagittal plane.{rows}{lines} The patient's right is on the left."
    return tag(
        "figure",
        tag("img", alt="The moving image on the fixed grid, in three planes", src=still),
        tag("figcaption", caption),
        tag("noscript", tag("p", "Scrolling and the overlays need JavaScript.")),
        id="still",
    )


def _repeat(facts: Facts) -> Markup:
    m = facts.result.metrics
    options = ", ".join(f"{k} = {v}" for k, v in facts.result.options.items() if k != "cache")
    set_here = f"; options set: {options}" if options else ""
    return tag(
        "section",
        tag("h2", "To repeat it"),
        tag(
            "p",
            tag("code", facts.command, id="command", tabindex="0"),
            tag("button", "copy", id="copy", type="button", hidden=True),
            class_="command",
        )
        if facts.command
        else None,
        tag("p", f"Seed {m['seed']}, {m['threads']} threads{set_here}.", class_="dim"),
        class_="repeat",
    )


def _details(facts: Facts) -> Markup:
    metrics = facts.result.metrics
    parts: list[Any] = []
    if remarks := notes(metrics):
        parts.append(_section("Please note", tag("ul", [tag("li", remark) for remark in remarks])))
    if lines := explanation(metrics):
        parts.append(_section("What was chosen and why", _pairs(lines)))
    if facts.truth:
        parts.append(_truth(facts.truth))
    if facts.points is not None:
        parts.append(_landmark_table(facts.points))
    if facts.scores:
        parts.append(_label_table(facts))
    parts.append(_section("Measurements", _pairs(_measurements(facts))))
    parts.append(_times(metrics["seconds"]))
    return tag("div", *parts, class_="details")


def _section(heading: str, *content: Any, caption: str = "") -> Markup:
    said = tag("p", caption, class_="dim") if caption else None
    return join(tag("section", tag("h2", heading), said, *content), "\n")


def _pairs(lines: Sequence[tuple[str, str]]) -> Markup:
    rows = (tag("tr", tag("th", what, scope="row"), tag("td", said)) for what, said in lines)
    return tag("table", *rows)


def _table(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    """Return a table; the first column is text, cells that are no markup are numbers."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in heading)))
    body = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(c if isinstance(c, Markup) else tag("td", c, class_="n") for c in row[1:]),
        )
        for row in rows
    )
    return tag("table", head, tag("tbody", *body), class_="grid")


def _truth(truth: dict[str, Any]) -> Markup:
    def cell(row: dict[str, Any], when: str) -> Markup:
        d, start = row[when], row["initial"]
        worse = when == "after" and d["mean_mm"] > 1.05 * start["mean_mm"]
        spread = tag("small", f" ({d['median_mm']:.1f}; {d['p95_mm']:.1f})")
        sign = (
            tag("span", "\u25b2 ", title="worse than by the initial transform") if worse else None
        )
        return tag("td", sign, f"{d['mean_mm']:.1f}", spread, class_="n worse" if worse else "n")

    rows = [
        [row["name"], row["points"], *(cell(row, when) for when in ("before", "initial", "after"))]
        for row in [dict(truth, name="all"), *truth["organs"]]
    ]
    return _section(
        "Error to the truth",
        _table(("", "points", "before", "after the initial transform", "after all"), rows),
        caption=(
            "Distance in mm between where the transform carries a point of the fixed image and"
            f" where the point truly lies in the moving one, at {truth['points']} points in organs"
            " that both images show. Mean, with median and 95th percentile; marked \u25b2 where it"
            " is more than 5 % above that of the initial transform."
        ),
    )


def _landmark_table(points: LandmarkErrors) -> Markup:
    order = np.argsort(-points.after_mm, kind="stable")
    steered = points.steered or [False] * len(points.names)
    rows = [
        [
            points.names[i],
            f"{points.before_mm[i]:.1f} mm",
            f"{points.after_mm[i]:.1f} mm",
            "steered" if steered[i] else "only measures",
        ]
        for i in order
    ]
    rows += [[p["name"], "", "", f"{p['image']} image alone"] for p in points.alone]
    caption = "Distance of the moving landmark from where the fixed one is carried; worst first."
    if any(steered):
        caption += " What steered is no measure of the rest."
    return _section(
        "Landmarks",
        _table(("landmark", "error before", "error after", "part"), rows),
        caption=caption,
    )


def _label_table(facts: Facts) -> Markup:
    def meter(value: float) -> Markup:
        return tag(
            "td", tag("meter", min=0, max=1, value=f"{value:.3f}"), f" {value:.3f}", class_="n"
        )

    def distance(value: float | None) -> str:
        return "\u2013" if value is None else f"{value:.1f} mm"

    rows = [
        [
            facts.name(s.label),
            meter(s.dice_before),
            meter(s.dice_after),
            distance(s.hd95_before),
            distance(s.hd95_after),
            f"{s.volume_error_percent:+.0f} %",
        ]
        for s in sorted(facts.scores, key=lambda s: s.dice_after)
    ]
    heading = ("label", "Dice before", "Dice after", "HD95 before", "HD95 after", "volume")
    return _section(
        "Labels",
        _table(heading, rows),
        caption=(
            "Overlap (Dice, 1 is perfect) and distance (HD95, the 95th percentile between the"
            " surfaces) of the fixed and the moving labels; by how much the transform mistakes the"
            " volume. Worst first."
        ),
    )


def _measurements(facts: Facts) -> list[tuple[str, str]]:
    m = facts.result.metrics
    align = m["align"]
    given = (("Fixed image", facts.fixed), ("Moving image", facts.moving))
    tilt = facts.scene.axes.tilt()
    steps = ", ".join(f"{s['reward']:.4f}" for s in m["steps"] or []) + " (reward)"
    return [
        *((what, repr(image)[6:-1]) for what, image in given if image is not None),
        (
            "Orientation",
            f"oblique {tilt:.0f}\u00b0: planes along the nearest anatomical axes"
            if tilt >= 1
            else "along the anatomical axes",
        ),
        (
            "Similarity before / initial / after",
            f"{m['similarity_before']:.4f} / {m['similarity_align']:.4f} /"
            f" {m['similarity_after']:.4f}",
        ),
        (
            "Initial transform",
            f"{align['method']}, confidence {align['confidence']:.2f}, overlap"
            f" {100 * align['overlap']:.0f} %",
        ),
        ("Modality", "same" if align["same_modality"] else "different"),
        (
            "Jacobian determinant",
            f"{m['jacobian_min']:.3f} to {m['jacobian_max']:.3f}, SDlogJ {m['sdlogj']:.4f}",
        ),
        ("Model", m["model"]),
        ("Network steps", steps if m["steps"] else "none"),
        ("Refinement", _refinement(m["refine"])),
        ("Peak memory", f"{m['peak_bytes'] / 2**20:.0f} MiB"),
    ]


def _refinement(refine: dict[str, Any]) -> str:
    levels = refine["levels"] or []
    if not levels:
        return "none"
    said = (f"{len(v['similarity'])} iterations at {v['spacing_mm']:.1f} mm" for v in levels)
    return f"{refine['similarity']}, " + ", ".join(said)


def _times(seconds: dict[str, float]) -> Markup:
    total = seconds["total"]
    rows = [
        [
            name,
            tag("td", tag("meter", min=0, max=f"{max(total, 1e-9):.3f}", value=f"{s:.3f}")),
            f"{s:.2f} s",
        ]
        for name, s in seconds.items()
        if name != "total"
    ]
    rows.append(["total", tag("td"), f"{total:.2f} s"])
    return _section("Time", _table(("stage", "", "seconds"), rows))


def _footer(facts: Facts) -> Markup:
    return tag(
        "footer",
        "For research use. MorphSeek is not a medical device: a result needs the judgement of"
        " someone who can read these images before anything is decided on it. The verdict comes"
        " from the two images alone: whether structures that look alike are the same one, it"
        " cannot know, nor whether the images are of one patient. Views are in radiological"
        " convention, the patient's"
        f" right on the viewer's left. MorphSeek {facts.result.metrics['version']}.",
    )
