"""What findings, cautions and plans of several GPUs advise: it is done, and they no longer say it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.monitor.run_log import RunLog
from asrconfig_go.report.diagnosis import diagnose
from hint_names import CLIPS
from made_runs import trained
from run_logs import empty, put_step
from speech_models import wav2vec2


def changes(run_log: Any) -> dict[str, str]:
    return {found.kind: found.change for found in diagnose(RunLog.from_json(run_log))}


def test_a_leak_is_ended_first() -> None:
    leaking, ended = changes(trained(leak=True)), changes(trained(leak=False))
    assert leaking["out_of_memory"] == "end the leak first: memory grows at any batch size" and "leak" in leaking
    assert not {"out_of_memory", "leak"} & set(ended)


def interrupted(kind: str, every: int) -> Any:
    """Steps of a second; each so many of them something that takes two."""
    run_log, at = empty(1), 0.0
    for number in range(1, 201):
        at += 1.0
        put_step(run_log, at, number, "train", 0, spent_s=1.0, waited_s=0.0)
        if number % every == 0:
            at += 2.0
            put_step(run_log, at, number, kind, 0 if kind == "evaluation" else -1, spent_s=2.0)
    return run_log


@pytest.mark.parametrize(("kind", "setting"), [("checkpoint", "save_steps"), ("evaluation", "eval_steps")])
def test_an_interval_that_is_made_longer_as_it_says(kind: str, setting: str) -> None:
    said = re.fullmatch(rf"set {setting} to (\d+) times what it is", changes(interrupted(kind, 4))[f"{kind}s"])
    assert said
    assert f"{kind}s" not in changes(interrupted(kind, 4 * int(said[1])))


def test_bad_files_are_left_out_or_repaired(tmp_path: Path) -> None:
    clips = sorted(CLIPS.glob("*.mp3"))[:4]
    for clip in clips:
        shutil.copy(clip, tmp_path)
    broken = tmp_path / clips[0].name
    broken.write_bytes(b"no audio")

    def remedies(source: Any) -> tuple[list[str], Any]:
        _, manager = ac.create_optimal_config(source, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
        return [c.remedy for c in manager.explain().cautions if c.code == "bad_files"], manager.dataset

    (remedy,), profile = remedies(tmp_path)
    assert remedy == "Leave them out, or repair them: bad_files of the dataset's profile says what is wrong with each."
    (bad,) = profile.bad_files
    assert bad.path == str(broken) and bad.error
    assert remedies([p for p in tmp_path.iterdir() if str(p) != bad.path])[0] == []
    shutil.copy(clips[0], broken)
    assert remedies(tmp_path)[0] == []


@pytest.mark.parametrize("strategy", ["zero2", "fsdp"])
def test_launch_files_restart_what_the_guard_cannot_retry(tmp_path: Path, strategy: Any) -> None:
    config, _ = ac.create_optimal_config(
        CLIPS, "wav2vec2-base", gpu="2xT4", distributed=strategy, trace=False, verbose=False
    )
    assert any("config.launch_files(folder" in text for text in config.warnings)
    written = config.launch_files(tmp_path, model=wav2vec2("mean"))  # FSDP gathers its layers one by one
    assert written.strategy == strategy
    assert "--max-restarts 3" in written.torchrun
    assert written.torchrun in (tmp_path / "torchrun.sh").read_text()
    subprocess.run(["sh", "-n", str(tmp_path / "torchrun.sh")], check=True, timeout=10)
