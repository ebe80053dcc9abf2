"""report.html, one self-contained page of a registration, and what of it a notebook shows."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal, TypedDict

import numpy as np
from markupsafe import Markup

from .. import _files, errors, images
from .._engine.generated import Unpack
from ..scoring import LandmarkErrors
from . import viewer_data
from .facts import facts
from .inputs import Measures, Registration, Scores
from .render import data_url, render
from .views import Scene

Size = Literal["full", "small"]

MOST_BYTES = 6_000_000
_STILL_WIDTH, _STILL_BYTES = 960, 110_000


class Content(TypedDict, total=False):
    """What a page shows beside the images; :func:`write_report` says what each is."""

    fixed_labels: images.ImageLike | None
    moving_labels: images.ImageLike | None
    warped_labels: images.ImageLike | None
    scores: Scores
    label_names: dict[int, str] | None
    landmarks: LandmarkErrors | None
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
    landmarks : LandmarkErrors, optional
        From :func:`morphseek.scoring.score_landmarks`; they are drawn with their errors.
    estimated_error : numpy.ndarray, optional
        The error expected at each voxel of the fixed image, mm: (z, y, x).
    command : str
        What repeats the registration; empty where no command did it.
    title : str
        Which images, for the heading.
    truth : dict, optional
        Of a made-up pair the errors at points, from :meth:`morphseek.phantom.PhantomPair.errors`.
    size : {"full", "small"}, default "full"
        "full" is the interactive page, at most 6 MB; "small" has one picture and the numbers, below
        200 kB.

    Examples
    --------
    >>> morphseek.report.write_report("report.html", result, pair.fixed, pair.moving)
    >>> 200_000 < os.path.getsize("report.html") < 6_000_000
    True
    """
    _files.write_text(path, compose(result, fixed, moving, **content))


def compose(
    result: Registration,
    fixed: images.ImageLike,
    moving: images.ImageLike,
    **content: Unpack[Content],
) -> str:
    """Return the page of :func:`write_report`."""
    if unknown := content.keys() - Content.__annotations__:
        raise TypeError(f"a page has no {', '.join(sorted(unknown))}")
    scene = Scene(
        result, fixed, moving, content.get("fixed_labels"), content.get("moving_labels"),
        content.get("warped_labels"),
    )  # fmt: skip
    points = content.get("landmarks")
    if points is not None and not hasattr(points, "after_mm"):
        raise errors.InvalidArgumentError(
            "landmarks are no errors; give what morphseek.scoring.score_landmarks(result, fixed,"
            " moving) returns"
        )
    measures = Measures(
        content.get("scores", ()), content.get("label_names") or {}, points, content.get("truth"),
        content.get("estimated_error"),
    )  # fmt: skip
    plain = facts(scene, measures) | {
        "command": content.get("command", ""),
        "name": content.get("title", ""),
        "still": scene.still(_STILL_WIDTH, _STILL_BYTES),
        "icon": data_url(scene.thumbnail()),
    }
    if content.get("size", "full") == "small":
        return render("registration.html.j2", facts=plain, data=None, **plain)
    frame = render("registration.html.j2", facts=plain, data="", **plain)
    data = viewer_data.of(scene, measures, MOST_BYTES - len(frame.encode()))
    return render("registration.html.j2", facts=plain, data=Markup(data), **plain)


@dataclasses.dataclass(frozen=True)
class View:
    """The interactive page in a frame of its own, as a notebook shows it."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        """Return the frame: it can run the page's script and reach nothing of the notebook."""
        return render("frame.html.j2", page=self.page, height=self.height)

    def __repr__(self) -> str:
        return f"View({len(self.page) / 1e6:.1f} MB, shown by a notebook)"


def summary(result: Registration, fixed: images.Image | None, moving: images.Image | None) -> str:
    """Return the verdict, the numbers that matter and a picture, as HTML."""
    scene = Scene(result, fixed, moving)
    plain = facts(scene, Measures())
    picture = scene.still(700, 70_000)
    return render("card_registration.html.j2", facts=plain, picture=picture, **plain)
