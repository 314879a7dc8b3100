"""Steps by length in a Trainer: every clip once, the same order twice, and exactly on from a checkpoint."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::asrconfig_go.predict.BatchingWarning")

from transformers import TrainingArguments

import asrconfig_go as ac
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import attach
from asrconfig_go.predict import StepSampler, split_by_memory
from asrconfig_go.train import use_batches, with_batches
from scripts import batches_in_training
from scripts.batches_in_training import DURATIONS, SAMPLES, TABLE, sampler, trainer_with
from tiny_training import Points, tiny_trainer

MODES = ["random", "stratified", "bucketed"]
STEPS = 6  # of an epoch: five of four clips and one of one


@pytest.fixture(autouse=True)
def _older_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # for older versions of the Trainer beside a new torch


def expected(mode: str, epochs: int = 3) -> list[list[int]]:
    steps, made = sampler(mode), []
    for epoch in range(epochs):
        steps.set_epoch(epoch)
        made += list(steps)
    return made


def flat(batches: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


def epochs_of(steps_seen: list[list[int]], steps: int = STEPS) -> list[list[int]]:
    return [sorted(flat(steps_seen[at : at + steps])) for at in range(0, len(steps_seen), steps)]


@pytest.mark.parametrize("mode", MODES)
def test_a_training_sees_the_steps_of_the_sampler(tmp_path: Path, mode: str) -> None:
    trainer = trainer_with(tmp_path, sampler(mode), save_strategy="no")
    trainer.train()
    steps = trainer.model.seen
    assert steps == expected(mode)
    assert epochs_of(steps) == [list(range(SAMPLES))] * 3
    assert steps[:STEPS] != steps[STEPS : 2 * STEPS]
    assert trainer.state.global_step == 3 * STEPS
    again = trainer_with(tmp_path, sampler(mode), save_strategy="no", seed=99)
    again.train()
    assert again.model.seen == steps, "the sampler's seed alone counts"


@pytest.mark.parametrize("step", [2, 6, 9, 12, 15])
@pytest.mark.parametrize(
    ("mode", "guarded", "epochs"),
    [("random", False, 3), ("random", True, 3), ("bucketed", False, 3), ("bucketed", True, 2.75)],
)
def test_a_resumed_training_goes_on_exactly(tmp_path: Path, mode: str, step: int, guarded: bool, epochs: float) -> None:
    """In the first epoch, at its end, in the second, at its end and in the third, whole or not."""
    uninterrupted = trainer_with(tmp_path, sampler(mode), num_train_epochs=epochs)
    uninterrupted.train()
    assert uninterrupted.model.seen == expected(mode)[: math.ceil(STEPS * epochs)]
    resumed = trainer_with(tmp_path, sampler(mode), num_train_epochs=epochs)
    if guarded:
        attach(resumed)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert resumed.model.seen == uninterrupted.model.seen[step:]
    for a, b in zip(uninterrupted.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b), "a guard computes nothing itself while nothing fails"


def test_under_the_guard_a_step_stays_one(tmp_path: Path) -> None:
    calm = trainer_with(tmp_path, sampler(), save_strategy="no")
    calm.train()
    cut = trainer_with(tmp_path, sampler(), save_strategy="no")
    guard = attach(cut, micro_batch=3, rule="mean")
    cut.train()
    assert cut.model.seen != calm.model.seen
    assert flat(cut.model.seen) == flat(calm.model.seen), "four clips as three and one"
    assert cut.state.global_step == calm.state.global_step
    for a, b in zip(calm.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    guard.detach()


class Unloadable(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """Points of which one does not fit into host memory, the ``time``-th time that it is loaded."""

    def __init__(self, at: int, time: int) -> None:
        self.points, self.at, self.left = Points(SAMPLES), at, time

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == self.at:
            self.left -= 1
            if not self.left:
                raise MemoryError
        return self.points[i]


@pytest.mark.parametrize("step", [1, 8, 16])
def test_an_epoch_goes_on_after_host_memory_ran_out(tmp_path: Path, step: int) -> None:
    order = expected("random")
    trainer = trainer_with(tmp_path, sampler(), save_strategy="no")
    trainer.train_dataset = Unloadable(order[step][0], 1 + step // STEPS)
    guard = attach(trainer)
    trainer.train()
    assert [event.place for event in guard.events] == ["loading"]
    assert trainer.model.seen == order


def test_workers_of_the_loader(tmp_path: Path) -> None:
    trainer = trainer_with(
        tmp_path, sampler(), save_strategy="no", dataloader_num_workers=1, dataloader_persistent_workers=True
    )
    trainer.train()
    assert trainer.model.seen == expected("random")


def test_a_plain_trainer_has_no_weights_for_unequal_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    trainer = tiny_trainer(tmp_path, samples=SAMPLES, per_device_train_batch_size=2)
    with pytest.raises(InvalidArgumentError, match="shares of 3 processes, and there are 2"):
        use_batches(trainer, sampler(), [1, 2, 1])
    use_batches(trainer, sampler(), [3, 1])
    with pytest.raises(InvalidArgumentError, match="a plain Trainer weights processes alike"):
        trainer.get_train_dataloader()
    with pytest.raises(InvalidArgumentError, match="unequal shares of a step would not train as with even ones"):
        attach(trainer)
    guard = attach(trainer, rule="mean")
    assert [len(batch["index"]) for batch in trainer.get_train_dataloader()] == [3, 3, 3, 3, 2, 1]
    guard.detach()
    with pytest.raises(InvalidArgumentError, match="a plain Trainer weights processes alike"):
        trainer.get_train_dataloader()


def test_leaving_the_trainer_as_it_was(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, samples=SAMPLES)
    before, callbacks = dict(vars(trainer)), list(trainer.callback_handler.callbacks)
    leave = use_batches(trainer, sampler())
    with pytest.raises(InvalidArgumentError, match="uses batches of a StepSampler already"):
        use_batches(trainer, sampler())
    leave()
    assert vars(trainer) == before
    assert trainer.callback_handler.callbacks == callbacks


@pytest.mark.parametrize(
    ("settings", "steps", "message"),
    [
        ({"gradient_accumulation_steps": 2}, {}, "gradient_accumulation_steps is 2"),
        ({"per_device_train_batch_size": 2}, {}, "a step has 2 samples by the Trainer and 4 by the sampler"),
        ({"dataloader_drop_last": True}, {}, "drop_last"),
        ({"auto_find_batch_size": True}, {}, "auto_find_batch_size"),
        ({"accelerator_config": {"split_batches": True}}, {}, "splits or dispatches"),
        ({}, {"durations": DURATIONS[1:]}, "differs from that of the dataset"),
    ],
)
def test_settings_that_do_not_go_together(
    tmp_path: Path, settings: dict[str, Any], steps: dict[str, Any], message: str
) -> None:
    trainer = tiny_trainer(tmp_path, samples=SAMPLES, **settings)
    before = dict(vars(trainer))
    with pytest.raises(InvalidArgumentError, match=message):
        use_batches(trainer, StepSampler(**{"durations": DURATIONS, "step_samples": 4, **steps}))
    assert vars(trainer) == before


def test_settings_changed_later_are_refused(tmp_path: Path) -> None:
    trainer = trainer_with(tmp_path, sampler())
    trainer.args.per_device_train_batch_size = 2
    with pytest.raises(InvalidArgumentError, match="a step has 2 samples by the Trainer"):
        trainer.train()


def test_more_refusals(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, samples=SAMPLES)
    with pytest.raises(InvalidArgumentError, match="one process's share"):
        use_batches(trainer, sampler().shard(0, 2))
    trainer.train_dataset = iter(())
    with pytest.raises(InvalidArgumentError, match="no length"):
        use_batches(trainer, sampler())

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(InvalidArgumentError, match="does not take batches of chosen clips"):
        with_batches(torch.utils.data.DataLoader(Stream()), sampler())


def test_a_loop_of_one_s_own() -> None:
    from accelerate import Accelerator, skip_first_batches

    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(Points(SAMPLES), batch_size=4))
    steps = sampler()
    loader = with_batches(loader, steps.shard(accelerator.process_index, accelerator.num_processes))
    assert len(loader) == STEPS
    batches = [batch["index"].tolist() for batch in loader]
    assert batches == expected("random", 1)
    assert [batch["index"].tolist() for batch in skip_first_batches(loader, 4)] == batches[4:]


def padded_steps(steps: list[list[int]]) -> int:
    """Micro-batches that the guard must make of the clips of each step."""
    return sum(len(split_by_memory([DURATIONS[i] for i in step], TABLE)) for step in steps)


def test_the_guard_fills_the_micro_batches_that_were_counted(tmp_path: Path) -> None:
    """A speech model, its clips as long as DURATIONS in hundredths: the guard cuts as the figures say."""
    from transformers import Trainer, TrainingArguments

    from speech_models import wav2vec2
    from uneven_clips import Appetite, Collator

    class Spoken(Points):
        def __getitem__(self, i: int) -> dict[str, Any]:
            audio = torch.randn(round(DURATIONS[i] * 100), generator=torch.Generator().manual_seed(i))
            return {"audio": audio, "labels": torch.tensor([3 + i % 4]), "id": i}

    class Memory:
        """What TABLE says, where a second has 100 samples."""

        class target:
            limit_bytes = 1

        longest_s, length_per_second = math.inf, 100.0

        def largest_batch(self, seconds: float, limit: int | None = None, *, near: int = 1) -> int:
            return next((fits for up_to, fits in TABLE if up_to >= seconds), 0)

    model, steps = wav2vec2("mean"), sampler("stratified")
    appetite, collator = Appetite(model, None), Collator()
    arguments = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=4, num_train_epochs=1, save_strategy="no", report_to="none",
        use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=Spoken(SAMPLES), data_collator=collator)
    use_batches(trainer, steps)
    guard = attach(trainer, memory=Memory())
    trainer.train()
    assert not guard.events
    assert collator.order == flat(expected("stratified", 1))
    shapes = [shape for shape in appetite.shapes if shape[1] >= 100]
    assert sum(size for size, _ in shapes) >= SAMPLES
    assert all(size <= Memory().largest_batch(length / 100) for size, length in shapes)
    assert len(shapes) == padded_steps(expected("stratified", 1))
    report = ac.compare_batching(DURATIONS, 4, TABLE, seed=11, buckets=2)
    assert padded_steps(expected("stratified", 1)) == report.find("stratified", "optimal").micro_batches


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without processes")
@pytest.mark.parametrize(("mode", "step"), [("random", 8), ("stratified", 8), ("bucketed", 6)])
def test_two_processes(tmp_path: Path, mode: str, step: int) -> None:
    """Shared without loss or repeats, and on from a checkpoint in the middle or at the begin of the second epoch."""
    path = os.pathsep.join(p for p in sys.path if p)
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", batches_in_training.__file__]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *command, str(tmp_path), f"checkpoint-{step}", mode],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    # 21 clips in steps of 4: one clip is left, fewer than the processes, so the last two steps have 3 and 2.
    assert [[len(batch) for batch in run[0][:6]] for run in ranks] == [[2, 2, 2, 2, 2, 1], [2, 2, 2, 2, 1, 1]]
    together = [a + b for a, b in zip(ranks[0][0], ranks[1][0], strict=True)]
    assert epochs_of(together) == [list(range(SAMPLES))] * 3
    for rank in range(2):
        full, resumed = ranks[rank]
        assert resumed == full[step:]
        part, made = sampler(mode).shard(rank, 2), []
        for epoch in range(3):
            part.set_epoch(epoch)
            made += list(part)
        assert full == made
        assert full[:6] != full[6:12]
