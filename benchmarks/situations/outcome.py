"""How a situation ends, what was said until then, and the situations by their rooms."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Ending = Literal["prevented", "survived", "named", "unnamed", "silent"]


@dataclass(frozen=True)
class Outcome:
    """How a situation ended, with the message or the figures that show it."""

    ending: Ending
    text: str


Situation = Callable[[Path], Outcome]
_found: dict[str, Situation] = {}


def situation(play: Situation) -> Situation:
    """Marks a function that plays a situation in an empty folder; its docstring's first line is the title."""
    _found[play.__name__] = play
    return play


class Heard:
    """What was logged, warned and printed, and the error that ended it, if any."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.error: BaseException | None = None

    @property
    def text(self) -> str:
        """All of it, the error's notes and hint included."""
        ends = [] if self.error is None else traceback.format_exception_only(self.error)
        return "\n".join([*self.lines, *ends])

    def line(self, *words: str) -> str:
        """The first message that has all of these words, whatever their case; "" for none."""
        ends = [] if self.error is None else ["".join(traceback.format_exception_only(self.error)).strip()]
        return next((line for line in [*self.lines, *ends] if all(word.lower() in line.lower() for word in words)), "")

    def named(self, *words: str) -> Outcome:
        """``named``, if one message has all of these words; else ``unnamed`` after an error, or ``silent``."""
        if line := self.line(*words):
            return Outcome("named", " ".join(line.split()))
        said = " ".join(self.text.split())
        return Outcome("silent" if self.error is None else "unnamed", said[-300:])


class _Handler(logging.Handler):
    def __init__(self, heard: Heard) -> None:
        super().__init__(logging.INFO)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.lines.append(record.getMessage())


@contextlib.contextmanager
def hearing() -> Iterator[Heard]:
    """Collects what is said within, and ends at an error, which it keeps."""
    heard, printed = Heard(), io.StringIO()
    handler, logger = _Handler(heard), logging.getLogger("asrconfig_go")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(printed):
            warnings.simplefilter("always")
            try:
                yield heard
            except (Exception, SystemExit) as error:
                heard.error = error
    finally:
        logger.removeHandler(handler)
        heard.lines += [f"{each.category.__name__}: {each.message}" for each in warned]
        heard.lines += printed.getvalue().splitlines()


def _rooms() -> list[str]:
    here = Path(__file__).resolve().parent
    return sorted(file.stem for file in here.glob("*.py") if file.stem not in ("outcome", "material"))


def _titles() -> list[tuple[str, str, str]]:
    """Without importing anything that a situation needs: by the source alone."""
    import ast

    rows = []
    for room in _rooms():
        tree = ast.parse((Path(__file__).resolve().parent / f"{room}.py").read_text())
        for node in tree.body:
            marks = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            if isinstance(node, ast.FunctionDef) and any(getattr(m, "id", "") == "situation" for m in marks):
                rows.append((room, node.name, (ast.get_docstring(node) or node.name).splitlines()[0].rstrip(".")))
    return rows


def main() -> None:
    """The list of all situations, or one of them played: room, name, folder."""
    if len(sys.argv) < 4:
        print(json.dumps(_titles()))
        return
    room, name, folder = sys.argv[1:]
    own = sys.modules[__name__]
    sys.modules["outcome"] = own  # as the situations import it
    importlib.import_module(room)
    found = _found[name](Path(folder))
    print(json.dumps({"ending": found.ending, "text": found.text}))


if __name__ == "__main__":
    main()
