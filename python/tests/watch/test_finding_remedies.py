"""What findings say to change: with it changed they are gone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.watch import report
from made_runs import trained
from run_logs import Json, empty, put_step, saved


def changes(run_log: Json, path: Path, settings: Any = None) -> dict[str, str]:
    return {finding.kind: finding.change for finding in report(saved(run_log, path / "run.json"), settings).findings}


def test_a_leak_is_ended_first(tmp_path: Path) -> None:
    leaking, ended = (changes(trained(leak=leak), tmp_path) for leak in (True, False))
    assert leaking["out_of_memory"] == "end the leak first: memory grows at any batch size" and "leak" in leaking
    assert not {"out_of_memory", "leak"} & set(ended)


def interrupted(kind: str, every: int) -> Json:
    """Steps of a second; each so many of them something that takes two."""
    run_log, at = empty(1), 0.0
    for number in range(1, 201):
        at += 1.0
        put_step(run_log, at, number, "train", 0, spent_s=1.0, waited_s=0.0)
        if number % every == 0:
            at += 2.0
            put_step(run_log, at, number, kind, 0 if kind == "evaluation" else -1, spent_s=2.0)
    return run_log


@pytest.mark.parametrize("with_settings", [True, False], ids=["settings", "none"])
@pytest.mark.parametrize(("kind", "setting"), [("checkpoint", "save_steps"), ("evaluation", "eval_steps")])
def test_an_interval_is_made_as_long_as_it_says(tmp_path: Path, kind: str, setting: str, with_settings: bool) -> None:
    transformers = pytest.importorskip("transformers")

    def settings(every: int) -> Any:
        more = {setting: every, "eval_strategy": "steps" if kind == "evaluation" else "no"}
        return (
            transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], **more) if with_settings else None
        )

    advice = changes(interrupted(kind, 4), tmp_path, settings(4))[f"{kind}s"]
    pattern = rf"set {setting}=(\d+), now 4" if with_settings else rf"set {setting} to (\d+) times what it is"
    match = re.fullmatch(pattern, advice)
    assert match
    every = int(match[1]) if with_settings else 4 * int(match[1])
    assert f"{kind}s" not in changes(interrupted(kind, every), tmp_path, settings(every))
