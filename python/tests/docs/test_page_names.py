"""What a page names in `code` is there: files and folders of this repository, and names of the Python package."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from doc_pages import GUIDES, name_of, spans
from locations import REPOSITORY

PAGES = [*GUIDES, REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
FOLDERS = "benchmarks|build|capi|core|docs|notebooks|python|asrconfig_go"
FILE = re.compile(rf"(?:go (?:run|test) )?(?:\./)?((?:{FOLDERS})/[\w./-]*[\w/])(?: .*)?")
SOURCE = re.compile(r"\w+\.(?:py|go)")
NAME = re.compile(r"(asrconfig_go(?:\.\w+)+)(?:\(.*\))?")
OF_USERS = {"train.py", "ray_train.py", "collator.py", "torch.py"}  # of the reader, or written by a command


@cache
def sources() -> set[str]:
    """Names of all files of code."""
    roots = [REPOSITORY / name for name in ("benchmarks", "build", "capi", "core", "docs", "python")]
    return {"setup.py", *(file.name for root in roots for end in ("py", "go") for file in root.rglob(f"*.{end}"))}


def exists(name: str) -> bool:
    """Whether an attribute or a module of this dotted name is there."""
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute) or bool(importlib.import_module(name))
    except ModuleNotFoundError:
        return False


def missing(span: str) -> bool:
    if found := FILE.fullmatch(span):
        path = found[1].rstrip("/")
        return not any((root / path).exists() for root in (REPOSITORY, REPOSITORY / "python"))
    if SOURCE.fullmatch(span):
        return span not in sources() | OF_USERS
    name = NAME.fullmatch(span)
    return name is not None and not exists(name[1])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert [span for span in spans(page) if missing(span)] == []


def test_what_is_not_there_is_seen() -> None:
    for span in ("core/nowhere.go", "go run ./benchmarks/nothing", "nowhere.py", "asrconfig_go.plan.nothing"):
        assert missing(span), span
    for span in ("core/plan", "python/tests/docs", "asrconfig_go.guard", "`x`", "a/b", "test_page_names.py"):
        assert not missing(span), span
