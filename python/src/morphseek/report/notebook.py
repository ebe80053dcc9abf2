"""A registration in a notebook."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..images import Image, ImageLike
from . import page
from .facts import facts
from .inputs import Measures, Registration
from .render import render
from .views import Scene


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


def summary(result: Registration, fixed: Image | None, moving: Image | None) -> str:
    """Return the verdict, the numbers that matter and a picture, as HTML."""
    scene = Scene(result, fixed, moving)
    plain = facts(scene, fixed, moving, Measures())
    picture = scene.still(700, 70_000)
    return render("card_registration.html.j2", facts=plain, picture=picture, **plain)


def view(
    result: Registration, fixed: ImageLike, moving: ImageLike, height: int, **content: Any
) -> View:
    """Return the interactive page; see :meth:`morphseek.Registration.view`."""
    return View(page.compose(result, fixed, moving, **content), height)
