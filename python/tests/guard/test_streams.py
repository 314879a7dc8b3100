"""Streams of rows without a length: the same clips in the same order, however often something fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from asrconfig_go.guard import attach
from tiny_training import Points, Streamed, apart, flat, running_short, tiny_trainer


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["torch", "datasets"])
def test_streams_are_guarded(tmp_path: Path, source: str, workers: int) -> None:
    def stream() -> Any:
        if source == "torch":
            return Streamed(32)
        datasets = pytest.importorskip("datasets")
        points = Points(32)
        rows = {"x": points.x.tolist(), "labels": points.y.tolist(), "index": list(range(32))}
        return datasets.Dataset.from_dict(rows).to_iterable_dataset(num_shards=2).with_format("torch")

    ends = []
    for failures in (0, 3):
        torch.manual_seed(0)
        trainer = tiny_trainer(tmp_path, max_steps=4, per_device_train_batch_size=8, dataloader_num_workers=workers)
        trainer.train_dataset = stream()
        trainer.model.fail = running_short(failures, 2)
        guard = attach(trainer) if failures else None
        trainer.train()
        ends.append(trainer)
    assert guard is not None
    assert [event.micro_batch_after for event in guard.events] == [4, 2]
    for got, wanted in zip(ends[1].model.parameters(), ends[0].model.parameters(), strict=True):
        assert torch.allclose(got, wanted, atol=1e-6)


def trained(folder: Path, *, killed: tuple[int, int] = (0, 0), fail: Any = None, **settings: Any) -> Any:
    """After 12 optimizer steps on 10 batches an epoch; loading for step ``killed[0]`` fails ``killed[1]`` times."""
    trainer = tiny_trainer(folder, max_steps=12, learning_rate=0.01, **settings)
    trainer.start, trainer.train_dataset, trainer.model.fail = flat(trainer.model), Streamed(38), fail
    (step, failures), original = killed, trainer.get_batch_samples

    def fetching(*args: Any, **kwargs: Any) -> Any:
        nonlocal failures
        if failures and trainer.state.global_step == step:
            failures -= 1
            raise RuntimeError("DataLoader worker (pid 1234) is killed by signal: Killed. ")
        return original(*args, **kwargs)

    trainer.get_batch_samples = fetching
    trainer.guard = attach(trainer)
    checkpoint = folder / "checkpoint-2"
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint.is_dir() else None)
    return trainer


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("step", [3, pytest.param(7, marks=pytest.mark.slow)], ids=["first epoch", "second epoch"])
def test_the_order_follows_the_number_of_workers(tmp_path: Path, step: int, resumed: bool) -> None:
    settings: dict[str, Any] = {"gradient_accumulation_steps": 2, "dataloader_num_workers": 2}
    calm = trained(tmp_path / "calm", save_strategy="steps", save_steps=2, **settings).model.seen
    if resumed:
        (tmp_path / "calm" / "checkpoint-2").rename(tmp_path / "checkpoint-2")
        calm = calm[4:]
    assert trained(tmp_path, killed=(step, 1), **settings).model.seen == calm
    trainer = trained(tmp_path, killed=(step, 2), **settings)
    assert [(e.micro_batch_before, e.micro_batch_after) for e in trainer.guard.events] == [(2, 2), (2, 1)]
    assert "may come twice" in trainer.guard.events[1].error
    assert trainer.model.seen != calm


@pytest.mark.slow
def test_gradients_that_the_end_of_a_stream_leaves(tmp_path: Path) -> None:
    """The Trainer carries the gradients of the last two of 10 batches into the next epoch's first step of four."""
    calm = trained(tmp_path, gradient_accumulation_steps=4)
    for batch in range(9, 15):
        fail = running_short(1, 2, batch)
        assert apart(trained(tmp_path, fail=fail, gradient_accumulation_steps=4), calm) < 1e-5, batch
