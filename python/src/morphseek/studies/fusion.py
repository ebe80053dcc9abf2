"""One label map of several that lie on one grid: by votes, by weighted votes, or by STAPLE.

Joint label fusion follows H. Wang et al., "Multi-atlas segmentation with joint label fusion", IEEE
TPAMI 35 (2013): atlases that err alike share one vote.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import SimpleITK as sitk

from .. import errors
from ..images.arrays import as_array, is_array

Fusion: TypeAlias = Literal["majority", "joint", "staple"]
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)

_CHUNK = 4096  # voxels at a time, whose patches stay in the processor's cache
_OUTSIDE = -1
_ALPHA, _BETA = 1.0, 2.0  # added to the diagonal of the matrix of errors; its entries' exponent
_FLAT = 1e-6  # the standard deviation of a patch that shows nothing, the image's being 1


@dataclasses.dataclass(frozen=True, repr=False)
class Fused:
    """A label map of several.

    Examples
    --------
    >>> maps = [np.ones((2, 2, 2), int), np.ones((2, 2, 2), int), np.zeros((2, 2, 2), int)]
    >>> studies.fuse_labels(maps)
    Fused(2 x 2 x 2 voxels, mean agreement 0.67)
    """

    labels: np.ndarray
    """Integers, shape (z, y, x)."""
    agreement: np.ndarray
    """The share of the votes that the label got, 0..1, by their weights where they are weighted:
    float32, shape (z, y, x). 0 where no map reaches.
    """

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.labels.shape[::-1]))
        return f"Fused({size} voxels, mean agreement {self.agreement.mean():.2f})"

    def to_dict(self) -> dict[str, Any]:
        """Return how many voxels each label has, 0 among them, and their mean agreement.

        Examples
        --------
        >>> maps = [np.zeros((1, 1, 4), int), np.ones((1, 1, 4), int)]
        >>> studies.fuse_labels(maps).to_dict()
        {'labels': [{'label': 0, 'voxels': 4, 'agreement': 0.5}]}
        """
        values, place, counts = np.unique(self.labels, return_inverse=True, return_counts=True)
        agreement = np.bincount(place.ravel(), weights=self.agreement.ravel()) / counts
        return {
            "labels": [
                {"label": int(v), "voxels": int(n), "agreement": float(a)}
                for v, n, a in zip(values, counts, agreement)
            ]
        }


def fuse_labels(
    maps: Sequence[np.ndarray],
    method: Fusion = "majority",
    *,
    reach: Sequence[np.ndarray] | None = None,
    target: np.ndarray | None = None,
    images: Sequence[np.ndarray] | None = None,
    radius: int = 2,
) -> Fused:
    """Return one label map of several on one grid.

    Parameters
    ----------
    maps : sequence of array-like
        Integers, shape (z, y, x): labels carried from as many atlases.
    method : {"majority", "joint", "staple"}
        ``majority``: every map has one vote; where two labels have as many, the smaller number
        stands. ``joint``: joint label fusion, votes weighted at each voxel by how well the images
        match around it. ``staple``: votes weighted by how well each map does, as STAPLE estimates.
    reach : sequence of array-like, optional
        bool, shape (z, y, x): where a map knows a label. Elsewhere it does not vote.
    target, images : array-like, sequence of array-like
        For ``joint``: the image to be labelled, and the atlases' images on its grid, of one
        contrast: shape (z, y, x).
    radius : int
        For ``joint``, voxels: half the width of the patch that is compared.

    Raises
    ------
    InvalidArgumentError
        There is no map, one is no array of numbers, or they differ in shape.

    Examples
    --------
    >>> maps = [np.full((1, 1, 2), k) for k in (1, 1, 2)]
    >>> fused = fuse_labels(maps)
    >>> fused.labels, fused.agreement.round(2)
    (array([[[1, 1]]]), array([[[0.67, 0.67]]], dtype=float32))
    """
    errors._check_choice("fusion", method, FUSIONS)
    maps = _arrays(maps)
    if not maps:
        raise errors.InvalidArgumentError("fusion: there is no label map; give one or more")
    reach, images = (None if each is None else _arrays(each) for each in (reach, images))
    (target,) = (None,) if target is None else _arrays([target])
    others = [*(reach or ()), *(images or ()), *(() if target is None else (target,))]
    for array in (*maps, *others):
        if array.shape != maps[0].shape:
            raise errors.InvalidArgumentError(
                f"fusion: shapes {maps[0].shape} and {array.shape}; all must be on one grid"
            )
    values = np.unique(np.concatenate([np.unique(m) for m in maps]))
    votes = np.stack([np.searchsorted(values, m).astype(np.int32) for m in maps])
    if reach is not None:
        votes[~np.stack([np.asarray(r, bool) for r in reach])] = _OUTSIDE
    top = votes.max(0)
    numbers, agreement = np.maximum(top, 0), (top >= 0).astype(np.float32)
    doubt = ((votes != top) & (votes >= 0)).any(0)
    if doubt.any():
        places = np.flatnonzero(doubt)
        if method == "staple":
            chosen, share = _staple(votes, doubt, len(values))
        else:
            weigher = None
            if method == "joint":
                if target is None or images is None or len(images) != len(maps):
                    raise errors.InvalidArgumentError(
                        "joint fusion compares images; give the target, and an image for each map"
                    )
                weigher = _Joint(target, images, radius)
            chosen, share = _vote(votes.reshape(len(maps), -1), places, len(values), weigher)
        numbers.ravel()[places], agreement.ravel()[places] = chosen, share
    labels = values[numbers]
    labels[top < 0] = 0  # no map reaches here
    return Fused(labels, agreement)


def _arrays(sources: Sequence[Any]) -> list[np.ndarray]:
    """Return arrays of numbers; refuse what is none, as an image that knows its place."""
    found = []
    for source in sources:
        try:
            found.append(as_array(source, "fusion") if is_array(source) else np.asarray(source))
        except ValueError:  # lists of several lengths
            found.append(np.asarray(None))
        if found[-1].dtype.kind not in "biuf":
            raise errors.InvalidArgumentError(
                f"fusion: a {type(source).__name__} is no array of numbers (z, y, x); give arrays,"
                " of images their voxels"
            )
    return found


def smallest(labels: np.ndarray) -> np.ndarray:
    """Return labels in the smallest type of integers that holds them."""
    return labels.astype(np.result_type(*map(np.min_scalar_type, (labels.min(), labels.max()))))


class Votes:
    """The votes of label maps, voxel by voxel, each with its weight. Labels count as numbers from
    0; of several with as many votes, the smallest wins.
    """

    def __init__(self, labels: int, voxels: int, kind: Any = np.float64):
        self._scores = np.zeros((labels, voxels), kind)
        self._total = np.zeros(voxels, kind)

    def add(self, labels: np.ndarray, weight: Any) -> None:
        """Count one map; its weight is 0 where it abstains, negative to take a vote back."""
        self._scores[labels, np.arange(len(labels))] += weight
        self._total += weight

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each voxel's label and its share of the votes; 0 where nobody votes."""
        share = self._scores.max(0) / np.where(self._total > 0, self._total, 1)
        return self._scores.argmax(0), np.clip(share, 0, 1)


def _vote(
    votes: np.ndarray, places: np.ndarray, labels: int, weigher: _Joint | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels with the most votes at these voxels, and their share."""
    chosen, share = np.empty(len(places), np.int32), np.empty(len(places), np.float32)
    for start in range(0, len(places), _CHUNK):
        here = slice(start, start + _CHUNK)
        at = places[here]
        weights = np.ones(len(votes)) if weigher is None else weigher(at)
        count = Votes(labels, len(at))
        for one, weight in zip(votes[:, at], weights):
            count.add(np.maximum(one, 0), np.where(one >= 0, weight, 0))
        chosen[here], share[here] = count.result()
    return chosen, share


class _Joint:
    """The weights of joint label fusion."""

    def __init__(self, target: np.ndarray, images: Sequence[np.ndarray], radius: int):
        self._shape = target.shape
        # along an axis of one voxel there is nothing to look for
        self._reach = [radius if n > 1 else 0 for n in target.shape]
        self._target, *self._images = (
            np.pad(_scaled(a), [(r, r) for r in self._reach], mode="edge")
            for a in (target, *images)
        )
        offsets = itertools.product(*(range(-r, r + 1) for r in self._reach))
        self._patch = self._flat(np.array(list(offsets)))

    def _flat(self, offsets: np.ndarray) -> np.ndarray:
        strides = np.array(self._target.strides) // self._target.itemsize
        return np.asarray(offsets @ strides)

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """Return the weights of the atlases, (n, voxels), at flat places; their sum is 1."""
        index = np.stack(np.unravel_index(places, self._shape), 1)
        at = self._flat(index + self._reach)[:, None] + self._patch
        target = _normalised(self._target.ravel()[at])
        apart = np.stack([np.abs(_normalised(i.ravel()[at]) - target) for i in self._images])
        errors_of = np.einsum("nvp,mvp->vnm", apart, apart) / max(1, apart.shape[2] - 1)
        matrix = errors_of.astype(np.float64) ** _BETA + _ALPHA * np.eye(len(apart))
        weights = np.linalg.solve(matrix, np.ones((*matrix.shape[:2], 1)))[..., 0].T
        return np.asarray(weights / weights.sum(0))


def _scaled(image: np.ndarray) -> np.ndarray:
    """Return an image of mean 0 and standard deviation 1, by which flat patches are told."""
    spread = float(image.std(dtype=np.float64))
    return np.asarray((image - image.mean(dtype=np.float64)) / (spread or 1), np.float32)


def _normalised(patches: np.ndarray) -> np.ndarray:
    """Return patches (voxels, n) of mean 0 and standard deviation 1; flat ones are 0."""
    patches = patches - patches.mean(1, keepdims=True)
    spread = patches.std(1, keepdims=True)
    return np.asarray(patches / np.where(spread > _FLAT, spread, 1))


def _staple(votes: np.ndarray, doubt: np.ndarray, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return SimpleITK's labels in the box around all doubt, and the share of plain votes."""
    box = tuple(slice(w.min(), w.max() + 1) for w in np.nonzero(doubt))
    shown = [np.where(v[box] < 0, labels, v[box]) for v in votes]  # one more label: unknown
    maps = [sitk.GetImageFromArray(v.astype(np.uint32)) for v in shown]
    filter_ = sitk.MultiLabelSTAPLEImageFilter()
    filter_.SetLabelForUndecidedPixels(labels + 1)
    chosen = sitk.GetArrayFromImage(filter_.Execute(maps)).astype(np.int64)[doubt[box]]
    cast = votes[:, doubt]
    plain, _ = _vote(cast, np.arange(cast.shape[1]), labels, None)
    chosen = np.where(chosen >= labels, plain, chosen).astype(np.int32)
    known = (cast >= 0).sum(0)
    return chosen, ((cast == chosen).sum(0) / np.maximum(known, 1)).astype(np.float32)
