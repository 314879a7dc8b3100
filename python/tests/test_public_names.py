"""The flat public surface."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path

import asrconfig_go as ac
from asrconfig_go import _errors, memory


def test_all_is_sorted_complete_and_documented() -> None:
    public = {name for name in vars(ac) if not name.startswith("_") and not inspect.ismodule(vars(ac)[name])}
    public -= {"annotations", "TYPE_CHECKING", "Any"}
    heavy = {"AdaptiveMemoryCallback", "BatchSizeSearch", "find_max_batch_size"}  # need transformers or torch
    heavy |= {"Caution", "Explanation"}  # looked up when asked for
    assert public | heavy | set(memory.__all__) == set(ac.__all__)
    for name in set(ac.__all__) - heavy:
        assert inspect.getdoc(getattr(ac, name)), name
    assert len(set(ac.__all__)) == len(ac.__all__)


def test_every_package_is_shipped() -> None:
    package = Path(ac.__file__).parent
    settings = (package.parents[1] / "pyproject.toml").read_text()
    shipped = re.search(r"^packages = (\[.*\])$", settings, re.MULTILINE)
    assert shipped
    found = sorted(".".join(p.parent.relative_to(package.parent).parts) for p in package.rglob("__init__.py"))
    assert sorted(json.loads(shipped[1])) == found


def test_every_exception_is_public_and_in_the_tree() -> None:
    for name, value in vars(_errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            assert name in ac.__all__
            assert issubclass(value, ac.AsrConfigError)
            assert name in (_errors.__doc__ or "")


def test_profiles_are_frozen() -> None:
    for kind in (ac.HardwareProfile, ac.DatasetProfile, ac.ModelProfile, ac.Clip, ac.GPU, ac.Decision):
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]
    assert dataclasses.is_dataclass(ac.TrainingConfig)


def test_version_is_the_library_s() -> None:
    assert ac.__version__
    assert ac.__version__ in ac._lib.build_info()  # type: ignore[attr-defined]


def test_error_shows_message_and_hint() -> None:
    error = ac.NotFoundError("no file x", "check the path")
    assert str(error) == "no file x\n  → check the path"
    assert isinstance(error, LookupError)
