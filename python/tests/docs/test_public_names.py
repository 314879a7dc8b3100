"""The public surface: few names at the root, the others in their packages."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go import errors
from asrconfig_go._core import native
from asrconfig_go.data import Clip, DatasetProfile
from asrconfig_go.errors import AsrConfigError, NotFoundError
from asrconfig_go.plan import Decision
from asrconfig_go.predict import GPU, HardwareProfile, ModelProfile
from doc_pages import PACKAGE, PUBLIC_PACKAGES
from locations import REPOSITORY

PUBLIC: list[str] = vars(ac)["__all__"]  # which the stub leaves out


def test_the_face_is_small_and_documented() -> None:
    records = {"AsrConfigError", "DatasetProfile", "HardwareProfile", "ModelProfile"}  # what users catch and annotate
    assert records <= set(PUBLIC)
    assert len(set(PUBLIC) - records) <= 25
    assert sorted(set(PUBLIC)) == PUBLIC
    assert set(PUBLIC) <= set(dir(ac))
    for name in PUBLIC:
        assert inspect.getdoc(getattr(ac, name)), name


def test_stubs_have_the_names_that_are_looked_up() -> None:
    """``build/stubs.py`` wrote them; a module of the same name as what it defines would be found in its place."""
    done = subprocess.run([sys.executable, "build/stubs.py", "--check"], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    inits = [init for init in PACKAGE.rglob("__init__.py") if init.with_suffix(".pyi").exists()]
    assert len(inits) > 10
    for init in inits:
        package = importlib.import_module(".".join(init.parent.relative_to(PACKAGE.parent).parts))
        assert not {file.stem for file in init.parent.glob("*.py")} & set(package.__all__), init
        assert all(hasattr(package, name) for name in package.__all__)


def test_nothing_is_imported_before_it_is_used() -> None:
    """Importing the package is for everyone, also for a loader's worker that needs one class."""
    base = {"asrconfig_go._core"}
    code = "; print(*[m for m in __import__('sys').modules if m.startswith('asrconfig_go.') or m in HEAVY])"
    heavy = "HEAVY = ('torch', 'transformers', 'numpy', 'dataclasses'); "
    cases = {"import asrconfig_go": base}
    cases["from asrconfig_go import create_optimal_config"] = {
        *base,
        "asrconfig_go._core.settings",
        "asrconfig_go.optimal",
    }
    for package in ("guard", "plan", "recipe", "trace", "watch"):
        cases[f"import asrconfig_go.{package}"] = {*base, f"asrconfig_go.{package}"}
    for line, loaded in cases.items():
        done = subprocess.run([sys.executable, "-c", heavy + line + code], capture_output=True, text=True, timeout=60)
        assert (set(done.stdout.split()), done.stderr) == (loaded, ""), line


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'create_config'"):
        ac.create_config  # type: ignore[attr-defined]  # noqa: B018


def test_every_exception_is_public_and_in_the_tree() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            assert name in errors.__all__
            assert issubclass(value, AsrConfigError)
            assert name in (errors.__doc__ or "")


def _documented_calls() -> Iterator[tuple[str, list[inspect.Parameter], str]]:
    """What users call: each public function, constructor and method of our own, with its docstring."""

    def parameters(function: Any) -> list[inspect.Parameter]:
        return list(inspect.signature(function).parameters.values())

    modules = [ac, *(importlib.import_module(f"asrconfig_go.{name}") for name in sorted(PUBLIC_PACKAGES))]
    public = [getattr(module, name) for module in modules for name in vars(module)["__all__"]]
    for value in {id(value): value for value in public}.values():
        doc = inspect.getdoc(value) or ""
        if inspect.isfunction(value):
            yield value.__qualname__, parameters(value), doc
        elif inspect.isclass(value) and not issubclass(value, Exception):
            own = [kind for kind in reversed(value.__mro__) if kind.__module__.startswith("asrconfig_go.")]
            members = {name: member for kind in own for name, member in vars(kind).items()}
            is_called = "__init__" in vars(value) or ("__init__" in members and "Args:" in doc)
            if not dataclasses.is_dataclass(value) and is_called:
                yield value.__qualname__, parameters(members["__init__"])[1:], doc
            for name, member in members.items():
                method = getattr(member, "__func__", member)  # of a class method
                if inspect.isfunction(method) and not name.startswith(("_", "on_")):  # on_…: the Trainer calls them
                    yield method.__qualname__, parameters(method)[1:], inspect.getdoc(method) or ""


def test_every_argument_of_a_public_function_is_documented() -> None:
    calls = list(_documented_calls())
    assert len(calls) > 100
    missing = {}
    for name, parameters, doc in calls:
        section = re.split(r"\n(?=\S)", doc.partition("Args:\n")[2])[0]
        documented = set(re.findall(r"^    \*{0,2}(\w+)(?: \(.*\))?:", section, re.MULTILINE))
        if documented - {parameter.name for parameter in parameters}:  # one by one, those of **options
            parameters = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
        if left := [parameter.name for parameter in parameters if parameter.name not in documented]:
            missing[name] = left
    assert missing == {}


def test_profiles_are_frozen() -> None:
    for kind in (HardwareProfile, DatasetProfile, ModelProfile, Clip, GPU, Decision):
        assert vars(kind)["__dataclass_params__"].frozen, kind
    assert dataclasses.is_dataclass(ac.TrainingConfig)


def test_version_is_the_library_s() -> None:
    assert ac.__version__
    assert ac.__version__ in native.build_info()


def test_error_shows_message_and_hint() -> None:
    error = NotFoundError("no file x", "check the path")
    assert str(error) == "no file x\n  → check the path"
    assert isinstance(error, LookupError)
