"""Micro-batches by predicted memory."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import asrconfig_go as ac
from asrconfig_go._core.batches import Extent
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard.micro_batches import MemoryBudget
from asrconfig_go.predict import MemoryModel
from speech_models import wav2vec2
from uneven_clips import Run


class Fake:
    """A memory model in which a micro-batch may hold 8 seconds."""

    longest_s, length_per_second = math.inf, 16_000

    class target:
        limit_bytes: int | None = 1

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []

    def largest_batch(self, seconds: float, limit: int | None, near: int) -> int:
        self.asked.append((seconds, near))
        return int(8 // seconds)


def test_short_clips_are_asked_for_once_and_rounded_up() -> None:
    fake = Fake()
    budget = MemoryBudget(fake)  # type: ignore[arg-type]
    assert [budget.size(Extent(n), 32) for n in (7_000, 8_000, 8_001, 32_000, 400_000)] == [16, 16, 8, 4, 1]
    assert fake.asked == [(0.5, 1), (1.0, 8), (2.0, 4), (25.0, 1)], "the search begins at the same seconds in all"
    assert budget.size(Extent(8_000), 3) == 3


def test_a_limit_grows_back_as_far_as_predicted() -> None:
    budget = MemoryBudget(Fake())  # type: ignore[arg-type]
    clip = Extent(16_000)
    assert budget.size(clip, 32) == 8
    budget.shrink(clip, 4)
    sizes = []
    for _ in range(500):
        budget.step_done()
        sizes.append(budget.size(clip, 32))
    assert sizes == sorted(sizes)
    assert [sizes.index(n) + 1 for n in (4, 5, 6, 7, 8)] == [1, 100, 200, 300, 400]
    assert sizes[-1] == 8, "never more than the model says"
    budget.shrink(clip, 4)
    for _ in range(199):
        budget.step_done()
    assert budget.size(clip, 32) == 4, "after a second failure it waits twice as long"
    budget.step_done()
    assert budget.size(clip, 32) == 5


def test_a_traced_model_cuts_batches_from_the_start(tmp_path: Path) -> None:
    with MemoryModel.trace(wav2vec2("mean"), precision="fp32", cache=False, progress=False) as memory:
        limit = memory.estimate(3, 0.5, timeline=0).peak_reserved
        assert memory.largest_batch(0.5, limit) >= 3
        run = Run(tmp_path, memory=memory, memory_limit_bytes=limit).train()
        fits = memory.largest_batch(0.5, limit)
    calm = Run(tmp_path).train()
    assert run.apart(calm) < 1e-5
    assert not run.guard.events
    assert max(n for n, _ in run.appetite.shapes) <= fits
    assert run.collator.order == calm.collator.order


def test_a_memory_model_without_a_gpu_needs_a_limit() -> None:
    class Unknown(Fake):
        class target:
            limit_bytes = None

    with pytest.raises(InvalidArgumentError, match="no GPU given") as caught:
        MemoryBudget(Unknown())  # type: ignore[arg-type]
    assert "memory_limit_bytes" in caught.value.hint


def test_the_manager_traces_a_trainer_with_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # as config.apply() does
    manager = ac.ASRConfigManager(gpu="T4", safety_margin=0.7)
    run = Run(tmp_path, settings={"optim": "adamw_torch", "gradient_accumulation_steps": 2})
    run.guard.detach()
    guard = manager.attach(run.trainer, memory=True)
    budget = guard.budgets["training"]
    assert isinstance(budget, MemoryBudget)
    memory = budget._memory
    assert (memory.settings.precision, memory.settings.optimizer, memory.settings.accumulation) == (
        "fp32", "adamw_torch", 3
    ), "cut, steps have more micro-batches than the Trainer accumulates"  # fmt: skip
    assert memory.target.name == "Tesla T4" and memory.target.limit_bytes
    assert memory.settings.allocator == "expandable_segments:True"
    within = int((memory.target.available_bytes or 0) * 0.7) - (memory.target.context_bytes or 0)
    assert budget.predicted(30.0) == memory.largest_batch(30.0, within) < memory.largest_batch(30.0)
    run.train()
    assert not guard.events
