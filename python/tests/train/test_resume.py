"""Resuming: a run that was killed, by SIGKILL and at any moment, ends as the one that was not."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import EarlyStoppingCallback
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.errors import CorruptFileError, InvalidArgumentError, NotFoundError, VersionMismatchError
from asrconfig_go.guard import attach
from asrconfig_go.train.checkpoints import incomplete, newest_complete
from asrconfig_go.train.guarded_training import GuardedTraining
from asrconfig_go.train.resume import kept_batch
from asrconfig_go.train.run_record import RunFolder, folder_of
from disturbed_runs import SAVING, Stopped, assert_same_run, interrupted, once_at, prepared, sizes, trained, weights
from locations import HELPERS
from tiny_training import Grouped

KILLABLE = HELPERS / "scripts" / "killable.py"


def result(output: Path) -> tuple[dict[int, list[int]], Any]:
    """The samples of every step, the last time that it was made, and the weights."""
    lines = [json.loads(line) for line in (output / "steps.jsonl").read_text().splitlines()]
    return dict(lines), torch.load(output / "weights.pt")


@dataclass(frozen=True)
class Killed:
    """A training with or without batches grouped by length, in loader workers, and where its processes are killed."""

    grouped: bool
    workers: int
    kills: tuple[tuple[str, int], ...]

    def calm(self) -> str:
        return f"calm {self.grouped} {self.workers}"


KILLED = [
    Killed(False, 0, (("forward", 12), ("forward", 9))),  # within a window of two, after checkpoints 3 and 6
    Killed(True, 0, (("save", 4), ("begin", 2), ("forward", 9))),  # second checkpoint; between epochs; in the second
    Killed(True, 0, (("forward", 1), ("save", 2))),  # before any checkpoint; in the first one
    Killed(True, 1, (("forward", 15),)),  # in the second epoch, in which lasting workers are not made again
]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Folders of trainings, undisturbed ones and one for each of ``KILLED``, and their processes' exit statuses."""
    folder, runs = tmp_path_factory.mktemp("killed"), list[dict[str, Any]]()
    for case in {k.calm(): k for k in KILLED}.values():
        runs.append({"output": case.calm(), "grouped": case.grouped, "workers": case.workers, "resume": False})
    for number, case in enumerate(KILLED):
        common = {"output": f"{number}", "grouped": case.grouped, "workers": case.workers}
        runs += [{**common, "kill": kill} for kill in (*case.kills, None)]
    document = json.dumps([{**run, "output": str(folder / run["output"])} for run in runs])
    command = [sys.executable, str(KILLABLE), document]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder, [int(status) for status in done.stdout.splitlines()[-1].split()]


@pytest.mark.slow
def test_processes_were_killed_where_they_should_be(killed: tuple[Path, list[int]]) -> None:
    assert killed[1] == [0] * 3 + [status for case in KILLED for status in [-9] * len(case.kills) + [0]]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(KILLED)))
def test_killed_runs_end_as_the_one_that_was_not(killed: tuple[Path, list[int]], number: int) -> None:
    wanted, undisturbed = result(killed[0] / KILLED[number].calm())
    samples, got = result(killed[0] / f"{number}")
    assert samples == wanted
    for epoch in range(3):
        assert sorted(i for step in range(4 * epoch + 1, 4 * epoch + 5) for i in samples[step]) == list(range(64))
    assert float((got - undisturbed).abs().max()) <= 1e-6


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("then", [(4, 4), (16, 1), (3, 5)])
def test_another_micro_batch_keeps_the_effective_batch(
    tmp_path: Path, then: tuple[int, int], grouped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {"trainer_class": Grouped} if grouped else {}
    first = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    second = {"per_device_train_batch_size": then[0], "gradient_accumulation_steps": then[1]}
    undisturbed = trained(tmp_path / "whole", **SAVING, **settings, **first)
    interrupted(tmp_path / "run", 8, **settings, **first)
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        resumed = trained(tmp_path / "run", resume=True, **SAVING, **settings, **second)
    assert min(resumed.seen.samples) == 7
    assert resumed.seen.samples == {step: samples for step, samples in undisturbed.seen.samples.items() if step > 6}
    assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)
    assert sizes(resumed) == {(3, 5): (2, 8)}.get(then, then)
    assert ("effective batch of 16 is kept" in caplog.text) == (then == (3, 5))
    assert resumed.report.resumed_from.endswith("checkpoint-6")


@pytest.mark.parametrize(
    ("effective", "requested", "limit", "expected"),
    [
        (32, (8, 4, 1), None, (8, 4, 1)),
        (32, (8, 4, 2), None, (8, 2, 2)),  # twice the devices
        (32, (8, 1, 1), None, (8, 4, 1)),
        (32, (6, 4, 1), None, (4, 8, 1)),
        (32, (64, 1, 1), None, (32, 1, 1)),
        (32, (8, 1, 4), 2, (2, 4, 4)),
        (30, (8, 1, 2), None, (5, 3, 2)),
        (7, (4, 2, 1), None, (1, 7, 1)),
    ],
)
def test_kept_batches(
    effective: int, requested: tuple[int, int, int], limit: int | None, expected: tuple[int, int, int]
) -> None:
    assert kept_batch(effective, requested, limit) == expected


def test_devices_that_cannot_share_the_effective_batch() -> None:
    with pytest.raises(InvalidArgumentError, match="effective batch of 32 cannot be shared by 3 devices"):
        kept_batch(32, (8, 1, 3))


def test_the_guard_s_limit_goes_on_where_the_gpu_is_the_same(tmp_path: Path) -> None:
    def hungry(model: Any, size: int) -> None:
        if size > 4:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    trainer = prepared(tmp_path, once_at(8, Stopped()), event="on_step_end", **SAVING)
    trainer.model.fail = hungry
    with pytest.raises(Stopped):
        GuardedTraining(trainer).train()

    resumed = trained(tmp_path, resume=True, **SAVING)
    assert {len(batch) for batch in resumed.model.seen} == {4}
    assert [(e.global_step, e.micro_batch_before, e.micro_batch_after) for e in resumed.report.events] == [
        (0, 16, 8),
        (0, 8, 4),
    ]

    folder = folder_of(resumed)
    record = folder.read()
    assert record is not None
    record.gpu = ("Tesla T4", 15 << 30)
    folder.write(record)
    (tmp_path / "checkpoint-12").rename(tmp_path / "aside")
    elsewhere = trained(tmp_path, resume=True, **SAVING)
    assert {len(batch) for batch in elsewhere.model.seen} == {16}
    assert len(elsewhere.report.events) == 2


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: (c / "trainer_state.json").unlink(), "trainer_state.json"),
        (lambda c: (c / "trainer_state.json").write_text('{"epoch": 1.5, "glo'), "trainer_state.json cannot be read"),
        (lambda c: (c / "optimizer.pt").write_bytes((c / "optimizer.pt").read_bytes()[:700]), "optimizer.pt cannot be"),
        (lambda c: (c / "rng_state.pth").unlink(), "rng_state.pth"),
        (lambda c: (c / "scheduler.pt").unlink(), "scheduler.pt"),
        (lambda c: next(c.glob("*.safetensors")).unlink(), "weights"),
        (lambda c: next(c.glob("*.safetensors")).write_bytes(b"\x10\0\0\0\0\0\0\0{}"), "cannot be read"),
        (lambda c: flip(c / "optimizer.pt"), "optimizer.pt changed since it was written"),
        (lambda c: (c / "scheduler.pt").write_bytes((c / "scheduler.pt").read_bytes() + b"more"), "scheduler.pt has "),
        (lambda c: (c / "asrconfig_checksums.json").write_text("[]"), "asrconfig_checksums.json cannot be read"),
    ],
)
def test_an_incomplete_checkpoint_is_passed_over_and_kept(
    tmp_path: Path, damage: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    undisturbed = trained(tmp_path / "whole", **SAVING)
    interrupted(tmp_path / "run", 8)
    damaged = tmp_path / "run" / "checkpoint-6"
    damage(damaged)
    assert message in incomplete(damaged, 1)
    resumed = trained(tmp_path / "run", resume=True)
    assert min(resumed.seen.samples) == 4
    assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)
    assert message in caplog.text
    assert incomplete(damaged, 1)
    with pytest.raises(CorruptFileError, match="checkpoint-6 is not complete"):
        trained(tmp_path / "run", resume=damaged, **SAVING)


def test_without_a_checkpoint_training_starts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    undisturbed = trained(tmp_path / "whole")
    assert_same_run(trained(tmp_path / "run", resume=True), undisturbed)
    assert "starts from its first step" not in caplog.text, "a first start is no news"
    trained(tmp_path / "run", resume=True)
    assert "starts from its first step" in caplog.text, "a run was begun here, and nothing of it is left"
    with pytest.raises(NotFoundError, match="no checkpoint"):
        trained(tmp_path / "run", resume=tmp_path / "run" / "checkpoint-3")


def test_checkpoints_of_another_run_are_not_resumed_from(tmp_path: Path) -> None:
    trained(tmp_path / "run", **SAVING, seed=5, learning_rate=0.5)
    undisturbed = trained(tmp_path / "whole", **SAVING)
    for step in (2, 5):
        interrupted(tmp_path / "run", step)
    resumed = trained(tmp_path / "run", resume=True, **SAVING)
    assert min(resumed.seen.samples) == 4, "of its own checkpoint-3, though there was another run's checkpoint-12"
    assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)


def test_a_run_resumed_from_an_earlier_checkpoint_leaves_the_later_ones(tmp_path: Path) -> None:
    undisturbed = trained(tmp_path, **SAVING)
    with pytest.raises(Stopped):
        trained(tmp_path, once_at(2, Stopped()), resume=tmp_path / "checkpoint-3", event="on_step_end", **SAVING)
    resumed = trained(tmp_path, resume=True, **SAVING)
    assert min(resumed.seen.samples) == 4
    assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)


def test_a_failure_after_resuming_restarts_from_where_it_was_resumed(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SAVING, "trainer_class": Grouped}
    undisturbed = trained(tmp_path / "whole", **settings)
    interrupted(tmp_path / "run", 8, trainer_class=Grouped)
    for time in (1, 4):  # from checkpoint-6 again, and from a new one in the next epoch
        (tmp_path / "run" / "checkpoint-9").rename(tmp_path / "aside") if time == 4 else None
        (tmp_path / "run" / "checkpoint-12").rename(tmp_path / "aside 2") if time == 4 else None
        resumed = trained(tmp_path / "run", once_at(time), resume=True, **settings)
        assert resumed.seen.begins == 2
        assert resumed.seen.samples == {step: samples for step, samples in undisturbed.seen.samples.items() if step > 6}
        assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)


@pytest.mark.parametrize("step", [5, 7])
def test_an_order_drawn_after_an_evaluation_between_epochs(tmp_path: Path, step: int) -> None:
    """The checkpoint at an epoch's end is saved before the evaluation, whose loader draws numbers, too."""
    settings: dict[str, Any] = {
        "trainer_class": Grouped, "save_strategy": "steps", "save_steps": 4, "eval_strategy": "epoch"
    }  # fmt: skip
    undisturbed = trained(tmp_path / "whole", **settings)
    interrupted(tmp_path / "run", step, **settings)
    resumed = trained(tmp_path / "run", resume=True, **settings)
    assert resumed.seen.samples == {s: samples for s, samples in undisturbed.seen.samples.items() if s > 4}
    assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)


def test_early_stopping_goes_on_counting(tmp_path: Path) -> None:
    class Clock(TrainerCallback):  # type: ignore[misc]
        step = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.step = state.global_step

    def settings() -> dict[str, Any]:
        clock = Clock()
        return {
            "callbacks": [clock, EarlyStoppingCallback(3)],
            "compute_metrics": lambda _: {"score": float(clock.step)},
            "metric_for_best_model": "score",
            "greater_is_better": False,
            "load_best_model_at_end": True,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "steps",
            "save_steps": 2,
        }

    undisturbed = trained(tmp_path / "whole", **settings())
    assert undisturbed.state.global_step < undisturbed.state.max_steps
    interrupted(tmp_path / "run", 7, **settings())
    resumed = trained(tmp_path / "run", resume=True, **settings())
    assert resumed.state.global_step == undisturbed.state.global_step
    assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)


@pytest.mark.parametrize("max_steps", [-1, 6], ids=["epochs", "within an epoch"])
def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path, max_steps: int) -> None:
    undisturbed = trained(tmp_path, save_strategy="steps", save_steps=2, max_steps=max_steps)
    again = trained(tmp_path, resume=True, save_strategy="steps", save_steps=2, max_steps=max_steps)
    assert not again.seen.samples
    assert again.state.global_step == undisturbed.state.global_step
    assert torch.equal(weights(again), weights(undisturbed))


def test_only_epochs_that_a_checkpoint_needs_are_kept(tmp_path: Path) -> None:
    trained(tmp_path, save_total_limit=1, **SAVING)  # 3 epochs of 4 steps, the last checkpoint at step 12
    assert {path.name for path in (tmp_path / ".asrconfig").iterdir()} == {
        "lock", "run.json", "begin.json", "epoch-8.json"
    } | ({"epoch-12.json"} & {path.name for path in (tmp_path / ".asrconfig").iterdir()})  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("run.json", '{"schema": 5, "ba', CorruptFileError),
        ("run.json", '{"schema": 7}', VersionMismatchError),
        ("begin.json", '{"python": [3, [1', CorruptFileError),
    ],
)
def test_a_record_that_cannot_be_read_is_said(tmp_path: Path, name: str, text: str, error: type[Exception]) -> None:
    interrupted(tmp_path, 5)
    (tmp_path / ".asrconfig" / name).write_text(text)
    with pytest.raises(error):
        trained(tmp_path, resume=True, **SAVING)
    trained(tmp_path, **SAVING)  # a new run does not read it


def test_states_come_back_as_they_were(tmp_path: Path) -> None:
    from asrconfig_go._core.random_state import cpu_state, set_cpu_state

    torch.manual_seed(11)
    folder = RunFolder(tmp_path)
    folder.write_state(cpu_state())
    folder.write_state(cpu_state(), 7)
    drawn = torch.rand(3), torch.initial_seed()
    torch.manual_seed(5)
    begin, epochs = RunFolder(tmp_path, rank=1).read_states()
    assert begin is not None
    for state in (begin, epochs[7]):
        set_cpu_state(state)
        assert torch.equal(torch.rand(3), drawn[0])
        assert torch.initial_seed() == drawn[1]


def test_a_guard_that_is_there_takes_the_limits_and_stays(tmp_path: Path) -> None:
    interrupted(tmp_path, 5)
    trainer = prepared(tmp_path, **SAVING)
    guard = attach(trainer, micro_batch=2, rule="mean")
    GuardedTraining(trainer, resume=True).train()
    assert {len(batch) for batch in trainer.model.seen} == {2}
    assert attach(trainer) is guard


def launched(output: Path, mode: str) -> tuple[Any, list[dict[int, list[int]]], str]:
    """Train in two processes (see ``launched_training``): weights, clips of every step, and what was printed."""
    output.mkdir(exist_ok=True)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # see docs/training.md: else stale addresses stay
    command = [sys.executable, *launcher, str(HELPERS / "scripts" / "launched_training.py"), str(output), mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    steps = [dict(map(json.loads, (output / f"rank{rank}.jsonl").read_text().splitlines())) for rank in (0, 1)]
    return torch.load(output / "weights.pt"), steps, done.stdout + done.stderr


@pytest.mark.slow
def test_a_launcher_restarts_all_processes_and_the_run_is_the_same(tmp_path: Path) -> None:
    """One of two processes runs out of memory outside of its steps; torchrun starts both again."""
    calm, wanted, _ = launched(tmp_path / "calm", "calm")
    got, steps, message = launched(tmp_path / "fails", "fails")
    assert (tmp_path / "fails" / "failed").exists()
    assert steps == wanted, "the same clips in each step and process"
    assert torch.allclose(got, calm, atol=1e-6)
    assert "restart all processes, as torchrun --max-restarts=3 does" in message or sys.version_info < (3, 11)
    limits = json.loads((tmp_path / "fails" / ".asrconfig" / "run.json").read_text())["limits"]
    assert limits["training"] == [2, None], "in micro-batches of 2 instead of 4"


@pytest.mark.slow
def test_processes_stop_for_a_deadline_behind_the_same_step(tmp_path: Path) -> None:
    """One of two processes has no time left; both save and stop, and go on as if nothing had been."""
    calm, wanted, _ = launched(tmp_path / "calm", "calm")
    _, steps, message = launched(tmp_path / "late", "late")
    assert [max(step) for step in steps] == [3, 3]
    assert newest_complete(tmp_path / "late", processes=2) == tmp_path / "late" / "checkpoint-3"
    assert "stopped for save_by" in message
    got, steps, _ = launched(tmp_path / "late", "calm")
    assert steps == wanted
    assert torch.allclose(got, calm, atol=1e-6)
