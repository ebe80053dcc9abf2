"""The command of these tests is a process of its own: libraries print and die there."""

from pathlib import Path

import pytest

from helpers import Command


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "cache", apart=True)
