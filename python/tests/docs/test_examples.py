"""The examples in the docstrings of public names run, without a GPU and without a network."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.data.source import CLIPS

PACKAGES = sorted(
    f"asrconfig_go.{init.parent.name}"
    for init in Path(ac.__file__).parent.glob("*/__init__.py")
    if "__all__ = lazy_names(" in init.read_text("utf-8")
)
PUBLIC = {
    f"{package}.{name}": (package, name) for package in PACKAGES for name in importlib.import_module(package).__all__
}
PUBLIC |= {
    f"asrconfig_go.{name}": ("asrconfig_go", name)
    for name in sorted({*ac.__all__} - {name for _, name in PUBLIC.values()})  # type: ignore[attr-defined]
}


def found(package: str, name: str) -> Any:
    return getattr(importlib.import_module(package), name)


def example(package: str, name: str) -> str:
    return inspect.getdoc(found(package, name)) or ""


# Functions without an example that runs. A new one is to be defended here.
NOT_RUN = {
    "asrconfig_go.benchmark.benchmark_training": "trains for a minute; docs/benchmark.md has it",
    "asrconfig_go.predict.calibrate": "needs a GPU",
    "asrconfig_go.watch.lightning_callback": "needs Lightning",
    "asrconfig_go.recipe.push_to_hub": "needs a network",
}
WITH_EXAMPLES = sorted(each for each, of in PUBLIC.items() if ">>> " in example(*of))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
@pytest.mark.filterwarnings("ignore")  # of machines without a GPU
def test_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    package, short = PUBLIC[name]
    names = {each: getattr(ac, each) for each in ac.__all__} | {  # type: ignore[attr-defined]
        each: found(package, each) for each in importlib.import_module(package).__all__
    }
    names["CLIPS"] = CLIPS
    test = doctest.DocTestParser().get_doctest(example(package, short), names, name, None, None)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_functions_and_the_root_s_classes_have_examples() -> None:
    functions = {name for name, of in PUBLIC.items() if inspect.isfunction(found(*of))}
    root = {name for name, (_, short) in PUBLIC.items() if short in ac.__all__}  # type: ignore[attr-defined]
    assert (functions | root) - set(WITH_EXAMPLES) == NOT_RUN.keys()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name: str) -> None:
    package, short = PUBLIC[name]
    assert example(package, short) and not example(package, short).startswith(f"{short}("), (
        "a dataclass's own signature"
    )
