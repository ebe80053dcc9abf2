"""report.html: one self-contained page that shows what a registration did."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import numpy as np

from .. import _files, images
from .._engine.generated import Unpack
from ..landmarks import LandmarksLike
from ..result import Registration
from ..scoring import LabelScore, LandmarkErrors, score_landmarks
from ..verdict import UNKNOWN, millimetres
from . import picture, viewer_data
from .details import details
from .facts import Facts, tiles
from .markup import Markup, join, tag
from .shell import SIGNS, asset, script_of, shell
from .views import Scene

Size = Literal["full", "small"]

MOST_BYTES = 6_000_000
MOST_BYTES_SMALL = 200_000
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
    result: Registration,
    fixed: images.ImageLike,
    moving: images.ImageLike,
    **content: Unpack[Content],
) -> None:
    """Write the page.

    Parameters
    ----------
    path : path
        Of the .html file.
    result : Registration
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
    result: Registration,
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


def _points(result: Registration, content: Content) -> LandmarkErrors | None:
    landmarks = content.get("landmarks")
    if landmarks is None or isinstance(landmarks, LandmarkErrors):
        return landmarks
    found = score_landmarks(result, *landmarks)
    names = content.get("landmark_names", ())[: len(found.names)]
    return dataclasses.replace(found, names=[*names, *found.names[len(names) :]])


def _document(facts: Facts, still: str, data: Markup | None) -> str:
    """Return the page: with the viewer where there are data for it."""
    interactive = data is not None
    title = f"Registration report: {facts.title}" if facts.title else "Registration report"
    return shell(
        title,
        picture.data_url(facts.scene.thumbnail()),
        asset("page.css"),
        script_of("volumes.js", "drawing.js", "viewer.js") if interactive else "",
        "\n",
        _header(facts),
        _tiles(facts),
        "\n",
        tag("main", _viewer() if interactive else None, _still(facts, still), _repeat(facts)),
        "\n",
        details(facts),
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
