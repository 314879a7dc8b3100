"""What cautions advise: it is done, and the caution is gone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.data import InfeasiblePair, LabelReport
from asrconfig_go.explain import Explanation
from asrconfig_go.machine import HardwareProfile
from hint_names import CLIPS
from whole_plans import GIB, audio, published_plan


def explained(**changes: Any) -> Explanation:
    """A plan for a T4 with room, with other settings."""
    hardware = HardwareProfile.detect("T4")
    memory = dataclasses.replace(hardware.memory, total_bytes=64 * GIB, available_bytes=60 * GIB)
    config = dataclasses.replace(published_plan(), decisions=(), **changes)
    model = ac.profile_model("xls-r-300m")
    return Explanation(config, dataclasses.replace(hardware, memory=memory), audio([2.0, 4.0, 9.0]), model)


def codes(e: Explanation) -> list[str]:
    return [caution.code for caution in e.cautions]


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
