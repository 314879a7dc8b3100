"""Out of memory outside of the training steps: the optimizer's step, saving, evaluation's rest, host memory."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments  # noqa: E402
from transformers.trainer_callback import TrainerCallback  # noqa: E402

from asrconfig_go.errors import InfeasiblePlanError  # noqa: E402
from asrconfig_go.guard import attach  # noqa: E402
from locations import HELPERS  # noqa: E402
from speech_models import Clips, whisper  # noqa: E402
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer  # noqa: E402

OutOfMemory = torch.cuda.OutOfMemoryError


class HalfWay(torch.optim.AdamW):  # type: ignore[misc, name-defined]
    """Runs out of memory in the steps ``fail_at``: before anything, with state half made, or weights half moved."""

    def __init__(self, parameters: Any, how: str, fail_at: list[int]) -> None:
        super().__init__(parameters, lr=0.05)
        self.how, self.fail_at, self.asked = how, fail_at, list[int]()

    def step(self, closure: Any = None) -> Any:
        self.asked.append(len(self.asked) + 1)  # no number: those are put back
        if self.asked[-1] not in self.fail_at:
            return super().step(closure)
        first = self.param_groups[0]["params"][0]
        if self.how == "state":
            self.state[first]["step"] = torch.tensor(0.0)
        if self.how == "weights":
            with torch.no_grad():
                first.mul_(0.5)
        raise OutOfMemory(OUT_OF_MEMORY)


def stepped(output: Path, how: str = "nothing", fail_at: list[int] | None = None) -> Any:
    torch.manual_seed(0)
    model = Regression()
    optimizer = HalfWay(model.parameters(), how, fail_at or [])
    trainer = tiny_trainer(output, model=model, optimizers=(optimizer, None))
    guard = attach(trainer)
    trainer.train()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), guard, optimizer


@pytest.mark.parametrize(
    ("how", "fail_at"), [("nothing", [1]), ("state", [1]), ("weights", [1]), ("state", [1, 2]), ("nothing", [3, 4])]
)
def test_an_optimizer_step_that_ran_out_of_memory_is_done_again(tmp_path: Path, how: str, fail_at: list[int]) -> None:
    calm, _, _ = stepped(tmp_path)
    got, guard, optimizer = stepped(tmp_path, how, fail_at)
    assert torch.equal(got, calm)
    assert [e.place for e in guard.events] == ["optimizer"] * len(fail_at)
    assert optimizer.param_groups[0]["foreach"] is (False if len(fail_at) == 2 else None), "the second remedy"


@pytest.mark.parametrize(("how", "at"), [("weights", 2), ("weights", 4), ("state", 4)])
def test_a_half_done_later_step_is_not_repeated(tmp_path: Path, how: str, at: int) -> None:
    with pytest.raises(OutOfMemory) as caught:
        stepped(tmp_path, how, [at])
    if sys.version_info >= (3, 11):
        assert "half done: continue from the last checkpoint" in caught.value.__notes__[0]


@pytest.mark.parametrize(("function", "half"), [("_foreach_add_", False), ("_foreach_lerp_", True)])
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_how_far_adam_has_come_is_seen_by_its_count_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, function: str, half: bool
) -> None:
    """Without decay weights come last: of a step that failed after its first write they are what they were."""
    real = getattr(torch, function)

    def run(fails_at: int | None) -> Any:
        torch.manual_seed(0)
        model = Regression()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05, weight_decay=0.0, foreach=True)
        trainer = tiny_trainer(tmp_path, model=model, optimizers=(optimizer, None))
        guard = attach(trainer)
        left = [fails_at]

        def failing(*args: Any, **kwargs: Any) -> Any:
            if trainer.state.global_step == left[0]:
                left[0] = None
                raise OutOfMemory(OUT_OF_MEMORY)
            return real(*args, **kwargs)

        monkeypatch.setattr(torch, function, failing)
        trainer.train()
        return [p.detach().clone() for p in model.parameters()], guard

    calm, _ = run(None)
    if half:
        with pytest.raises(OutOfMemory):
            run(3)
    else:
        got, guard = run(3)
        assert [event.place for event in guard.events] == ["optimizer"]
        assert all(map(torch.equal, got, calm))


def test_an_optimizer_that_never_fits_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError, match="optimizer's step ran out of GPU memory") as caught:
        stepped(tmp_path, "state", [1, 2, 3])
    assert "8-bit optimizer" in caught.value.hint


def test_other_errors_of_the_optimizer_pass(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    attach(trainer)

    class Break(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
            optimizer.param_groups[0]["lr"] = None

    trainer.add_callback(Break())
    with pytest.raises(TypeError):
        trainer.train()


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


class Killed(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
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
    seen, guard, _ = order(tmp_path, MemoryError(), at=at)
    assert seen == calm
    assert [(e.place, e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [("loading", 0, 0)]


def test_also_in_a_resumed_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # for older versions of the Trainer beside a new torch
    whole, _, _ = order(tmp_path / "whole")
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    order(tmp_path / "run", **settings)
    (tmp_path / "run" / "checkpoint-2").rename(tmp_path / "checkpoint-2")
    rest, _, _ = order(tmp_path)
    assert rest == whole[4:], "two steps of two batches were done before"
    for at in (whole[4][0], whole[7][-1], whole[-1][0]):
        seen, guard, _ = order(tmp_path, MemoryError(), at=at)
        assert seen == rest, at
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


@pytest.mark.parametrize("how", NOT_KILLED)
def test_other_errors_of_workers_are_raised(tmp_path: Path, how: str) -> None:
    with pytest.raises(type(NOT_KILLED[how])):
        order(tmp_path, NOT_KILLED[how], dataloader_num_workers=2)


def test_without_workers_none_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError):
        order(tmp_path, ConnectionRefusedError(111, "Connection refused"))


@pytest.mark.parametrize("how", KILLED)
def test_fewer_workers_after_one_was_killed(tmp_path: Path, how: str) -> None:
    calm, _, _ = order(tmp_path)
    killed = KILLED[how]
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


@pytest.mark.slow
@pytest.mark.parametrize("lasting", ["0", "1"])
def test_a_worker_that_the_system_kills(tmp_path: Path, lasting: str) -> None:
    script = HELPERS / "killed_worker.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path), lasting]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"batches": True, "weights": True, "events": [["loading", 2, 1]]}


def test_the_signal_of_a_killed_worker_in_the_middle_of_a_step(tmp_path: Path) -> None:
    def run(fail: Any) -> Any:
        torch.manual_seed(0)
        model = Regression(dropout=0.2)
        model.fail = fail
        trainer = tiny_trainer(
            tmp_path, model=model, gradient_accumulation_steps=2, num_train_epochs=2, dataloader_num_workers=2
        )
        guard = attach(trainer)
        trainer.train()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), guard, model

    failures = [6]

    def killed(model: Any, size: int) -> None:
        if failures and len(model.seen) == failures[0]:
            failures.pop()
            raise RuntimeError("DataLoader worker (pid 1234) is killed by signal: Killed. ")

    calm, _, _ = run(None)
    got, guard, model = run(killed)
    assert torch.equal(got, calm)
    assert len(model.seen) == 8 + 2, "the window's two batches are computed again"
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
    kept = json.loads((tmp_path / "asrconfig-failure.json").read_text())
    assert (kept["global_step"], len(kept["log_history"])) == (3, 3)
    assert "device-side assert" in kept["error"]
    if sys.version_info >= (3, 11):
        assert "restart the process" in error.__notes__[0] and "checkpoint-2" in error.__notes__[0]


@pytest.mark.parametrize("place", ["forward", "optimizer"])
def test_a_gradient_scaler_goes_on_as_if_nothing_had_happened(tmp_path: Path, place: str) -> None:
    """The scale grows after two good steps, and falls after one whose gradients are infinite."""

    def run(failing: str | None) -> Any:
        torch.manual_seed(0)
        model, failures = Regression(), [1]
        optimizer = HalfWay(model.parameters(), "weights", [1] if failing == "optimizer" else [])
        trainer = tiny_trainer(
            tmp_path, model=model, optimizers=(optimizer, None), max_grad_norm=0.0, gradient_accumulation_steps=2,
            num_train_epochs=3,
        )  # fmt: skip
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        trainer.accelerator.scaler = scaler
        # Where the gradient arrives: the guard would look at hooks of weights.
        model.node = model.first.weight.expand_as(model.first.weight).grad_fn.next_functions[0][0]
        model.node.register_prehook(lambda g: (g[0] * float("inf"),) if trainer.state.global_step in (0, 3) else None)
        scales: list[float] = []

        class Note(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                scales.append(scaler.get_scale())

        def fail(module: Any, size: int) -> None:
            if failing == "forward" and failures and trainer.state.global_step == 1 and size > 2:
                failures.pop()
                raise OutOfMemory(OUT_OF_MEMORY)

        model.fail = fail
        trainer.add_callback(Note())
        guard = attach(trainer)
        trainer.train()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), scales, scaler.state_dict(), guard

    calm, wanted, state, _ = run(None)
    got, scales, found, guard = run(place)
    assert len(guard.events) == 1
    assert torch.allclose(got, calm, atol=1e-6)
    assert (scales, found) == (wanted, state)
    assert any(later < before for before, later in pairwise(wanted)), "it has fallen on the way"
    assert any(later > before for before, later in pairwise(wanted)), "and grown"


def test_a_signal_that_comes_late_is_not_raised_once_more() -> None:
    from asrconfig_go.guard.loader_retry import _ignore_late_signals

    heard: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, _: heard.append(number))
    try:
        undo = _ignore_late_signals()
        os.kill(os.getpid(), signal.SIGCHLD)
        undo()
        assert heard == []
        os.kill(os.getpid(), signal.SIGCHLD)
        assert heard == [signal.SIGCHLD], "heard again afterwards"
    finally:
        signal.signal(signal.SIGCHLD, before)
