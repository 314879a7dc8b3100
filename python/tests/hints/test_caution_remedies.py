"""What cautions advise: it is done, and the caution is gone."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.data import InfeasiblePair, LabelReport
from asrconfig_go.memory import MemoryModel
from hint_names import CLIPS, codes, explained as plan_explained
from whole_plans import GIB

explained = partial(plan_explained, decisions=())


def test_planning_again_mends_a_plan_of_another_machine() -> None:
    manager = ac.ASRConfigManager(gpu="L4")
    manager.profile_dataset(CLIPS, progress=False)
    manager.profile_model("wav2vec2-base")
    manager.config, _ = ac.create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
    (caution,) = [c for c in manager.explain().cautions if c.code == "other_machine"]
    code = caution.remedy.removeprefix("Plan again here: ").removesuffix(".")
    assert code == "manager.plan()"
    eval(code, {"manager": manager})
    assert "other_machine" not in codes(manager.explain())


def test_planning_with_overrides_as_options() -> None:
    config, manager = ac.create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
    config.gradient_checkpointing = not config.gradient_checkpointing
    assert "overrides" in codes(manager.explain())
    manager.plan(ac.PlanOptions(gradient_checkpointing=config.gradient_checkpointing), trace=False)
    assert "overrides" not in codes(manager.explain())


def test_room_for_the_loader() -> None:
    small = explained(dataloader_num_workers=100)
    assert "host_memory" in codes(small) or "colab_ram" in codes(small)
    fewer = explained(dataloader_num_workers=0, cache_dataset=False)
    assert not {"host_memory", "colab_ram"} & set(codes(fewer))


def test_a_colab_machine() -> None:
    e = explained(dataloader_num_workers=5)
    assert e.hardware is not None
    memory = dataclasses.replace(e.hardware.memory, total_bytes=12 * GIB, available_bytes=11 * GIB)
    small = dataclasses.replace(e, hardware=dataclasses.replace(e.hardware, memory=memory))
    assert "colab_ram" in codes(small)
    config = dataclasses.replace(e.config, dataloader_num_workers=0, cache_dataset=False)
    assert "colab_ram" not in codes(dataclasses.replace(small, config=config))


@pytest.mark.parametrize("guarded", [True, False])
def test_the_guard_is_asked_for_where_it_is_missing(guarded: bool) -> None:
    e = dataclasses.replace(explained(micro_batching="memory"), guarded=guarded)
    (caution,) = [c for c in e.cautions if c.code == "guard"]
    assert caution.level == ("note" if guarded else "warning")
    assert "manager.train(trainer)" in caution.remedy and ("accumulation" in codes(e)) == (not guarded)


def test_rows_without_a_path_are_left_out() -> None:
    pair = InfeasiblePair(1, "a.wav", 0.36, 19, 19, 17, "he said so long ago")
    labels = LabelReport("wav2vec2", "characters", "frames", 3, (pair,), (1,), 0, 0, 0, 30, 12.0, 1.2)
    assert "labels" in codes(dataclasses.replace(explained(), labels=labels))
    kept = [row for row in range(3) if row not in labels.infeasible_rows]
    assert kept == [0, 2]
    clean = dataclasses.replace(labels, infeasible=(), infeasible_rows=(), checked=2)
    assert "labels" not in codes(dataclasses.replace(explained(), labels=clean))


@pytest.mark.parametrize("mended", [{"batch": 1}, {"checkpointing": True}, {"seconds": 4}], ids=str)
def test_less_memory_than_the_budget(mended: dict[str, Any]) -> None:
    """What the memory model says of a step, before and after."""
    step: dict[str, Any] = {"batch": 8, "seconds": 20, "checkpointing": False}

    def planned(step: dict[str, Any]) -> Any:
        name, how = "facebook/wav2vec2-xls-r-300m", {"gradient_checkpointing": step["checkpointing"]}
        known = MemoryModel.of_known(name, gpu="T4", record=False, precision="fp16", accumulation=3, **how)
        assert known is not None
        with known as memory:
            return explained(predicted_bytes=memory.estimate(step["batch"], step["seconds"]).peak_reserved)

    (caution,) = [c for c in planned(step).cautions if c.code == "over_budget"]
    assert caution.remedy == "Lower the micro-batch, turn gradient checkpointing on, or leave out the longest clips."
    assert "over_budget" not in codes(planned({**step, **mended}))


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="needs ffmpeg")
def test_a_file_that_is_not_read_yet_is_converted(tmp_path: Path) -> None:
    clip, refused, converted = sorted(CLIPS.glob("*.mp3"))[0], tmp_path / "a.wma", tmp_path / "a.flac"
    subprocess.run(["ffmpeg", "-v", "error", "-i", clip, refused], check=True)
    (bad,) = ac.scan_audio([refused], allow_empty=True, progress=False).profile.bad_files
    code = bad.error.rpartition("convert it: ")[2]
    assert code == "ffmpeg -i INPUT OUTPUT.flac"
    names = {"INPUT": str(refused), "OUTPUT.flac": str(converted)}
    subprocess.run([names.get(word, word) for word in shlex.split(code)], check=True, capture_output=True)
    (again,) = ac.scan_audio([converted], progress=False).clips
    assert again.duration_s == pytest.approx(ac.scan_audio([clip], progress=False).clips[0].duration_s, abs=0.2)
