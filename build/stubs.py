"""Writes the types of names that packages look up lazily: `python build/stubs.py`; with --check it only compares.

Each `__init__.py` that calls `lazy_names` gets an `__init__.pyi` that imports the names of its table.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "asrconfig_go"
_HEAD = '"""Types of the public names in __init__.py; written by build/stubs.py."""\n\n'
_WIDTH = 120


def table(init: Path) -> dict[str, tuple[str, ...]]:
    """The names of a package by module, empty where it looks up none lazily."""
    for node in ast.walk(ast.parse(init.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_names":
            return dict(ast.literal_eval(node.args[1]))
    return {}


def stub(init: Path) -> str:
    """The text of ``__init__.pyi``, formatted as ruff does."""
    names = table(init)
    lines = [_import(module, sorted(names[module], key=_order)) for module in sorted(names)]
    version = '"__version__"' in init.read_text("utf-8")
    return _HEAD + "".join(lines) + ("\n__version__: str\n" if version else "")


def _import(module: str, names: list[str]) -> str:
    renamed = [f"{name} as {name}" for name in names]  # which marks them as public
    line = f"from .{module} import {', '.join(renamed)}\n"
    if len(line) <= _WIDTH + 1:
        return line
    return f"from .{module} import (\n" + "".join(f"    {item},\n" for item in renamed) + ")\n"


def _order(name: str) -> tuple[int, str]:
    """Constants, classes, functions: as isort has them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def stubs() -> Iterator[tuple[Path, str]]:
    """Every stub and its text."""
    for init in sorted(PACKAGE.rglob("__init__.py")):
        if table(init):
            yield init.with_suffix(".pyi"), stub(init)


def main() -> int:
    """Write the stubs, or say which differ."""
    texts = dict(stubs())
    stale = {*PACKAGE.rglob("__init__.pyi")} - texts.keys()
    differ = [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in [*differ, *stale]:
            print(f"{path}: run python build/stubs.py", file=sys.stderr)
        return 1 if differ or stale else 0
    for path in stale:
        path.unlink()
    for path in differ:
        path.write_text(texts[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
