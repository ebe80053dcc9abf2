"""Make the pairs of a study from its images."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

from .. import errors, images
from .table import ROLES, Item, by_value


def pair_row(fixed: Item, moving: Item, name: str) -> dict[str, Any]:
    """Return a pair of :func:`register_pairs`; an InputWarning says what does not count."""
    row: dict[str, Any] = {"fixed": fixed.image, "moving": moving.image, "id": name}
    for role in ROLES:
        files = {f"{s}_{role}": getattr(i, role) for s, i in (("fixed", fixed), ("moving", moving))}
        known = {name: file for name, file in files.items() if file is not None}
        if len(known) == 1 and role in ("landmarks", "channel"):
            errors._warn(
                f"a {role} does not count in a pair whose other image has none; give both one"
            )
        else:
            row |= known
    return row


def pairs_to(
    items: Iterable[Item],
    template: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    mask: str | os.PathLike[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the pairs of :func:`register_pairs` that bring every image to one: the template is
    fixed. A pair is called as its image.

    >>> rows = studies.pairs_to([Item("sub-01", Path("moving.nii.gz"))], "fixed.nii.gz")
    >>> rows[0]["id"], str(rows[0]["fixed"]), str(rows[0]["moving"])
    ('sub-01', 'fixed.nii.gz', 'moving.nii.gz')
    """
    fixed = Item("template", Path(template), labels and Path(labels), mask and Path(mask))
    listed = [item for item in items if not is_file(item.image, fixed.image)]
    if not listed:
        raise errors.InvalidArgumentError(f"template: there is no image but {template} itself")
    images.read(fixed.image, fixed.id)  # all need it
    return [pair_row(fixed, item, item.id) for item in listed]


def is_file(one: Any, other: Path) -> bool:
    """Whether an image, which may be in memory, is a file, however its path is spelled."""
    if not isinstance(one, (str, os.PathLike)):
        return False
    try:
        return os.path.samefile(one, other)
    except OSError:  # an atlas by its name
        return Path(one).absolute() == other.absolute()


def all_pairs(items: Iterable[Item], *, both_ways: bool = False) -> list[dict[str, Any]]:
    """Return every pair of the images, once: the one that comes first is fixed. n images make
    n (n - 1) / 2 pairs; ``both_ways``, twice as many.

    >>> items = [Item(name, Path(f"{name}.nii")) for name in "abc"]
    >>> [row["id"] for row in all_pairs(items)]
    ['b_to_a', 'c_to_a', 'c_to_b']
    """
    listed = list(items)
    if len(listed) < 2:
        raise errors.InvalidArgumentError("all pairs: there must be two images or more")
    rows = []
    for fixed, moving in combinations(listed, 2):
        rows.append(pair_row(fixed, moving, f"{moving.id}_to_{fixed.id}"))
        if both_ways:
            rows.append(pair_row(moving, fixed, f"{fixed.id}_to_{moving.id}"))
    return rows


def within_subject(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Return the pairs of each subject's later images with the first, which is fixed. Sessions are
    in the order of their names, numbers by value; an InputWarning says where words decide.

    >>> items = [Item(f"sub-1_ses-{k}", Path(f"{k}.nii"), subject="sub-1", session=f"ses-{k}")
    ...          for k in (10, 9)]
    >>> [row["id"] for row in within_subject(items)]
    ['sub-1_ses-10_to_ses-9']
    """
    subjects: dict[str, list[Item]] = {}
    for item in items:
        if not item.subject:
            raise errors.InvalidArgumentError(
                f"within subject: nothing says of whom {item.image} is; give a BIDS folder, or a"
                " table with the columns subject and session"
            )
        subjects.setdefault(item.subject, []).append(item)
    rows, doubtful = [], ""
    for subject, listed in subjects.items():
        first, *later = sorted(listed, key=lambda item: by_value(item.session))
        if later and not doubtful and _words_decide(first.session, later[0].session):
            doubtful = f"of {subject} {first.session} is the first, before {later[0].session}"
        rows += [
            pair_row(first, item, f"{item.id}_to_{first.session or first.id}") for item in later
        ]
    if not rows:
        raise errors.InvalidArgumentError(
            f"within subject: none of the {len(subjects)} subjects has a second session"
        )
    if doubtful:
        errors._warn(
            f"within subject: words in the sessions' names are in the order of the alphabet:"
            f" {doubtful}. Where that is wrong, give a table whose sessions are numbers"
        )
    return rows


def _words_decide(one: str, other: str) -> bool:
    """Whether two sessions first differ in a word: pre and post, not 9 and 10."""
    parts = zip(by_value(one), by_value(other))
    return next((a[0] or b[0] for a, b in parts if a != b), False)
