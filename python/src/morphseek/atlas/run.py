"""The call that makes a template: what it is given, checked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import errors
from .._engine.generated import Options, Unpack
from .._engine.options import checked_options
from ..images.sidecars import check_apart
from ..progress import Progress
from .result import Template, outputs
from .sources import Source, looked_at, read_sources
from .work import Settings, Work


def build_template(
    images: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    labels: Any = None,
    start: Any = "mean",
    iterations: int = 4,
    average: str = "mean",
    sharpen: float = 0.0,
    spacing: float | None = None,
    warped: bool = False,
    workers: int = 1,
    scheduler: str | None = None,
    resume: bool = True,
    command: str = "",
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Template:
    """Make the template of a population: its mean image, in the middle of its shapes.

    Each round registers all images to the template, takes the mean of the transforms out of them,
    so that it becomes the identity, and averages the images in that space. First come a rigid and
    an affine round, then deformable ones, each from the linear parts of the round before.

    Parameters
    ----------
    images : sequence of ImageLike, or path
        Two or more images, or a CSV with the columns image and, optionally, labels and id, relative
        to the file.
    out : path, optional
        Folder for the files of :meth:`Template.save`. The same call goes on there after an
        interruption; of a template that is finished it reads the result.
    labels : sequence of ImageLike, or path, optional
        A label map for each image, on its grid; or the folder that has them under the images'
        names.
    start : "mean", int or ImageLike
        What comes first: the mean of the images, their centres of mass on one another, on a grid
        that holds all of them; an image, by its number from 0; or any other image, as a template
        that there is. The latter two give the template their grid.
    iterations : int
        Deformable rounds; 0 gives the affine mean.
    average : {"mean", "median"}
        Of the intensities. The median holds all images in memory.
    sharpen : float
        Share, 0 to 1, of a Laplacian sharpening that is added to each template.
    spacing : float, optional
        Of the template's voxels, mm: by default the median of the images'. For the start "mean".
    warped : bool
        Also write each image in the template's space.
    workers : int
        Registrations at a time; each gets its share of the cores unless `threads` is given.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers see the same files.
    resume : bool
        False begins anew, and replaces a template of other images in the folder.
    command : str
        What repeats it, for template.html.
    progress : callable or bool, optional
        As of :func:`morphseek.register_pairs`, over all rounds.
    **options
        Of :func:`morphseek.register`. ``smoothness`` is low unless given. ``initial`` says which
        linear rounds there are: affine, rigid alone, or none (com, none).

    Returns
    -------
    Template

    Raises
    ------
    morphseek.errors.MorphSeekError
        An image or a label map that cannot be used, with its name; a folder with other work.
    CancelledError, KeyboardInterrupt
        Registrations that are finished are kept in ``out``.

    Examples
    --------
    >>> import morphseek
    >>> import numpy as np
    >>> body = morphseek.phantom.make_pair(size=32).fixed
    >>> moved = [body.like(np.roll(body.array, n, axis=2)) for n in (-1, 0, 1)]
    >>> found = morphseek.build_template(moved, iterations=0, threads=1)
    >>> [round(float(t.transform_points([[0, 0, 0]])[0, 0] / body.spacing[0])) for t in
    ...  found.transforms]
    [-1, 0, 1]
    """
    settings = Settings(iterations, average, float(sharpen), spacing, workers, scheduler)
    settings.check()
    chosen, model = checked_options({"smoothness": "low", **options})
    sources = read_sources(images, labels)
    first = _first(start, sources)
    work = Work(settings, sources, first, chosen, model, progress)
    try:
        if out is None:
            with tempfile.TemporaryDirectory(prefix="morphseek-") as folder:
                found = work.run(Path(folder), warped, resume, command)
                found.hold()
            return found
        inputs = {f"image {k}": s.image for k, s in enumerate(sources)}
        inputs |= {f"labels {k}": s.labels for k, s in enumerate(sources)}
        inputs["start"] = None if first is None else first.image
        check_apart(out, outputs([s.id for s in sources]), inputs)
        return work.run(Path(out), warped, resume, command)
    finally:
        work.close()


def _first(start: Any, sources: Sequence[Source]) -> Source | None:
    """Return the image that comes first; None for the mean."""
    if isinstance(start, str) and start == "mean":
        return None
    if isinstance(start, (int, np.integer)) and not isinstance(start, bool):
        if not 0 <= start < len(sources):
            raise errors.InvalidArgumentError(
                f"start is {start}; it must be mean, the number of an image from 0 to"
                f" {len(sources) - 1}, or an image"
            )
        return sources[int(start)]
    name = f"start: {start}" if isinstance(start, (str, os.PathLike)) else "the image of start"
    return looked_at("start", name, start, None)
