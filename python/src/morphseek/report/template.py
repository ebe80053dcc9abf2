"""template.html: a template and how it came about: pictures by iteration, plots, and the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import images
from .._engine.core import version
from ..verdict import GRADES, counts, tally
from .lines import head, plot
from .markup import Markup, tag
from .picture import data_url, png, sheet
from .shell import SIGNS, asset, shell
from .views import ACROSS_DOWN, Axes, plane_letters

if TYPE_CHECKING:
    from ..atlas import Template


def three_planes(
    image: images.Image, width: int = 420, low: float = 0.0, high: float = 1.0
) -> bytes:
    """Return the middle planes of an image, whose intensities run from ``low`` to ``high``, as a
    PNG file.
    """
    axes = Axes(image.grid)
    volume = axes.turn(image.float32())
    spacing = [image.spacing[column] for column in axes.columns]
    z, y, x = (n // 2 for n in volume.shape)
    planes = [volume[z], volume[::-1, y], volume[::-1, :, x]]
    size = [n * s for n, s in zip(volume.shape[::-1], spacing)]
    sizes = [(size[down], size[across]) for across, down in ACROSS_DOWN]
    grey = [(plane - low) / max(high - low, 1e-12) for plane in planes]
    letters = plane_letters(axes.letters())
    return png(sheet([grey], [[], [], []], sizes, letters, width))


def page(template: Template, command: str = "") -> str:
    """Return the page as HTML that loads nothing."""
    title = f"Template of {len(template.subjects)} images"
    return shell(
        title,
        "data:,",
        asset("page.css") + asset("lines.css") + asset("template.css"),
        "",
        _head(title, template, command),
        "\n",
        _pictures(template),
        "\n",
        _plots(template),
        "\n",
        _table(template),
        tag(
            "footer",
            "For research use. MorphSeek is not a medical device. Gradient and entropy are of"
            " intensities from 0 to 1, between the images' percentiles, where at least half of the"
            f" images reach. MorphSeek {version()}.",
        ),
    )


def _head(title: str, template: Template, command: str) -> Markup:
    first, last = template.iterations[0], template.iterations[-1]
    cells = [
        ("images", str(len(template.used)), f"used of {len(template.subjects)}"),
        ("verdicts", "", tally(counts(subject.grade for subject in template.subjects))),
        ("gradient", f"{last.gradient:.3f}", f"a mm; {first.gradient:.3f} at the start"),
        ("entropy", f"{last.entropy:.2f}", f"bits; {first.entropy:.2f} at the start"),
    ]
    if last.mean_voxels is not None:
        cells.append(
            ("mean of the transforms", f"{last.mean_voxels:.3f}", "voxels from the identity")
        )
    whole, others = template.mean_dice(), template.mean_dice(without_own=True)
    if whole is not None and others is not None:
        cells.append(("Dice", f"{whole:.3f}", f"with the vote; {others:.3f} with the others'"))
    return head(title, cells, command)


def _pictures(template: Template) -> Markup:
    shown = []
    for iteration in template.iterations:
        if not iteration.picture:
            continue
        said = f"{iteration.number}: {iteration.kind}"
        if iteration.left_out:
            said += f"; without {', '.join(iteration.left_out)}"
        image = tag("img", src=data_url(iteration.picture), alt=f"Template, iteration {said}")
        shown.append(tag("figure", image, tag("figcaption", said)))
    return tag("div", *shown, class_="rounds")


def _plots(template: Template) -> Markup:
    made = template.iterations
    numbers = [float(iteration.number) for iteration in made]
    found: list[tuple[str, Sequence[float | None]]] = [
        ("Gradient, a mm", [i.gradient for i in made]),
        ("Entropy, bits", [i.entropy for i in made]),
        ("Change of the template's shape, mm", [i.shape_mm for i in made]),
        (
            "Change of the template's intensities, % of their range",
            [i.change_percent for i in made],
        ),
    ]
    return tag(
        "main",
        *(plot(name, numbers, [("", values)], "iteration") for name, values in found),
        class_="plots",
    )


def _table(template: Template) -> Markup:
    scored = template.mean_dice() is not None
    names = ["", "image", "verdict", "moved mm"] + ["Dice", "Dice, others"] * scored + ["said"]
    grades = [*reversed(GRADES)]
    body = []
    for subject in sorted(
        template.subjects, key=lambda s: grades.index(s.grade) if s.grade in grades else 0
    ):
        numbers: list[str] = [f"{subject.moved_mm:.2f}"]
        if scored:
            numbers += [_mean(subject.dice), _mean(subject.dice_without_own)]
        picture: Any = None
        if subject.picture:
            picture = tag("img", src=data_url(subject.picture), alt="", loading="lazy")
        said = " ".join(subject.reasons)
        if not subject.is_used:
            said = f"Left out. {said}"
        grade = subject.grade
        body.append(
            tag(
                "tr",
                tag("td", picture),
                tag("td", subject.id, tag("br"), tag("small", subject.name)),
                tag("td", f"{SIGNS.get(grade, '?')} {grade}", class_=f"mark {grade}"),
                *(tag("td", value, class_="n") for value in numbers),
                tag("td", said, class_="reason"),
            )
        )
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    return tag("table", tag("thead", head), tag("tbody", *body), class_="frames")


def _mean(overlap: dict[int, float] | None) -> str:
    return f"{np.mean(list(overlap.values())):.3f}" if overlap else "\u2013"
