"""Every Python block of the README and of docs/ runs, page by page, and checked commands print what the pages show.

A page's blocks share one namespace and an empty folder. What a page calls "your" dataset, model or trainer comes from
docs_setup/PAGE.py. Blocks that cannot run here have the reason in a comment above them, and are counted.
"""

from __future__ import annotations

import doctest
import re
import runpy
import shlex
import warnings
from pathlib import Path

import pytest

from asrconfig_go.__main__ import main
from asrconfig_go.errors import AsrConfigError
from doc_pages import GUIDES, Block, blocks, name_of
from locations import HELPERS, REPOSITORY

PAGES = [REPOSITORY / "README.md", *GUIDES]
SETUP = HELPERS / "docs_setup"

# Pages whose blocks train or trace for long.
SLOW = ("audio-llms", "benchmark", "gpus", "plans", "quick-integration", "recipe", "text-models")

# Blocks that are not run, by page. A new one is to be defended here.
NOT_RUN = {"docs/colab.md": 1, "docs/training.md": 1, "docs/watching.md": 1}


def _runs(block: Block) -> bool:
    return block.mark == "checked" or (_is_python(block) and block.mark != "not run")


def _is_python(block: Block) -> bool:
    return block.language == "python" or block.text.startswith(">>> ")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, without a way to the Hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if page.stem in SLOW else [])
        for page in PAGES
        if any(_runs(block) for block in blocks(page))
    ],
)
@pytest.mark.usefixtures("in_folder")
def test_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup = SETUP / f"{page.stem}.py"
    namespace = runpy.run_path(str(setup)) if setup.exists() else {}
    namespace["__name__"] = "__main__"
    printed = ""
    for block in filter(_runs, blocks(page)):
        capsys.readouterr()
        if block.mark == "checked":
            check(block, printed, capsys)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of machines without a GPU
            if block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.text, name_of(page), "exec"), namespace)
            else:
                run_prompts(block, name_of(page), namespace)
        printed = capsys.readouterr().out


def run_prompts(block: Block, name: str, namespace: dict[str, object]) -> None:
    """Run what stands behind >>>. What it prints is of other data and not compared, but an error must be one shown."""
    for example in doctest.DocTestParser().get_examples(block.text):
        code = compile("\n" * (block.line + example.lineno - 1) + example.source, name, "exec")
        expected = re.match(r"(\w+Error): ", example.want)
        if expected is None:
            exec(code, namespace)
            continue
        with pytest.raises(AsrConfigError) as raised:
            exec(code, namespace)
        assert type(raised.value).__name__ == expected[1]


def test_blocks_that_do_not_run_are_known_and_say_why() -> None:
    counts: dict[str, int] = {}
    for page in PAGES:
        for block in blocks(page):
            if block.mark == "not run":
                assert len(block.reason) > 10, f"{name_of(page)}:{block.line} does not say why it is not run"
                counts[name_of(page)] = counts.get(name_of(page), 0) + 1
    assert counts == NOT_RUN


def test_set_ups_belong_to_pages() -> None:
    with_blocks = {page.stem for page in PAGES if any(map(_runs, blocks(page)))}
    assert {file.stem for file in SETUP.glob("*.py")} - {"stand_ins"} <= with_blocks


def check(block: Block, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Hold a block against what its commands print, or, without commands, against what the Python above it printed."""
    parts = re.split(r"^\$ asrconfig (.*)\n", block.text.replace("\\\n", " "), flags=re.MULTILINE)
    if len(parts) == 1:
        assert_shown(block.text, printed)
        return
    assert not parts[0], f"line {block.line}: there is text before the first command"
    for command, shown in zip(parts[1::2], parts[2::2], strict=True):
        assert main(shlex.split(command)) == 0
        assert_shown(shown, capsys.readouterr().out)


def assert_shown(shown: str, printed: str) -> None:
    """`shown` is what was `printed`; a line of … stands for any lines, and … within a line for any text."""
    pattern = ""
    for line in shown.splitlines():
        parts = (re.escape(part.rstrip() if part is line else part) for part in line.split("…"))
        pattern += r"(?:.*\n)*?" if line.strip() == "…" else r".*?".join(parts) + r"[ ]*\n"
    assert re.fullmatch(pattern, printed.rstrip("\n") + "\n"), f"the page shows\n{shown}\nbut it is\n{printed}"


SHOWN = "one\n…\nthree … 3\n"


@pytest.mark.parametrize("printed", ["one\ntwo\n\nthree is 3\n", "one\nthree  3", "one\nthree\nthree x 3\n\n"])
def test_dots_stand_for_anything(printed: str) -> None:
    assert_shown(SHOWN, printed)


@pytest.mark.parametrize("printed", ["", "one\nthree is 4\n", "zero\none\nthree 3 3\n", "one\nthree a 3\nfour\n"])
def test_what_differs_is_seen(printed: str) -> None:
    with pytest.raises(AssertionError, match="the page shows"):
        assert_shown(SHOWN, printed)


def test_a_mark_is_of_the_block_below_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: a reason -->\n```python\n1\n```\n<!-- checked -->\ntext\n```\n2\n```\n", "utf-8")
    first, second = blocks(page)
    assert (first.mark, first.reason, first.line, first.text) == ("not run", "a reason", 3, "1\n")
    assert (second.mark, second.language, second.text) == ("", "", "2\n")
