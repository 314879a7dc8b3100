"""Names that are looked up when they are first used."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_why_a_module_of_a_name_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that the package has no such name: torch without an operation made that of a whole package."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from asrconfig_go._core import lazy_names\n"
        "__getattr__, __dir__, __all__ = lazy_names(__name__, {'broken': ('wanted',)})\n"
    )
    (folder / "broken.py").write_text("import math\nmath.no_such_function\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="importing wanted of lazy_package: module 'math' has no attribute"):
        from lazy_package import wanted  # type: ignore[import-not-found]  # noqa: F401
