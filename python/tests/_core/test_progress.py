"""The progress bar: nothing of it on short work."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from asrconfig_go._core import output
from asrconfig_go._core.output import ProgressBar


class Clock:
    """The bar's clock; tqdm goes by the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ago_s: float = 0.0) -> None:
        self.now = time.time() - ago_s
        monkeypatch.setattr(output, "time", SimpleNamespace(time=lambda: self.now))


def test_short_work_shows_nothing_and_imports_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # an import would fail
    with ProgressBar("Reading", "file", None, True) as advance:
        clock.now += 0.4
        advance(3, 10)
    assert capsys.readouterr().err == ""


def test_longer_work_shows_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    clock = Clock(monkeypatch, ago_s=10_000)
    with ProgressBar("Reading", "file", None, True, note=lambda: "soon") as advance:
        clock.now += 10_000
        advance(30_000, 100_000)
        bar = capsys.readouterr().err
    assert "Reading" in bar and "30000/100000" in bar and "soon" in bar
    assert "3.00file/s" in bar, "the rate counts from the start of the work"


def test_not_shown_when_not_wanted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    with ProgressBar("Reading", "file", 10, False) as advance:
        clock.now += 9
        advance(3, 10)
    assert capsys.readouterr().err == ""


def test_without_tqdm_the_work_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with ProgressBar("Reading", "file", None, True) as advance:
        clock.now += 9
        advance(3, 10)
        advance(4, 10)
    assert capsys.readouterr().err == ""
