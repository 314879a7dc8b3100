"""The list of all hints with the test that runs each; as a program, it writes benchmarks/hints.md.

What python/tests/hints runs is known from the cases. ``others.tsv`` there holds the rest, a line each: how, the hint,
and a test or a reason.

- ``run``: the named test does what the hint says, and the problem is gone.
- ``outside``: nothing that a test can do: a person, the hardware, the installation, or the package's own requests.
- ``fact``: a warning that says what is the case, and nothing to do.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from call_cases import CALLS, COMMANDS
from hint_sources import ROOT, all_hints
from operation_cases import CASES

OTHERS = ROOT / "python" / "tests" / "hints" / "others.tsv"
PAGE = ROOT / "benchmarks" / "hints.md"
HOWS = ("run", "outside", "fact")
_HERE = "python/tests/hints/test_hints.py::test_a_{}_mended_as_its_hint_says_{}"


class Row(NamedTuple):
    """``where`` is a test, or the reason why there is none."""

    how: str
    hint: str
    where: str


def rows() -> list[Row]:
    """Those of ``others.tsv`` and those of the cases."""
    kinds = ((CASES, "request", "is_answered"), (CALLS, "call", "works"), (COMMANDS, "command", "works"))
    found = {Row("run", case.hint, _HERE.format(a, b)) for cases, a, b in kinds for case in cases}
    others = (line.replace("\\n", "\n").split("\t") for line in OTHERS.read_text().splitlines())
    return sorted(found) + [Row(how, hint, where) for how, hint, where in others]


def page() -> str:
    """For people."""
    known = {row.hint: row for row in reversed(rows())}
    hints = all_hints()
    count = {how: len({h.text for h in hints if known[h.text].how == how}) for how in HOWS}
    lines = [
        "# Hints",
        "",
        "Every text of errors, warnings, alerts and reports that says what to do, and the test that runs it.",
        "`python python/tests/helpers/hint_table.py` writes it; a test fails where a hint or a test is missing.",
        "That commands, options, packages, settings and functions in all of them exist is tested, too",
        "(`python/tests/hints/test_hint_names.py`).",
        "",
        f"{len({h.text for h in hints})} texts in {len({h.file for h in hints})} files:",
        f"{count['run']} are run as they are written, {count['outside']} are for a person, the machine or the package",
        f"itself, and {count['fact']} say what is the case.",
        "",
        "| hint | file | how | test, or why there is none |",
        "| --- | --- | --- | --- |",
    ]
    for hint in hints:
        row = known[hint.text]
        text = re.sub(r"\s+", " ", hint.text).replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| {text} | {hint.file.replace('python/asrconfig_go/', '')} | {row.how} | {row.where} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
