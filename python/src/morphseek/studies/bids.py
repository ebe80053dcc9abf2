"""Images of a BIDS folder, by their names: ``sub-01_ses-02_run-1_T1w.nii.gz``.

The name alone says all that is asked here, in datasets, derivatives and half-converted studies
alike: no index is made, and nothing is installed for it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .. import errors
from .table import Item, by_value

_NAME = re.compile(
    r"(?P<entities>sub-[0-9A-Za-z+]+(?:_[a-z]+-[0-9A-Za-z+]+)*)_(?P<suffix>[0-9A-Za-z]+)"
    r"\.nii(\.gz)?"
)
_LABELS = "dseg"
#: What a label map of an image may say beyond the image's own name.
_OF_LABELS = {"desc", "space", "res", "label", "hemi", "atlas", "seg"}
_MOST_NAMES = 5  # in a message


@dataclasses.dataclass(frozen=True)
class BidsName:
    """The parts of the name of a BIDS file.

    >>> name = BidsName.of("sub-01_ses-02_T1w.nii.gz")
    >>> name.suffix, name.entities
    ('T1w', {'sub': '01', 'ses': '02'})
    >>> BidsName.of("notes.nii.gz")
    """

    path: Path
    suffix: str
    entities: dict[str, str]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> BidsName | None:
        """Return the parts of a file's name; None where it is no BIDS name of an image."""
        match = _NAME.fullmatch(Path(path).name)
        if match is None:
            return None
        entities = dict(part.split("-", 1) for part in match["entities"].split("_"))
        return cls(Path(path), match["suffix"], entities)

    @property
    def subject(self) -> str:
        """``sub-`` and the subject's label."""
        return f"sub-{self.entities['sub']}"

    @property
    def session(self) -> str:
        """``ses-`` and the session's label; empty where the name has none."""
        return f"ses-{self.entities['ses']}" if "ses" in self.entities else ""

    def order(self) -> tuple[int, list[tuple[str, list[tuple[bool, int, str]]]]]:
        """Return a sort key: the plainest name first, and the first run before the second."""
        rest = {k: v for k, v in self.entities.items() if k not in ("sub", "ses")}
        return len(rest) - ("run" in rest), sorted((k, by_value(v)) for k, v in rest.items())


def find_bids(
    folder: str | os.PathLike[str],
    *,
    suffix: str = "T1w",
    entities: Mapping[str, str] | None = None,
    labels: bool = True,
    label_entities: Mapping[str, str] | None = None,
) -> list[Item]:
    """Return the images of a BIDS folder, one a subject and session, with their label maps.

    Parameters
    ----------
    folder : path
        The dataset, or a folder of derivatives. Subjects' folders are searched; ``sourcedata``,
        ``code`` and hidden folders are not.
    suffix : str
        Of the images: T1w, T2w, FLAIR, bold and so on.
    entities : mapping, optional
        What the names must say: ``{"ses": "01", "acq": "mprage"}``. Several values may be given,
        with commas; an empty one means that the name must not say it.
    labels : bool
        Look for the images' label maps, ``*_dseg.nii.gz``, beside them and in ``derivatives``.
    label_entities : mapping, optional
        What the label maps' names must say where an image has several: ``{"desc": "aseg"}``.

    Returns
    -------
    list of Item
        In the order of subjects and sessions. Where a session has several images that fit, the
        plainest name and the first run is taken, and an InputWarning says so; another one says
        which asked subject or session no image has.

    Raises
    ------
    InputUnreadableError
        There is no such folder, or no image that fits.
    InvalidArgumentError
        An image has several label maps.

    Examples
    --------
    >>> os.makedirs("data/sub-01/anat")
    >>> _ = Path("fixed.nii.gz").rename("data/sub-01/anat/sub-01_T1w.nii.gz")
    >>> [item.id for item in studies.find_bids("data")]
    ['sub-01']
    """
    root = Path(folder)
    wanted = _checked(entities, "entity")
    if not root.is_dir():
        raise errors.InputUnreadableError(
            f"bids: {root} is no folder; give the one that holds the folders sub-..."
        )
    names = list(_names(root))
    images = [n for n in names if n.suffix == suffix and _fits(n, wanted)]
    if not images:
        raise errors.InputUnreadableError(_nothing(root, suffix, wanted, names))
    for asked in ("sub", "ses"):  # of acq=x,y either is enough
        there = {name.entities.get(asked, "") for name in images}
        if lacking := sorted(wanted.get(asked, there) - there - {""}):
            errors._warn(
                f"bids: no image *_{suffix}.nii.gz that fits has"
                f" {', '.join(f'{asked}-{value}' for value in lacking)}; check the names in {root}"
            )
    sessions, maps = _by_session(images), {}
    if labels:
        of_maps = _checked(label_entities, "label entity")
        place = root / "derivatives"
        for folder in sorted([place, *place.glob("*/")]):
            names += _names(folder)
        maps = _by_session(n for n in names if n.suffix == _LABELS and _fits(n, of_maps))
    items, several = [], []
    for key in sorted(sessions):
        name, *others = sorted(sessions[key], key=BidsName.order)
        if others:
            several.append((name, others))
        id = "_".join(filter(None, key))
        own = _label_map(name, maps.get(key, []))
        items.append(Item(id, name.path, own, subject=name.subject, session=name.session))
    if several:
        name, others = several[0]
        errors._warn(
            f"{len(several)} of {len(sessions)} sessions have several images {suffix}; the plainest"
            f" name and the first run is taken: {name.path.name}, and not {others[0].path.name}."
            " Choose by an entity, such as run=2"
        )
    return items


def _checked(entities: Mapping[str, str] | None, what: str) -> dict[str, set[str]]:
    wanted = {}
    for key, value in (entities or {}).items():
        if not re.fullmatch(r"[a-z]+", key):
            raise errors.InvalidArgumentError(
                f"{what}: {key!r} is no entity of BIDS; give such as ses, run, acq, space or desc"
            )
        values = {v.strip() for v in str(value).split(",")}
        wanted[key] = {v.removeprefix(f"{key}-") for v in values}
    return wanted


def _fits(name: BidsName, wanted: Mapping[str, set[str]]) -> bool:
    return all(name.entities.get(key, "") in values for key, values in wanted.items())


def _by_session(names: Iterable[BidsName]) -> dict[tuple[str, str], list[BidsName]]:
    sessions: dict[tuple[str, str], list[BidsName]] = {}
    for name in names:
        sessions.setdefault((name.subject, name.session), []).append(name)
    return sessions


def _names(root: Path) -> Iterator[BidsName]:
    """Give the names of BIDS in the subjects' folders, at any depth."""
    for subject in sorted(root.glob("sub-*")):
        for place, folders, files in os.walk(subject):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for file in sorted(files):
                if name := BidsName.of(Path(place, file)):
                    yield name


def _label_map(image: BidsName, maps: Iterable[BidsName]) -> Path | None:
    """Return the one label map that lies on an image's grid."""
    fits = []
    for name in maps:
        same = all(
            name.entities.get(k) == image.entities.get(k)
            for k in {*name.entities, *image.entities} - _OF_LABELS
        )
        spaces = {image.entities.get("space", ""), "orig", image.suffix}
        if same and name.entities.get("space", "") in spaces | {""}:
            fits.append(name)
    if len(fits) > 1:
        listed = ", ".join(str(name.path) for name in fits[:_MOST_NAMES])
        raise errors.InvalidArgumentError(
            f"bids: {image.path.name} has {len(fits)} label maps: {listed}; choose by an entity of"
            " the label maps, such as desc=aseg, or do without label maps"
        )
    return fits[0].path if fits else None


def _nothing(
    root: Path, suffix: str, wanted: Mapping[str, set[str]], names: Iterable[BidsName]
) -> str:
    of = " ".join(f"{key}={','.join(sorted(values))}" for key, values in wanted.items())
    hint = "a BIDS folder holds sub-01/anat/sub-01_T1w.nii.gz or sub-01/ses-1/anat/..."
    if there := sorted({name.suffix for name in names}):
        hint = f"the images there are {', '.join(there)}"
    return f"bids: {root} has no image *_{suffix}.nii.gz{f' with {of}' if of else ''}; {hint}"
