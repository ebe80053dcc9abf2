"""Whether a registration can be trusted: the engine's verdict, and how it came to the result, in
words.

The engine judges; here its metrics are read and put into sentences, for every front end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from ._json import Plain

Grade: TypeAlias = Literal["good", "check", "failed"]

GRADES: tuple[Grade, ...] = get_args(Grade)
"""From the best."""

UNKNOWN = "unknown"
"""What stands in a grade's place where a result of an older library has none."""

MEANINGS: dict[Grade, str] = {
    "good": "nothing that was measured speaks against the result",
    "check": "look at the result before you use it",
    "failed": "do not use the result",
}

SIGNS = {"good": "\u2713", "check": "!", "failed": "\u2715"}
"""For those who see no color."""


@dataclasses.dataclass(frozen=True)
class Verdict(Plain):
    """What the engine, which knows nothing but the two images, thinks of a registration.

    ``good``: the images fit sharply where they were laid, and nothing that was measured speaks
    against the result. ``check``: something calls for a look before the result is used;
    ``reasons`` say what. ``failed``: do not use it; the images hold no evidence that they belong
    where they were laid, or they share next to nothing there.

    What it cannot know: whether two structures that look alike are the same one, what happened
    where the images show nothing (inside a homogeneous organ, in a tumour that only one of them
    has), and whether the two images are of one patient. ``good`` is no clearance for treatment, and
    ``error_mm`` is an estimate for the whole image: single places can be much further off.

    >>> print(Verdict("good", (), 0.42))
    good, estimated error 0.4 mm
    >>> print(Verdict("check", ("The images share 12 %.", "The deformation folds."), 3.1))
    check: The images share 12 %; The deformation folds
    """

    grade: Grade
    reasons: tuple[str, ...]
    """In plain words; empty where the grade is good."""
    error_mm: float
    """Estimated mean distance of points from where they belong, mm."""
    voxel_mm: float = dataclasses.field(default=0.0, repr=False, compare=False)
    """Edge of the cube that has the volume of the fixed image's voxel; 0 where it is not known."""

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> Verdict | None:
        """Return the verdict in a result's metrics, or in report.json, which knows the voxels, too;
        None where an older library gave none.

        >>> Verdict.of({"verdict": {"grade": "good", "reasons": [], "error_mm": 0.4}})
        Verdict(grade='good', reasons=(), error_mm=0.4)
        >>> Verdict.of({})
        """
        judgement = metrics.get("verdict") or {}
        if judgement.get("grade") not in GRADES:  # empty in what the engine read from an old file
            return None
        grid = metrics.get("fixed_grid")
        voxel_mm = 0.0 if grid is None else math.prod(map(float, grid[3:6])) ** (1 / 3)
        return cls(
            judgement["grade"],
            tuple(judgement["reasons"] or ()),
            float(judgement["error_mm"]),
            voxel_mm,
        )

    @property
    def meaning(self) -> str:
        """What the grade asks of the reader."""
        return MEANINGS[self.grade]

    @property
    def headline(self) -> str:
        """The grade and the estimated error."""
        return f"{self.grade}, estimated error {millimetres(self.error_mm, self.voxel_mm)}"

    def __str__(self) -> str:
        if not self.reasons:
            return self.headline
        return f"{self.grade}: {'; '.join(reason.rstrip('.') for reason in self.reasons)}"


_LARGE_VOXEL = 3.0  # mm; from there on a length means little without the size of a voxel


def millimetres(length: float, voxel_mm: float = 0.0) -> str:
    """Return a length as it is shown: tenths are what an estimate is good for. Where voxels are
    large it is said in voxels, too.

    >>> millimetres(3.14), millimetres(0.02), millimetres(10.3, voxel_mm=16)
    ('3.1 mm', 'below 0.1 mm', '10.3 mm (0.6 voxels)')
    """
    if length < 0.05:
        return "below 0.1 mm"
    voxels = f" ({length / voxel_mm:.1f} voxels)" if voxel_mm >= _LARGE_VOXEL else ""
    return f"{length:.1f} mm{voxels}"


def grade_of(metrics: Mapping[str, Any]) -> str:
    """Return the grade for a table: :data:`UNKNOWN` where there is none."""
    verdict = Verdict.of(metrics)
    return verdict.grade if verdict else UNKNOWN


def rank(grade: str) -> int:
    """Return what sorts grades, the worst first; what is no grade comes last.

    >>> sorted(["good", "failed", "check"], key=rank)
    ['failed', 'check', 'good']
    """
    worst_first = [*reversed(GRADES)]
    return worst_first.index(grade) if grade in worst_first else len(GRADES)


def counts(grades: Iterable[str]) -> dict[str, int]:
    """Return how many results have which grade; what is no grade counts as :data:`UNKNOWN`, which
    is left out where there is none.

    >>> counts(["good", "check", "good"])
    {'good': 2, 'check': 1, 'failed': 0}
    """
    grades = list(grades)
    numbers: dict[str, int] = {grade: grades.count(grade) for grade in GRADES}
    rest = len(grades) - sum(numbers.values())
    return {**numbers, UNKNOWN: rest} if rest else numbers


def tally(numbers: Mapping[str, int]) -> str:
    """Return :func:`counts` as text.

    >>> tally({"good": 97, "check": 2, "failed": 1})
    '97 good, 2 check, 1 failed'
    """
    return ", ".join(f"{count} {grade}" for grade, count in numbers.items())


def notes(metrics: Mapping[str, Any]) -> list[str]:
    """Return the warnings that are not among the verdict's reasons, to be shown beside it."""
    verdict = Verdict.of(metrics)
    return [w for w in metrics["warnings"] if verdict is None or w not in verdict.reasons]


_STARTS = {
    "none": "as the images lay, by their headers or the initial transform given",
    "header": "as the images lay by their headers; no alignment was better",
    "given": "the initial transform that was given; no alignment was better",
    "deformation": "the deformation that was given, and its affine part",
    "com": "the centres of mass, laid on each other",
    "rigid": "a rigid alignment",
    "affine": "an affine alignment",
}
_SIMILARITIES = {
    "ncc": "local correlation of the intensities (ncc)",
    "mse": "differences of the intensities (mse)",
    "mind": "local structure, which holds across contrasts (mind)",
}


def explanation(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how the engine came to the result, as (what, in words): which start it kept, what it
    compared, how much of the search it took, how smooth the field is, what the referee said, and
    its reasons.

    What a result of an older library does not tell is left out.
    """
    plan, align = metrics.get("plan") or {}, metrics.get("align") or {}
    lines = []
    if start := plan.get("start") or align.get("method"):
        words = _STARTS.get(start, start)
        if start in ("rigid", "affine") and "confidence" in align:
            words += f", confidence {align['confidence']:.2f} (0 to 1)"
            if rival := align.get("rival_mm"):
                words += f", the next best place {rival:.3g} mm away"
        if "overlap" in align:
            words += (
                f"; the fields of view overlap by {100 * align['overlap']:.0f} % of the smaller"
            )
        lines.append(("Start", words))
    if similarity := plan.get("similarity"):
        lines.append(("Similarity", _SIMILARITIES.get(similarity, similarity)))
    for channel in metrics.get("channels") or ():
        lines.append((f"Channel {channel['name']}", _channel(channel)))
    if plan.get("similarity") or plan.get("search"):
        share = 100 * plan.get("search", 0)
        counts = f"{share:.0f} % of the displacement that it found counts"
        lines.append(("Search", counts if share else "nothing in the result is from a search"))
    if smoothness := plan.get("smoothness_mm"):
        lines.append(("Smoothness", f"tissue moves together over {smoothness:.1f} mm"))
    if (referee := metrics.get("referee")) and Verdict.of(metrics):
        lines += _referee_lines(referee)
    if reasons := plan.get("reasons"):
        lines.append(("Because", "; ".join(reason.rstrip(".") for reason in reasons)))
    return lines


def _channel(channel: Mapping[str, Any]) -> str:
    """Return what a channel was compared by, and how it came to match."""
    how = channel["similarity"]
    measure = "overlap (Jaccard)" if how == "labels" else "correlation"
    what = f"{channel['labels']} labels" if how == "labels" else _SIMILARITIES.get(how, how)
    return (
        f"weight {channel['weight']:g}: {what};"
        f" {measure} {channel['before']:.2f} -> {channel['after']:.2f} (0 to 1)"
    )


def _referee_lines(referee: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return what the referee, a comparison of the images that no stage optimises, saw."""
    gain = referee["gain"]
    closer = "closer to" if gain > 0 else "no closer to"
    deformation = (
        f"it brought the images {closer} each other than the alignment did ({gain:+.2f}; 0 is no"
        " difference)"
        if gain
        else "none in the result"
    )
    fit = (
        f"correlation {referee['correlation']:.2f} (0 to 1), over {100 * referee['common']:.0f} %"
        " of the smaller image, which both show"
    )
    far = f"by {referee['reach_mm']:.0f} mm or less" if "reach_mm" in referee else "a little"
    end = f", after the deformation by {_percent(referee['end'])}" if referee["end"] else ""
    place = (
        f"a shift of the aligned image {far} makes the match worse by"
        f" {_percent(referee['start'])}{end}; if it hardly mattered (near 0 %), the images would"
        " not show where they belong"
    )
    return [("Deformation", deformation), ("Fit", fit), ("Certainty of place", place)]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share < 10 else "more than 1000 %"


def explain(metrics: Mapping[str, Any]) -> str:
    """Return the verdict, its reasons, and :func:`explanation`, as text."""
    verdict = Verdict.of(metrics)
    if verdict is None:
        head = [f"Verdict: {UNKNOWN}; the result is of a library that gave none"]
    else:
        head = [
            f"Verdict: {verdict.headline}; {verdict.meaning}",
            *(f"  - {reason}" for reason in verdict.reasons),
        ]
    return "\n".join([*head, *(f"{what}: {words}" for what, words in explanation(metrics))])
