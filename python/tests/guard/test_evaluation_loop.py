"""Out of memory outside of the training steps: saving, evaluation's rest, host memory."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from asrconfig_go._core import files
from asrconfig_go.errors import StorageError
from asrconfig_go.guard import attach
from asrconfig_go.guard.loading import ran_out
from locations import HELPERS
from speech_models import Clips, made_own, whisper
from tiny_training import OUT_OF_MEMORY, Regression, running_short, tiny_trainer

OutOfMemory = torch.cuda.OutOfMemoryError


def test_saving_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = tiny_trainer(tmp_path, save_strategy="steps", save_steps=2)
    guard = attach(trainer)
    real, failures = torch.save, [1]

    def save(*args: Any, **kwargs: Any) -> None:
        if failures:
            failures.pop()
            raise OutOfMemory(OUT_OF_MEMORY)
        real(*args, **kwargs)

    monkeypatch.setattr(torch, "save", save)
    trainer.train()
    assert [(e.place, e.global_step) for e in guard.events] == [("saving", 2)]
    assert (tmp_path / "checkpoint-2" / "trainer_state.json").is_file()
    assert (tmp_path / "checkpoint-4" / "optimizer.pt").is_file()


def test_predictions_that_do_not_fit_are_moved_off_the_device(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, per_device_eval_batch_size=4)
    calm = trainer.predict(trainer.eval_dataset)
    guard = attach(trainer)
    gather, failures = trainer.accelerator.gather_for_metrics, [1]

    def gathering(*args: Any, **kwargs: Any) -> Any:
        if failures:
            failures.pop()
            raise OutOfMemory(OUT_OF_MEMORY)
        return gather(*args, **kwargs)

    trainer.accelerator.gather_for_metrics = trainer.gather_function = gathering
    got = trainer.predict(trainer.eval_dataset)
    assert (got.predictions == calm.predictions).all()
    assert got.metrics["test_loss"] == calm.metrics["test_loss"]
    assert trainer.args.eval_accumulation_steps == 1
    guard.detach()
    assert trainer.args.eval_accumulation_steps is None
    assert [e.place for e in guard.events] == ["evaluation"]


def evaluated(output: Path, limit: int, own: bool = True, **options: Any) -> float:
    """The loss of Whisper, of which more than ``limit`` clips do not fit."""
    torch.manual_seed(0)
    model = made_own(whisper()) if own else whisper()

    def hungry(module: Any, args: Any, kwargs: Any) -> None:
        if len(kwargs["labels"]) > limit:
            raise OutOfMemory(OUT_OF_MEMORY)

    model.register_forward_pre_hook(hungry, with_kwargs=True)
    arguments = Seq2SeqTrainingArguments(
        str(output), per_device_eval_batch_size=4, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = Seq2SeqTrainer(model, arguments, eval_dataset=Clips("whisper", unequal=True))
    attach(trainer, **options)
    return float(trainer.evaluate()["eval_loss"])


@pytest.mark.parametrize(("own", "rule"), [(False, None), (True, None), (True, "token_mean")])
def test_evaluation_clip_by_clip_needs_a_rule_that_is_known(tmp_path: Path, own: bool, rule: Any) -> None:
    """Two clips do not fit, so that nothing can be measured."""
    if own and rule is None:
        with pytest.raises(OutOfMemory) as caught:
            evaluated(tmp_path, 1, own, rule=rule)
        if sys.version_info >= (3, 11):
            assert "not even two clips fit, to measure what a loss divides by" in caught.value.__notes__[0]
    else:
        assert evaluated(tmp_path, 1, own, rule=rule) == pytest.approx(evaluated(tmp_path, 4, own), rel=1e-5)


def test_evaluation_in_the_pieces_of_a_function_is_measured_too(tmp_path: Path) -> None:
    def cut(inputs: Any, size: int) -> list[Any]:
        count = len(inputs["labels"])
        return [{name: value[i : i + size] for name, value in inputs.items()} for i in range(0, count, size)]

    assert evaluated(tmp_path, 2, split=cut) == pytest.approx(evaluated(tmp_path, 4), rel=1e-5)


def test_generation_in_pieces_gives_the_same(tmp_path: Path) -> None:
    def generated(limit: int) -> Any:
        torch.manual_seed(0)
        model = whisper()
        model.generation_config.suppress_tokens = None  # older versions take none for an error
        sizes = []

        def hungry(module: Any, args: Any, kwargs: Any) -> None:
            sizes.append(len(args[0] if args else kwargs["input_features"]))
            if sizes[-1] > limit:
                raise OutOfMemory(OUT_OF_MEMORY)

        model.model.encoder.register_forward_pre_hook(hungry, with_kwargs=True)
        arguments = Seq2SeqTrainingArguments(
            str(tmp_path),
            per_device_eval_batch_size=7,
            predict_with_generate=True,
            generation_max_length=6,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Seq2SeqTrainer(model, arguments, eval_dataset=Clips("whisper", unequal=True))
        guard = attach(trainer)
        return trainer.predict(trainer.eval_dataset), guard

    calm, _ = generated(99)
    got, guard = generated(2)
    assert (got.predictions == calm.predictions).all()
    assert got.metrics["test_loss"] == pytest.approx(calm.metrics["test_loss"], rel=1e-5)
    assert [(e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [(7, 3), (3, 1)]


class Killed(torch.utils.data.Dataset):  # type: ignore[misc]
    """Points of which one cannot be loaded, as often as there are ``failures``."""

    def __init__(self, points: Any, at: int, failures: list[Exception]) -> None:
        self.points, self.at, self.failures = points, at, failures

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, i: int) -> Any:
        if i == self.at and self.failures:
            raise self.failures.pop()
        return self.points[i]


def order(output: Path, *failures: Exception, at: int = 5, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = Regression(dropout=0.2)
    trainer = tiny_trainer(output, model=model, gradient_accumulation_steps=2, num_train_epochs=3, **settings)
    trainer.train_dataset = Killed(trainer.train_dataset, at, list(failures))
    guard = attach(trainer)
    resume = output / "checkpoint-2"
    trainer.train(resume_from_checkpoint=str(resume) if resume.is_dir() else None)
    return model.seen, guard, trainer


@pytest.mark.parametrize("at", [0, 6, 15])
def test_an_epoch_goes_on_behind_the_last_batch_after_host_memory_ran_out(tmp_path: Path, at: int) -> None:
    calm, _, _ = order(tmp_path)
    batches, guard, _ = order(tmp_path, MemoryError(), at=at)
    assert batches == calm
    assert [(e.place, e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [("loading", 0, 0)]


def test_also_in_a_resumed_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # for older versions of the Trainer beside a new torch
    undisturbed, _, _ = order(tmp_path / "whole")
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    order(tmp_path / "run", **settings)
    (tmp_path / "run" / "checkpoint-2").rename(tmp_path / "checkpoint-2")
    remaining, _, _ = order(tmp_path)
    assert remaining == undisturbed[4:], "two steps of two batches were done before"
    for at in (undisturbed[4][0], undisturbed[7][-1], undisturbed[-1][0]):
        batches, guard, _ = order(tmp_path, MemoryError(), at=at)
        assert batches == remaining, at
        assert len(guard.events) == 1


def test_host_memory_that_runs_out_again_and_again_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        order(tmp_path, *[MemoryError() for _ in range(9)])


def unexpected(cause: Exception) -> RuntimeError:
    error = RuntimeError("DataLoader worker (pid(s) 1234) exited unexpectedly")
    error.__cause__ = cause
    return error


# A batch is fetched from its worker's memory through a socket, which closes before torch knows that the worker is dead.
KILLED = {
    "signal": RuntimeError("DataLoader worker (pid 1234) is killed by signal: Killed. "),
    "refused": unexpected(ConnectionRefusedError(111, "Connection refused")),
    "reset": unexpected(ConnectionResetError(104, "Connection reset by peer")),
    "no socket": unexpected(FileNotFoundError(2, "No such file or directory")),
    "not quite gone": EOFError(),
}
NOT_KILLED = {
    "dataset": EOFError("Caught EOFError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):"),
    "exit": unexpected(queue.Empty()),
    "other": RuntimeError("DataLoader worker (pid 1234) is killed by signal: Segmentation fault. "),
}


@pytest.mark.parametrize("cause", NOT_KILLED)
def test_other_errors_of_workers_are_raised(tmp_path: Path, cause: str) -> None:
    with pytest.raises(type(NOT_KILLED[cause])):
        order(tmp_path, NOT_KILLED[cause], dataloader_num_workers=2)


def test_without_workers_none_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError):
        order(tmp_path, ConnectionRefusedError(111, "Connection refused"))


@pytest.mark.parametrize("cause", KILLED)
def test_fewer_workers_after_one_was_killed(tmp_path: Path, cause: str) -> None:
    calm, _, _ = order(tmp_path)
    killed = KILLED[cause]
    torch.manual_seed(0)
    model = Regression(dropout=0.2)
    trainer = tiny_trainer(
        tmp_path, model=model, gradient_accumulation_steps=2, num_train_epochs=3, dataloader_num_workers=2
    )
    original, calls = trainer.get_batch_samples, [0]

    def fetching(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise killed
        return original(*args, **kwargs)

    trainer.get_batch_samples = fetching
    guard = attach(trainer)
    trainer.train()
    assert model.seen == calm
    assert [(e.place, e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [("loading", 2, 1)]
    loader = trainer.callback_handler.train_dataloader
    assert getattr(loader, "base_dataloader", loader).num_workers == 1


SHARED = "unable to allocate shared memory(shm) for file </torch_7_1_0>: No space left on device (28)"


class Crowded:
    """A dataset whose rows do not fit into shared memory while there are more than ``most`` workers."""

    def __init__(self, inner: Any, limit: int) -> None:
        self.inner, self.most = inner, limit

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, i: int) -> Any:
        worker = torch.utils.data.get_worker_info()
        if worker is not None and worker.num_workers > self.most:
            raise RuntimeError(SHARED)
        return self.inner[i]


@pytest.mark.parametrize(("limit", "counts"), [(1, [(2, 1)]), (0, [(2, 1), (1, 0)])])
def test_workers_are_halved_until_shared_memory_suffices(
    tmp_path: Path, limit: int, counts: list[tuple[int, int]]
) -> None:
    calm, _, _ = order(tmp_path)
    torch.manual_seed(0)
    model = Regression(dropout=0.2)
    settings: dict[str, Any] = {"gradient_accumulation_steps": 2, "num_train_epochs": 3, "dataloader_num_workers": 2}
    trainer = tiny_trainer(tmp_path, model=model, **settings)
    trainer.train_dataset = Crowded(trainer.train_dataset, limit)
    guard = attach(trainer)
    trainer.train()
    assert model.seen == calm
    assert [(e.micro_batch_before, e.micro_batch_after) for e in guard.events] == counts
    assert all(e.error == f"RuntimeError: {SHARED}" for e in guard.events)


LOST = OSError(5, "Input/output error")


@pytest.mark.parametrize("at", [0, 6])
def test_a_batch_is_read_again_once_its_storage_answers(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(files, "pause_for", pauses.append)
    calm, _, _ = order(tmp_path)
    batches, guard, _ = order(tmp_path, LOST, LOST, at=at)
    assert batches == calm
    assert guard.events == [], "nothing ran out of memory"
    assert pauses == list(files.PAUSES_S[:2])


def test_storage_that_does_not_answer_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "pause_for", lambda _: None)
    with pytest.raises(StorageError, match="does not answer after 5 attempts: Input/output error"):
        order(tmp_path, *[LOST] * 9)


def test_a_checkpoint_is_saved_once_its_storage_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "pause_for", lambda _: None)
    trainer = tiny_trainer(tmp_path, save_strategy="steps", save_steps=2, max_steps=2)
    save, failures = trainer._save_checkpoint, [LOST]

    def failing(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return save(*args, **kwargs)

    trainer._save_checkpoint = failing
    attach(trainer)
    trainer.train()
    assert (tmp_path / "checkpoint-2" / "trainer_state.json").is_file()


def test_an_evaluation_goes_on_with_fewer_workers_when_shared_memory_is_full(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, dataloader_num_workers=2)
    trainer.eval_dataset = trainer.train_dataset
    trainer.args.dataloader_num_workers = 0
    calm = trainer.evaluate()["eval_loss"]
    trainer.args.dataloader_num_workers = 2
    trainer.eval_dataset = Crowded(trainer.train_dataset, 0)
    guard = attach(trainer)
    assert trainer.evaluate()["eval_loss"] == calm
    assert [e.place for e in guard.events] == ["evaluation"] * 2
    assert "loader workers 1 → 0" in guard.events[-1].error


def test_a_semaphore_that_finds_no_room(tmp_path: Path) -> None:
    """The system names no file: only where it was raised tells that a loader's queue was being made."""
    code = compile("raise OSError(28, 'No space left on device')", "/lib/multiprocessing/synchronize.py", "exec")
    loader = torch.utils.data.DataLoader([1], num_workers=1)
    with pytest.raises(OSError, match="No space") as caught:
        exec(code)
    assert ran_out(caught.value, loader)
    assert not ran_out(OSError(28, "No space left on device", "model.safetensors"), loader)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", ["0", "1"])
def test_a_worker_that_the_system_kills(tmp_path: Path, lasting: str) -> None:
    script = HELPERS / "scripts" / "killed_worker.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path), lasting]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document == {"batches": True, "weights": True, "events": [["loading", 2, 1]]}


def test_the_signal_of_a_killed_worker_in_the_middle_of_a_step(tmp_path: Path) -> None:
    def run(fail: Any) -> Any:
        torch.manual_seed(0)
        model, forwards = Regression(dropout=0.2), list[int]()
        model.fail = fail
        model.register_forward_pre_hook(lambda *_: forwards.append(1))
        trainer = tiny_trainer(
            tmp_path, model=model, gradient_accumulation_steps=2, num_train_epochs=2, dataloader_num_workers=2
        )
        guard = attach(trainer)
        trainer.train()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), guard, (model.seen, len(forwards))

    killed = RuntimeError("DataLoader worker (pid 1234) is killed by signal: Killed. ")
    calm, _, (batches, forwards) = run(None)
    got, guard, computed = run(running_short(1, 0, 5, killed))
    assert torch.equal(got, calm)
    assert (len(batches), forwards) == (8, 8)
    assert computed == (batches, 8 + 2), "the window's two batches are computed again"
    assert [(e.place, e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [("loading", 2, 1)]


def test_a_broken_gpu_leaves_a_file_that_says_where_the_training_was(tmp_path: Path) -> None:
    error = RuntimeError("CUDA error: device-side assert triggered")
    model = Regression()
    trainer = tiny_trainer(tmp_path, model=model, save_strategy="steps", save_steps=2)
    guard = attach(trainer)

    def fail(module: Any, size: int) -> None:
        if trainer.state.global_step == 3:
            raise error

    model.fail = fail
    with pytest.raises(RuntimeError, match="device-side assert") as caught:
        trainer.train()
    assert caught.value is error
    assert not guard.events
    record = json.loads((tmp_path / "asrconfig-failure.json").read_text())
    assert (record["global_step"], len(record["log_history"])) == (3, 3)
    assert "device-side assert" in record["error"]
    if sys.version_info >= (3, 11):
        assert "restart the process" in error.__notes__[0] and "checkpoint-2" in error.__notes__[0]


def test_a_signal_that_comes_late_is_not_raised_once_more() -> None:
    from asrconfig_go.guard.loading import _late_signals_ignored

    heard: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, _: heard.append(number))
    try:
        with _late_signals_ignored():
            os.kill(os.getpid(), signal.SIGCHLD)
        assert heard == []
        os.kill(os.getpid(), signal.SIGCHLD)
        assert heard == [signal.SIGCHLD], "heard again afterwards"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_signal_that_waits_already_is_not_raised_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs the old handler of a waiting signal when a new one is set, and torch's raises."""
    from asrconfig_go.guard.loading import _late_signals_ignored

    handlers: list[Any] = ["torch's"]

    def set_handler(number: int, handler: Any) -> Any:
        if handlers == ["torch's"] and not waiting.pop(0):
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
        handlers.append(handler)
        return handlers[-2]

    waiting = [False, True]
    monkeypatch.setattr(signal, "signal", set_handler)
    with _late_signals_ignored():
        assert len(handlers) == 2
    assert handlers[-1] == "torch's"
