"""How a result shows itself in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..images import Image, ImageLike
from ..result import Registration
from . import page, picture
from .facts import Facts, tiles
from .markup import join, tag
from .shell import SIGNS
from .views import Scene

_STYLE = (
    "border:1px solid #8886;border-left:8px solid {};border-radius:4px;padding:8px 12px;"
    "max-width:760px;font:14px/1.45 system-ui,sans-serif"
)
_COLORS = {"good": "#0b6e8a", "check": "#a35200", "failed": "#a1125e"}


@dataclasses.dataclass(frozen=True)
class View:
    """The interactive page in a frame of its own, as a notebook shows it."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        """Return the frame: it can run the page's script and reach nothing of the notebook."""
        return tag(
            "iframe",
            srcdoc=self.page,
            sandbox="allow-scripts",
            title="Registration report",
            style=f"width:100%;height:{self.height}px;border:0",
        )

    def __repr__(self) -> str:
        return f"View({len(self.page) / 1e6:.1f} MB, shown by a notebook)"


def summary(result: Registration, fixed: Image | None, moving: Image | None) -> str:
    """Return the verdict, the numbers that matter and a picture, as HTML."""
    scene = Scene(result, fixed, moving)
    facts = Facts(result, fixed, moving, scene)
    verdict = result.verdict
    grade = verdict.grade if verdict else "unknown"
    color = _COLORS.get(grade, "#566169")
    head = f"{SIGNS.get(grade, '?')} Verdict: {verdict.headline if verdict else grade}"
    cell = "padding:0 18px 0 0;text-align:left;white-space:nowrap"
    numbers = tag(
        "table",
        *(
            tag(
                "tr",
                tag("td", what, style=cell),
                tag("td", tag("b", value), f" {remark}", style=cell),
            )
            for what, value, remark in tiles(facts)
        ),
        style="border:0;margin:6px 0",
    )
    rows = "; upper row before, lower row after" if moving is not None else ""
    return tag(
        "div",
        tag("b", head, style=f"color:{color};font-size:16px"),
        tag("ul", *(tag("li", r) for r in verdict.reasons))
        if verdict and verdict.reasons
        else None,
        numbers,
        tag(
            "img",
            src=picture.data_url(scene.still(700, 70_000)),
            alt=f"the moving image in three planes{rows}",
            style="max-width:100%",
        ),
        tag("div", join("For research use", rows, "."), style="opacity:.7;font-size:12px"),
        style=_STYLE.format(color),
    )


def view(
    result: Registration,
    images: tuple[ImageLike, ImageLike],
    labels: tuple[ImageLike | None, ImageLike | None],
    height: int,
    more: Mapping[str, Any],
) -> View:
    """Return the interactive page; see :meth:`morphseek.Registration.view`."""
    from ..scoring import score_labels

    fixed, moving = labels
    given = dict(more)
    if fixed is not None and moving is not None:
        given.setdefault("scores", score_labels(result, fixed, moving))
    text = page.compose(result, *images, fixed_labels=fixed, moving_labels=moving, **given)
    return View(text, height)
