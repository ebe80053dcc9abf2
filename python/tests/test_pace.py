"""Limits of the tests grow with how slow the machine is, and end."""

import os

import pytest

import pace


@pytest.mark.parametrize(
    "measured, load, times", [(0.5, 0.1, 1), (3, 0.1, 3), (1, 10, 5), (500, 0.1, 20)]
)
def test_limit(monkeypatch: pytest.MonkeyPatch, measured: float, load: float, times: float):
    monkeypatch.setattr(pace, "_measured", lambda: measured)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert pace.limit(10) == 10 * times
