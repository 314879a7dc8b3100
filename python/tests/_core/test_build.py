"""setup.py where it cannot work: one clear message, before anything is built."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from locations import REPOSITORY

setuptools = pytest.importorskip("setuptools")


@pytest.fixture
def setup_file(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of setup.py, without running it."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    return runpy.run_path(str(REPOSITORY / "setup.py"))


def test_musl_is_refused_with_the_reason(
    setup_file: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    musl = tmp_path / "python3"
    musl.write_bytes(b"\x7fELF" + bytes(600) + b"/lib/ld-musl-aarch64.so.1\0")
    assert not setup_file["on_musl"]()
    monkeypatch.setattr(sys, "executable", str(musl))
    with pytest.raises(SystemExit, match=r"Alpine.*golang/go#13492.*3\.13-slim"):
        setup_file["refuse_where_it_cannot_work"]()


def test_paths_with_spaces_reach_the_linker_whole(setup_file: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the flags are Linux's")
    monkeypatch.setitem(setup_file["go_command"].__globals__, "HERE", Path("/a b"))
    flags = setup_file["go_command"]("go", Path("/out/_core.so"), "1.2.3", "")
    ldflags = flags[flags.index("-ldflags") + 1]
    assert '"-Wl,--version-script=/a b/capi/exports.map"\'' in ldflags
    assert "api.Version=1.2.3" in ldflags
