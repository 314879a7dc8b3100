"""The texts that tell people what to do next: those of Go from capi/hints.json, those of Python from its sources.

A hint is what is passed to a parameter, or assigned to a variable, whose name says so (``hint``, ``advice``,
``remedy``), the second argument of an ``AsrConfigError``, and what follows ``→`` elsewhere.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "python" / "asrconfig_go"
_NAME = re.compile(
    r"_*(\w+_)?(hint|advice|remedy|fix|aside|again|accepted|wanted|guard|reinstall|restart|anew|instead"
    r"|by_\w+|give_\w+)$",
    re.I,
)
_TAKES = ("hint", "advice", "remedy", "fix", "usual")


class Hint(NamedTuple):
    """``text`` with ``{}`` for what is filled in, and the file that it is written in."""

    file: str
    text: str


@cache
def all_hints() -> tuple[Hint, ...]:
    """Each once, sorted."""
    told = json.loads((ROOT / "capi" / "hints.json").read_text())
    found = {Hint(row["file"], row["text"]) for row in told}
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    takes = _positions(trees.values())
    for path, tree in trees.items():
        reader = _Reader(tree, takes)
        found |= {Hint(str(path.relative_to(ROOT)), text) for text in reader.texts()}
    return tuple(sorted(found))


def _positions(trees: Iterable[ast.Module]) -> dict[str, tuple[int, str]]:
    """By the name of a function or a class: where it takes a hint, and by which keyword."""
    found: dict[str, tuple[int, str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in node.args.args if a.arg != "self"]
            elif isinstance(node, ast.ClassDef):
                names = [
                    n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                ]
                if node.name.endswith("Error"):
                    names = ["message", "hint"]
            else:
                continue
            for name in _TAKES:
                # checks.checked and records._value call a type a hint.
                if name in names and node.name not in ("checked", "checked_list", "_value", "_items", "__init__"):
                    found[node.name] = (names.index(name), name)
    return found


def text_of(node: ast.AST) -> str | None:
    """A literal, with ``{}`` for what is filled in; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or "{}") + (right or "{}")
    return None


class _Reader:
    def __init__(self, tree: ast.Module, takes: dict[str, tuple[int, str]]) -> None:
        self.tree, self.takes = tree, takes
        self.assigned: dict[str, list[ast.AST]] = defaultdict(list)
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._unpack(target, node.value)
        for node in ast.walk(tree):
            if isinstance(node, ast.For | ast.comprehension):
                for row in self._rows(node.iter):
                    self._unpack(node.target, row)

    def _rows(self, of: ast.AST) -> list[ast.AST]:
        """What a loop over a literal, or over the items of a dictionary, goes through."""
        if isinstance(of, ast.Tuple | ast.List):
            return list(of.elts)
        if isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == "items":
            tables = self.assigned.get(getattr(of.func.value, "id", ""), [])
            pairs = [
                pair
                for each in tables
                if isinstance(each, ast.Dict)
                for pair in zip(each.keys, each.values, strict=True)
            ]
            return [ast.Tuple([key or value, value]) for key, value in pairs]
        return []

    def _unpack(self, target: ast.AST, value: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self.assigned[target.id].append(value)
        elif isinstance(target, ast.Tuple):
            for i, part in enumerate(target.elts):
                for each in self._parts(value, i):
                    self._unpack(part, each)

    def _parts(self, value: ast.AST, i: int) -> list[ast.AST]:
        if isinstance(value, ast.Tuple):
            return [value.elts[i]] if i < len(value.elts) else []
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in self.functions:
            returned = [
                n.value for n in ast.walk(self.functions[value.func.id]) if isinstance(n, ast.Return) and n.value
            ]
            return [part for each in returned for part in self._parts(each, i)]
        return []

    def texts(self) -> set[str]:
        found: set[str] = set()
        for node in ast.walk(self.tree):
            found.update(self._in_call(node) if isinstance(node, ast.Call) else self._after_arrow(node))
        for name, values in self.assigned.items():
            if _NAME.match(name):
                for value in values:
                    found.update(self._resolved(value, set()))
        return {text for text in found if re.search(r"[a-z]{2}", text.replace("{}", ""))}

    def _in_call(self, node: ast.Call) -> Iterator[str]:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name not in self.takes:
            return
        position, keyword = self.takes[name]
        given = [k.value for k in node.keywords if k.arg == keyword] or node.args[position : position + 1]
        for value in given:
            yield from self._resolved(value, set())

    @staticmethod
    def _after_arrow(node: ast.AST) -> Iterator[str]:
        text = text_of(node)
        said = text.partition("→")[2].strip(" {}\n") if text and "``" not in text else ""
        if " " in said and "→" not in said and not said.startswith("of a"):  # sizes before → after, and records
            yield said

    def _resolved(self, value: ast.AST, seen: set[str]) -> Iterator[str]:
        """Literals that a value may be: of a name, of a function's results, of either branch."""
        text = text_of(value)
        if text is not None:
            yield text
        elif isinstance(value, ast.IfExp):
            yield from self._resolved(value.body, seen)
            yield from self._resolved(value.orelse, seen)
        elif isinstance(value, ast.Name) and value.id not in seen:
            for each in self.assigned.get(value.id, []):
                yield from self._resolved(each, seen | {value.id})
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in self.functions:
            for node in ast.walk(self.functions[value.func.id]):
                if isinstance(node, ast.Return) and node.value is not None and value.func.id not in seen:
                    yield from self._resolved(node.value, seen | {value.func.id})
