"""The names that the code of ``call_cases`` uses."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

import asrconfig_go as ac
from asrconfig_go.explain import Explanation
from asrconfig_go.machine import HardwareProfile
from speech_models import wav2vec2
from tiny_training import tiny_trainer
from training_fixtures import make_plan
from whole_plans import GIB, audio, published_plan

CLIPS = Path(ac.__file__).parent / "demo" / "clips"


def names(tmp: Path) -> dict[str, Any]:
    """A namespace of its own for one case."""
    import asrconfig_go.apply
    import asrconfig_go.batching
    import asrconfig_go.explain
    import asrconfig_go.guard
    import asrconfig_go.launch
    import asrconfig_go.loading
    import asrconfig_go.machine
    import asrconfig_go.memory
    import asrconfig_go.recipe
    import asrconfig_go.report
    import asrconfig_go.trace  # noqa: F401 - by their full names

    return {
        "ac": ac, "np": np, "tmp": tmp, "CLIPS": CLIPS, "chdir": os.chdir, "plan": make_plan, "two": _two,
        "model": lambda: wav2vec2("mean"), "plain": _plain,
        "trainer": lambda output=tmp / "run", **settings: tiny_trainer(output, **settings),
        "hub_dataset": _hub_dataset, "clip": lambda: sorted(CLIPS.glob("*.mp3"))[0], "processor": _processor,
        "benchmark": _benchmark,
    }  # fmt: skip


def _two() -> Any:
    return make_plan(device_count=2, gpu_name="Tesla T4", distributed="ddp")


def _hub_dataset() -> Any:
    import datasets

    from recipe_data import digits

    return digits(6)["train"].cast_column("audio", datasets.Audio(decode=False))


def _processor() -> Any:
    return ac.recipe.build_processor(["one two"], "tiny-wav2vec2")


def _plain() -> tuple[type, Any]:
    import torch

    class Plain(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x: Any) -> Any:
            return {"loss": self.layer(x).mean()}

    return Plain, lambda batch, length, labels: {"x": torch.zeros(batch, 8)}


def _benchmark() -> Any:
    """``benchmark_training`` of a tiny regression, one round of one step."""
    from tiny_training import Points, Regression

    settings: dict[str, Any] = {
        "steps": 1,
        "rounds": 1,
        "warm_up": 1,
        "loader": False,
        "sweep": "none",
        "progress": False,
    }
    plan = make_plan(target_batch_size=8, per_device_train_batch_size=8, gradient_accumulation_steps=1)
    return lambda model=None, dataset=None, **given: ac.benchmark_training(
        model or Regression(),
        Points(64) if dataset is None else dataset,
        **{"plan": plan, "settings": {"use_cpu": True}, **settings, **given},
    )


def explained(**changes: Any) -> Explanation:
    """A plan for a T4 with room, with other settings."""
    hardware = HardwareProfile.detect("T4")
    memory = dataclasses.replace(hardware.memory, total_bytes=64 * GIB, available_bytes=60 * GIB)
    config = dataclasses.replace(published_plan(), **changes)
    model = ac.profile_model("xls-r-300m")
    return Explanation(config, dataclasses.replace(hardware, memory=memory), audio([2.0, 4.0, 9.0]), model)


def codes(e: Explanation) -> list[str]:
    return [caution.code for caution in e.cautions]
