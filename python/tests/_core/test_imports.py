"""Packages and modules import each other in one direction; public names are looked up when they are first used."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import asrconfig_go

PACKAGE = Path(asrconfig_go.__file__).parent
FACE = {"config", "errors", "managed_training", "manager", "optimal", "__main__"}
# Prints the modules of this package that the callback imports; transformers, which takes seconds, is stood in for.
LOADED = """
import sys, types
for name in ("transformers", "transformers.trainer_callback"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__getattr__ = lambda name: type(name, (), {})
import asrconfig_go.watch.callback
print(*(name for name in sys.modules if name.startswith("asrconfig_go")))
"""


def name_of(path: Path) -> str:
    """``guard.padding``; the name of a package for its ``__init__``, "" for the package's."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def imported(name: str) -> Iterator[str]:
    """The modules of this package that a module imports anywhere in it."""
    package = name.split(".") if MODULES[name].name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_names":
            yield from (f"{name}.{module}" for module in ast.literal_eval(node.args[1]))
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            base = list(filter(None, base))
            for alias in node.names:
                qualified = ".".join([*base, alias.name])
                yield qualified if qualified in MODULES else ".".join(base)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert not any(n.split(".")[0] == PACKAGE.name for n in names), f"{name}: import it by its relative name"


GRAPH = {name: {other for other in imported(name) if other != name} for name in MODULES if name}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_rooms_have_no_circles() -> None:
    packages: dict[str, set[str]] = {}
    for name, imports in GRAPH.items():
        package = name.split(".")[0]
        packages.setdefault(package, set()).update({other.split(".")[0] for other in imports} - {package})
    assert circle(packages) == []
    assert "" not in set().union(*packages.values()), "nothing imports asrconfig_go itself"


def test_modules_have_no_circles() -> None:
    assert circle(GRAPH) == []


def test_the_face_is_small() -> None:
    assert {name for name in MODULES if name and "." not in name and MODULES[name].name != "__init__.py"} == FACE


def test_one_name_means_one_thing() -> None:
    names = Counter(path.stem for path in MODULES.values() if path.stem != "__init__")
    assert [name for name, count in names.items() if count > 1] == []


def test_the_callback_loads_few_modules() -> None:
    """What it needs of plans and models is imported when it is used, as workers import the callback, too."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=120, check=True)
    loaded = [name.removeprefix(PACKAGE.name).removeprefix(".") for name in done.stdout.split()]
    lines = sum(len(MODULES[name].read_text().splitlines()) for name in loaded)
    assert "watch.callback" in loaded and len(loaded) <= 30 and lines <= 3500, (lines, loaded)


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
