"""The API reference has every public name once, and the commands that the pages show are ones that there are."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import asrconfig_go as ac
from asrconfig_go.__main__ import _parser
from doc_pages import GUIDES, PUBLIC_PACKAGES, blocks, name_of
from locations import REPOSITORY

README = REPOSITORY / "README.md"


def _documented() -> list[tuple[str, str]]:
    """(module, name) of each name of the reference."""
    return [
        (block.language.removeprefix("{names}").strip() or "asrconfig_go", name)
        for page in GUIDES
        for block in blocks(page)
        if block.language.startswith("{names}")
        for name in block.text.split()
    ]


def test_the_reference_has_every_public_name_once() -> None:
    documented = _documented()
    assert sorted(name for module, name in documented if module == "asrconfig_go") == sorted(vars(ac)["__all__"])
    assert len(set(documented)) == len(documented)


def test_the_public_packages_are_documented_whole() -> None:
    documented = _documented()
    modules = {module for module, _ in documented} - {"asrconfig_go"}
    assert modules == {f"asrconfig_go.{package}" for package in (*PUBLIC_PACKAGES, "errors")}
    for name in sorted(modules):
        module = importlib.import_module(name)
        own = {public for where, public in documented if where == name}
        assert own <= set(module.__all__) <= own | set(vars(ac)["__all__"]), name
        for public in module.__all__:
            assert getattr(module, public).__doc__, f"{name}.{public}"


def test_every_room_is_in_the_architecture() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    go = {f"core/{file.parent.name}" for file in (REPOSITORY / "core").glob("*/*.go")}
    python = {file.parent.name for file in (REPOSITORY / "python" / "asrconfig_go").glob("*/__init__.py")}
    assert {name for name in go if f"`{name}`" not in text} == set()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == python


def _commands(page: Path) -> Iterator[tuple[int, str]]:
    """Calls of `asrconfig` in blocks, with a prompt or without, and about where they stand."""
    for block in blocks(page):
        for number, line in enumerate(block.text.replace("\\\n", " ").splitlines(), start=block.line):
            command = line.removeprefix("$ ").strip()
            if (
                command.startswith("asrconfig ")
                and "…" not in command
                and not command.startswith("asrconfig monitor ·")
            ):
                yield number, command


class _Refused(Exception):
    pass


def test_shown_commands_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(parser: argparse.ArgumentParser, message: str) -> None:
        raise _Refused(f"{parser.prog}: {message}")

    monkeypatch.setattr(argparse.ArgumentParser, "error", refuse)
    shown = [(page, *command) for page in [README, *GUIDES] for command in _commands(page)]
    assert len(shown) >= 20
    for page, line, command in shown:
        for alternative in _alternatives(command):
            try:
                _parser().parse_args(shlex.split(alternative, comments=True)[1:])
            except _Refused as error:
                pytest.fail(f"{name_of(page)}:{line}: {alternative}\n{error}")


def _alternatives(command: str) -> list[str]:
    """A command of a synopsis, where [this] may be left out and A|B are two ways, as plain ones."""
    plain = command.split("  #")[0].split(" | ")[0].replace("[", "").replace("]", "").replace("NAME|DIR", "NAME")
    return [plain.replace("--html FILE", "--html page.html").replace("--pid P", "--pid 1")]
