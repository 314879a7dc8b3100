"""Each hint is run as it is written: first what gets it, then what it says, and the problem is gone."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._base import native
from asrconfig_go.cli.main import main
from asrconfig_go.errors import AsrConfigError
from call_cases import CALLS, COMMANDS, Call
from hint_names import names
from made_runs import put_run, trained
from operation_cases import CASES as OPERATIONS, Operation


def written(hint: str) -> re.Pattern[str]:
    """A pattern for a hint in which ``{}`` stands for what is filled in."""
    return re.compile(".*".join(re.escape(part) for part in hint.split("{}")), re.DOTALL)


@pytest.mark.parametrize("case", OPERATIONS, ids=lambda c: f"{c.operation}: {c.hint}"[:70])
def test_a_request_mended_as_its_hint_says_is_answered(case: Operation) -> None:
    with pytest.raises(AsrConfigError) as refused:
        native.call(case.operation, case.request(case.wrong))
    assert written(case.hint).fullmatch(refused.value.hint), refused.value
    native.call(case.operation, case.request(case.mended))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CALLS, ids=lambda c: c.hint[:70])
def test_a_call_mended_as_its_hint_says_works(case: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = names(tmp_path)
    exec(case.before, given)
    with pytest.raises(AsrConfigError) as refused:
        exec(case.wrong, given)
    assert written(case.hint).fullmatch(refused.value.hint), refused.value
    exec(case.mended, given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", COMMANDS, ids=lambda c: c.hint[:70])
def test_a_command_mended_as_its_hint_says_works(
    case: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    put_run(tmp_path / "run", trained(seconds=60))

    def status(line: str) -> int:
        try:
            return main(shlex.split(line.format(pid=os.getpid())))
        except SystemExit as ended:
            return int(ended.code or 0)

    assert status(case.wrong) in (1, 2)
    assert re.search(f"→ .*{written(case.hint).pattern}", capsys.readouterr().err)
    assert status(case.mended) == 0
