"""The one table of what needs more than the main installation, and of the extra that brings it.

The errors for a missing package and ``morphseek info doctor`` read it. Which packages an extra has,
and from which version on, says the installed distribution (pyproject.toml). Standard library alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from . import errors

DISTRIBUTION = "morphseek"


class Feature(NamedTuple):
    """Something that a user can do."""

    name: str
    purpose: str
    extra: str
    """Of the distribution; empty for what every installation has."""


FEATURES = (
    Feature("registration", "register, apply, pairs, reports", ""),
    Feature("network", "registration by a network: --model NAME", "network"),
    Feature("gpu", "networks on an NVIDIA GPU", "gpu"),
    Feature("plot", "result.plot()", "plot"),
    Feature("surfaces", "morphseek apply to surfaces and tracts", "surfaces"),
    Feature("x5", "transforms as .x5", "x5"),
    Feature("brainglobe", "brainglobe:NAME of atlases in OME-Zarr", "brainglobe"),
    Feature("dicom", "RT structure sets", "dicom"),
    Feature("dask", "batch on a Dask cluster: --scheduler", "dask"),
    Feature("nipype", "morphseek.hosts.nipype", "nipype"),
    Feature("monai", "morphseek.hosts.monai", "monai"),
    Feature("napari", "the plugin of napari", "napari"),
    Feature("pydra", "morphseek.hosts.pydra", "pydra"),
    Feature("brainles", "morphseek.hosts.brainles", "brainles"),
    Feature("training", "morphseek train", "training"),
)
BY_NAME = {feature.name: feature for feature in FEATURES}


class Requirement(NamedTuple):
    """A package that a feature asks for."""

    package: str
    wanted: str
    """As pip takes it: with extras, and the versions that will do."""
    versions: str

    def allows(self, version: str) -> bool:
        """Whether an installed version will do."""
        from packaging.specifiers import SpecifierSet

        return SpecifierSet(self.versions).contains(version, prereleases=True)


def install(*wanted: str) -> str:
    """Return the command that installs requirements."""
    return f"pip install {' '.join(repr(each) for each in wanted)}"


def remedy(feature: Feature) -> str:
    """Return the command that installs what a feature needs."""
    return install(f"{DISTRIBUTION}[{feature.extra}]" if feature.extra else DISTRIBUTION)


def needed(name: str, what: str, error: ImportError) -> str:
    """Return what to say where a feature's package is missing; what asked for it comes first."""
    package = (error.name or "").partition(".")[0]
    return f"{what}: the package {package} is needed: {remedy(BY_NAME[name])}"


@contextlib.contextmanager
def needing(name: str, what: str) -> Iterator[None]:
    """Import a feature's packages; say how to install them where they are missing."""
    try:
        yield
    except ImportError as error:
        raise errors.InvalidArgumentError(needed(name, what, error)) from None


def missing(name: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error of an adapter's module whose feature's package is missing."""
    return ModuleNotFoundError(needed(name, BY_NAME[name].purpose, error), name=error.name)


def requirements(feature: Feature) -> list[Requirement]:
    """Return a feature's packages; ImportError where morphseek or packaging is not installed."""
    from packaging.requirements import Requirement as Parsed

    result = []
    import importlib.metadata  # a quarter of what NumPy takes to load

    for text in importlib.metadata.requires(DISTRIBUTION) or ():
        parsed = Parsed(text)
        marker = parsed.marker
        always = marker is None or marker.evaluate({"extra": ""})
        asked = (
            always if not feature.extra else marker and marker.evaluate({"extra": feature.extra})
        )
        if not asked or (feature.extra and always):
            continue
        if parsed.name == DISTRIBUTION:  # an extra that includes another one
            result += [r for f in FEATURES if f.extra in parsed.extras for r in requirements(f)]
            continue
        extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
        versions = str(parsed.specifier)
        result.append(Requirement(parsed.name, f"{parsed.name}{extras}{versions}", versions))
    return result


def brings(name: str) -> set[str]:
    """Return the packages that a feature's extra has, in lower case."""
    return {each.package.lower() for each in requirements(BY_NAME[name])}
