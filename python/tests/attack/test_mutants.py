"""Five hundred damaged files, always the same; the nightly preset reads ten thousand others."""

import sys

import mutants
import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="what a process used is asked of Linux")
def test_no_damaged_file_does_harm():
    assert mutants.run_python(500) == []
