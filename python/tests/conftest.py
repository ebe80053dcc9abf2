"""Fixtures that the package's tests share: a small pair, a finished registration, the command."""

from __future__ import annotations

import locale
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import morphseek
from helpers import Command, write_pair
from morphseek.phantom import PhantomPair, make_pair


def pytest_configure() -> None:
    """Restore the default handling of signals. A shell ignores some for background jobs, and so
    does nohup; the programs that tests start would inherit that.
    """
    for name, handler in {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}.items():
        if (number := getattr(signal, name, None)) and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the thorough and the nightly tests unless they are requested."""
    asked = config.getoption("markexpr")
    left = [mark for mark in ("thorough", "nightly") if mark not in asked]
    late = [item for item in items if any(map(item.get_closest_marker, left))]
    config.hook.pytest_deselected(items=late)
    items[:] = [item for item in items if item not in late]


@pytest.fixture(autouse=True)
def the_locale_stays() -> Iterator[None]:
    """Restore the locale: libraries that tests load may change how the process encodes names."""
    before = locale.setlocale(locale.LC_CTYPE)
    yield
    locale.setlocale(locale.LC_CTYPE, before)


@pytest.fixture(scope="session")
def pair() -> PhantomPair:
    return make_pair(size=40)


@pytest.fixture(scope="session")
def result(pair: PhantomPair) -> morphseek.Registration:
    return morphseek.register(pair.fixed, pair.moving, model="none", refine=0, search=False)


@pytest.fixture(scope="session")
def uncertain(pair: PhantomPair) -> morphseek.Registration:
    return morphseek.register(pair.fixed, pair.moving, model="none", refine=0, uncertainty=True)


@pytest.fixture(scope="session")
def files(pair: PhantomPair, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"), pair)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "cache")
