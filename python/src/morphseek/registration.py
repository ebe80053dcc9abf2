"""Registering one pair."""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from . import errors, images
from ._engine import bindings, core
from ._engine.generated import Options, Unpack
from ._engine.metrics import Metrics
from ._engine.options import plain_options
from ._engine.table import in_python, is_switch, limits
from .channels import ChannelLike, first_and_others, read as read_channels
from .landmarks import LandmarksLike, match_landmarks, steering
from .progress import Progress, Reporter
from .result import Registration
from .transforms.field import Field, read_only
from .transforms.start import start_of


def register(
    fixed: images.ImageLike | Sequence[images.ImageLike | None],
    moving: images.ImageLike | Sequence[images.ImageLike | None],
    *,
    fixed_mask: images.ImageLike | None = None,
    moving_mask: images.ImageLike | None = None,
    rigid_regions: images.ImageLike | None = None,
    channels: Iterable[ChannelLike] | None = None,
    initial_transform: Any = None,
    fixed_landmarks: LandmarksLike | None = None,
    moving_landmarks: LandmarksLike | None = None,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Registration:
    """Register `moving` onto `fixed`.

    Parameters
    ----------
    fixed, moving : ImageLike
        numpy array (z, y, x), SimpleITK, itk or nibabel image, a file, or a folder with one DICOM
        series (:func:`morphseek.images.read`). Spacings, orientations and fields of view may
        differ. Or a list of such images on each side, as many and in the same order (T1, then
        FLAIR), None where a side lacks one: all of them count alike, and the first is what
        masks, other arrays and the result belong to.
    fixed_mask, moving_mask : ImageLike, optional
        Binary mask: only voxels inside it are compared, in the initial alignment and after. A numpy
        array lies on its image's grid.
    rigid_regions : ImageLike, optional
        Label map on the fixed image's grid. Each label but 0 (a bone, an implant, a tumour) moves
        as one body: it is shifted and turned, and keeps its shape.
    channels : iterable of Channel, optional
        More images of both sides with weights of their own, or label maps that drive the
        registration: see :class:`morphseek.Channel`.
    initial_transform : optional
        From fixed to moving space: a file that :meth:`morphseek.Transform.read` reads, a
        :class:`morphseek.Transform`, a result of an earlier registration, a transform or a vector
        image of SimpleITK, a transform of itk, a 4x4 LPS matrix in mm, or an array on the fixed
        image's grid: (3, z, y, x) in voxels or (z, y, x, 3) in LPS mm. A rigid or affine one is
        where the initial alignment starts, or stays with ``initial="none"`` or ``"com"``. From one
        that bends the refinement goes on.
    fixed_landmarks, moving_landmarks : LandmarksLike, optional
        Points that mark the same places in both images: :class:`morphseek.Landmarks`, a file
        (.mrk.json, .fcsv, CSV) or an array (n, 3), LPS mm. They steer the registration, and
        ``landmark_error`` must say how exactly they were marked, mm. They are paired by name where
        both have names in common, else in their order; what only one image has does not steer. To
        measure a result at landmarks that did not steer: ``morphseek.scoring.score_landmarks``.
    progress : callable or bool, optional
        Called with a :class:`Progress` at every change and at least once a second; returning False
        cancels. True shows a bar.
    {options}

    Returns
    -------
    Registration

    Raises
    ------
    morphseek.errors.MorphSeekError
        One class for every cause: see :mod:`morphseek.errors`.
    KeyboardInterrupt
        Ctrl-C, within a fraction of a second.

    Examples
    --------
    >>> import morphseek
    >>> pair = morphseek.phantom.make_pair(size=48)
    >>> r = morphseek.register(pair.fixed, pair.moving, model="none", refine=0, search=False)
    >>> r.displacement().shape, r.warped.shape
    ((3, 48, 48, 48), (48, 48, 48))
    >>> labels = r.apply(pair.moving_labels, interpolation="nearest")
    """
    for name in ("fixed_labels", "moving_labels"):
        if name in options:
            raise errors.InvalidArgumentError(
                f"{name}: registering needs no labels; afterwards result.apply(moving_labels,"
                " interpolation='nearest') brings them along, and"
                " result.score(fixed_labels, moving_labels) measures Dice"
            )
    first, other, others, lacking = first_and_others(fixed, moving, channels)
    target, source = images.read(first, "fixed"), images.read(other, "moving")
    further = read_channels(others, target, source)
    volumes = {"fixed": target, "moving": source}
    for key, mask, image, name in (
        ("fixed_mask", fixed_mask, target, "fixed mask"),
        ("moving_mask", moving_mask, source, "moving mask"),
        ("rigid", rigid_regions, target, "rigid regions"),
    ):
        if mask is not None:
            volumes[key] = images.read_on(mask, image.grid, name)
    start = start_of(initial_transform, target, source)
    chosen = plain_options(options)
    used = [*volumes.values(), *(image for _, pair in further for image in pair)]
    doubts = list(dict.fromkeys(doubt for image in used for doubt in image.doubts))
    marks, notes = None, list[str]()
    if fixed_landmarks is not None or moving_landmarks is not None:
        matched = match_landmarks(fixed_landmarks, moving_landmarks)
        marks, notes = steering(matched, target.grid, source.grid, chosen)

    with Reporter(progress) as reporter:
        core.open_engine()
        outcome = bindings.register(
            {name: (image.float32(), image.grid) for name, image in volumes.items()},
            start.matrix,
            start.before,
            marks,
            [
                (told, (one.float32(), one.grid), (other.float32(), other.grid))
                for told, (one, other) in further
            ],
            doubts,
            chosen,
            reporter,
        )
    outcome.metrics["warnings"] += [*notes, *lacking]
    result = Registration(
        Field(read_only(outcome.displacement), target.grid, source.grid, outcome.initial),
        outcome.warped,
        cast(Metrics, outcome.metrics),
        chosen,
        outcome.uncertainty,
    )
    result._sources = target, source
    return result


def _option_lines() -> str:
    """Return the engine's options as a docstring lists parameters."""
    lines = []
    for option in core.option_table():
        kinds = ["bool"] if is_switch(option) else []
        if words := [word for word in option.get("choices", ()) if word not in ("on", "off")]:
            kinds.insert(0, "{" + ", ".join(f'"{word}"' for word in words) + "}")
        if "prefix" in option:
            kinds.append(f'"{option["prefix"]}..."')
        if "number" in option:
            kinds.append(f"number of {option['number']}")
        kind = " or ".join(kinds) or {"string": "str"}.get(option["type"], option["type"])
        least, most = limits(option)
        if least is not None:
            kind += f" from {least:g}" + (f" to {most:g}" if most is not None else "")
        default = in_python(option["name"], option["default"])
        lines.append(f"{option['name']} : {kind}, default {default!r}\n    {option['help']}")
    return "\n".join(lines)


def _document_options() -> None:
    """Write the engine's options into the signature and the docstring of :func:`register`."""
    if register.__doc__:  # absent under python -OO
        listed = textwrap.indent(_option_lines(), "    ").lstrip()
        register.__doc__ = register.__doc__.replace("{options}", listed)
    signature = inspect.signature(register)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    types = typing.get_type_hints(Options)
    for option in core.option_table():
        name = option["name"]
        default = in_python(name, option["default"])
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name]
            )
        )
    register.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]


_document_options()
