"""A registration back end for BrainGlobe's brainreg: ``pip install morphseek brainreg``.

brainreg has no place for another back end than NiftyReg, so :func:`backend` puts
:class:`MorphSeekRegistration` where its class around NiftyReg's programs is. Loading, orientation,
filters, volumes and the output folder remain brainreg's own. ``python -m morphseek.brainreg`` is
its command.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from . import _files, errors, images
from ._engine.generated import Options, Unpack
from ._engine.options import plain_options
from ._engine.table import in_python, option_table
from ._json import read as read_json
from .registration import register

try:
    import nibabel
    from brainreg.core import cli
    from brainreg.core.backend.niftyreg import run as niftyreg
    from brainreg.core.backend.niftyreg.parameters import RegistrationParams
    from brainreg.core.backend.niftyreg.registration import BrainRegistration
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"morphseek.brainreg needs {error.name}: pip install brainreg", name=error.name
    ) from None

REPORT = "morphseek.json"
"""In brainreg's folder: what the registration measured, its verdict among it."""
_METADATA = "brainreg.json"
_LPS_TO_RAS = np.array([-1, -1, 1], np.float32)


class MorphSeekRegistration(BrainRegistration):  # type: ignore[misc]
    """MorphSeek in the place of brainreg's class around NiftyReg: the sample is fixed, the atlas
    moves.

    Parameters
    ----------
    paths : brainreg.core.backend.niftyreg.paths.NiftyRegPaths
        The intermediate files.
    registration_params : brainreg.core.backend.niftyreg.parameters.RegistrationParams
        NiftyReg's options, which must be at their defaults.
    n_processes : int, optional
        Threads, unless the options say otherwise.
    options : dict, optional
        Of :func:`morphseek.register`.

    Raises
    ------
    morphseek.errors.InvalidArgumentError
        An option of NiftyReg was set.
    """

    def __init__(
        self,
        paths: Any,
        registration_params: Any,
        n_processes: int | None = None,
        *,
        options: dict[str, Any] | None = None,
    ):
        super().__init__(paths, registration_params, n_processes)
        if vars(registration_params) != vars(RegistrationParams()):
            raise errors.InvalidArgumentError(
                "brainreg: an option of NiftyReg was set, which MorphSeek does not have; leave it"
                " out, or run brainreg without MorphSeek"
            )
        self.options = {"threads": n_processes or None, **(options or {})}

    def register_affine(self) -> None:
        """Do nothing: :meth:`register_freeform` aligns first."""

    def register_freeform(self) -> None:
        """Register the filtered atlas onto the filtered sample, and write :data:`REPORT`.

        Raises
        ------
        morphseek.errors.MorphSeekError
            An image or an option cannot be used; the registration fails.
        """
        found = register(self.dataset_img_path, self.brain_of_atlas_img_path, **self.options)
        self._transform = found.transform
        logging.info("%r\n%s", found, found.explain())
        if found.verdict and found.verdict.grade != "good":
            logging.warning("MorphSeek: %s", found.verdict)
        folder = Path(self.paths.niftyreg_directory).parent
        _files.write_text(folder / REPORT, json.dumps(found.to_dict(), indent=2) + "\n")
        metadata = folder / _METADATA
        if metadata.is_file():  # the command writes it before, a program that calls it may not
            said = read_json(metadata, "metadata")
            _files.write_text(metadata, json.dumps({**said, "backend": "morphseek"}))

    def segment(self) -> None:
        """Bring the atlas's annotations to the sample."""
        self._labels(self.atlas_img_path, self.paths.registered_atlas_img_path)

    def register_hemispheres(self) -> None:
        """Bring the atlas's hemispheres to the sample."""
        self._labels(self.hemispheres_img_path, self.paths.registered_hemispheres_img_path)

    def _labels(self, source: str, out: str) -> None:
        brought = self._transform.apply(
            Path(source), reference=Path(self.dataset_img_path), interpolation="nearest"
        )
        images.write(out, brought)

    def generate_inverse_transforms(self) -> None:
        """Invert the transform; NiftyReg registers the other way instead."""
        self._inverse = self._transform.inverse()

    def transform_to_standard_space(self, image_path: str, destination_path: str) -> None:
        """Bring an image of the sample to the atlas, linearly interpolated."""
        brought = self._inverse.apply(
            Path(image_path), reference=Path(self.brain_of_atlas_img_path)
        )
        images.write(destination_path, brought)

    def generate_deformation_field(self, deformation_field_path: str) -> None:
        """Write where in the atlas each voxel of the sample lies, mm along the atlas's axes, as
        NiftyReg does: NIfTI of shape (i, j, k, 1, 3).
        """
        reference = nibabel.Nifti1Image.from_filename(self.dataset_img_path)
        affine = reference.affine.astype(np.float32)
        moved = self._transform.displacement_mm(Path(self.dataset_img_path)) * _LPS_TO_RAS
        field = moved.transpose(2, 1, 0, 3) + affine[:3, 3]
        for axis, index in enumerate(np.indices(field.shape[:3], sparse=True)):
            field += index[..., None] * affine[:3, axis]
        made = nibabel.Nifti1Image(field[:, :, :, None], reference.affine)
        nibabel.save(made, deformation_field_path)


@contextlib.contextmanager
def backend(**options: Unpack[Options]) -> Iterator[None]:
    """Let brainreg register by MorphSeek as long as the block lasts, in this process: its command,
    its ``main`` and its napari plugin.

    Parameters
    ----------
    **options
        Of :func:`morphseek.register`.

    Raises
    ------
    morphseek.errors.InvalidArgumentError
        The engine does not know an option, or not its value.

    Examples
    --------
    >>> from brainreg.core.backend.niftyreg import run
    >>> with backend(preset="fast"):
    ...     run.BrainRegistration.func.__name__
    'MorphSeekRegistration'
    >>> run.BrainRegistration.__name__
    'BrainRegistration'
    """
    made = functools.partial(MorphSeekRegistration, options=plain_options(options))
    theirs, niftyreg.BrainRegistration = niftyreg.BrainRegistration, made
    try:
        yield
    finally:
        niftyreg.BrainRegistration = theirs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run brainreg's command, with MorphSeek's options beside its own.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default the process's.
    """
    from .cli._app import reported

    parser = argparse.ArgumentParser(
        prog="python -m morphseek.brainreg",
        usage="%(prog)s [options of MorphSeek] IMAGES OUT [options of brainreg]",
        description="brainreg with MorphSeek in NiftyReg's place. brainreg --help has its options,"
        " of which NiftyReg's do not count.",
        allow_abbrev=False,
    )
    kinds = {"int": int, "float": float}
    for option in option_table():
        name = option["name"].replace("_", "-")
        parser.add_argument(
            f"--{name}",
            type=kinds.get(option["type"], str),
            metavar="VALUE",
            help=option["help"].replace("%", "%%"),
        )
    given, rest = parser.parse_known_args(arguments)
    chosen = {n: in_python(n, value) for n, value in vars(given).items() if value is not None}
    before, sys.argv = sys.argv, ["brainreg", *rest]
    try:
        with reported(as_json=False), backend(**chosen):
            cli.main()
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    finally:
        sys.argv = before


if __name__ == "__main__":
    main()
