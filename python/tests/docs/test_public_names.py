"""The flat public surface."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import asrconfig_go as ac
from asrconfig_go._base import errors, native


def test_every_public_name_is_typed_documented_and_where_the_map_says() -> None:
    stub = ast.parse((Path(ac.__file__).parent / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    typed = {f"{node.module}.{alias.name}" for node in imports for alias in node.names if alias.asname == alias.name}
    assert typed == {f"{module}.{name}" for name, module in ac._MODULE_OF.items()}  # type: ignore[attr-defined]
    assert ac.__all__ == sorted(set(ac.__all__))
    assert set(ac.__all__) <= set(dir(ac))
    for name in ac.__all__:
        assert inspect.getdoc(getattr(ac, name)), name


def test_nothing_is_imported_before_it_is_used() -> None:
    """Importing the package is for everyone, also for a loader's worker that needs one class."""
    code = "; print(*[m for m in __import__('sys').modules if m.startswith('asrconfig_go.')])"
    lines = ("import asrconfig_go", "from asrconfig_go import create_optimal_config")
    for line, loaded in zip(lines, ([], ["asrconfig_go.optimal"]), strict=True):
        found = subprocess.run([sys.executable, "-c", line + code], capture_output=True, text=True, timeout=60)
        assert (found.stdout.split(), found.stderr) == (loaded, "")


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'create_config'"):
        ac.create_config  # type: ignore[attr-defined]  # noqa: B018


def test_every_exception_is_public_and_in_the_tree() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            assert name in ac.__all__
            assert issubclass(value, ac.AsrConfigError)
            assert name in (errors.__doc__ or "")


def test_profiles_are_frozen() -> None:
    for kind in (ac.HardwareProfile, ac.DatasetProfile, ac.ModelProfile, ac.Clip, ac.GPU, ac.Decision):
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]
    assert dataclasses.is_dataclass(ac.TrainingConfig)


def test_version_is_the_library_s() -> None:
    assert ac.__version__
    assert ac.__version__ in native.build_info()


def test_error_shows_message_and_hint() -> None:
    error = ac.NotFoundError("no file x", "check the path")
    assert str(error) == "no file x\n  → check the path"
    assert isinstance(error, LookupError)
