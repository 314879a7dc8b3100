"""Memory snapshots that the guard writes when GPU memory runs out; python/tests/cuda has real ones."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError
from asrconfig_go.guard import (
    Guard,
    oom_snapshots,
)
from asrconfig_go.guard.oom_snapshots import Held, OomSnapshots, bounded, held_in
from asrconfig_go.guard.training_report import read_failure
from asrconfig_go.predict.predict_records import HeldRow
from disturbed_runs import once_at, prepared
from tiny_training import OUT_OF_MEMORY, Regression, running_short, tiny_trainer

ERROR = torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)


def state(number: int = 0, events: int = 0) -> dict[str, Any]:
    blocks = [{"address": 512, "size": 512, "state": "active_allocated", "frames": [], "requested_size": number}]
    trace = [{"action": "alloc", "addr": i, "size": 512, "frames": []} for i in range(events)]
    return {"segments": [{"address": 512, "total_size": 512, "blocks": blocks}], "device_traces": [trace]}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the allocator answers, one after the other."""
    answers = [state(number) for number in range(9)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: answers.pop(0))
    return answers


def made(output: Path, mode: Any = "blocks", rank: int = 0) -> OomSnapshots:
    arguments = SimpleNamespace(output_dir=str(output), process_index=rank, device=torch.device("cuda"))
    trainer = SimpleNamespace(args=arguments, model=Regression(), optimizer=None, state=SimpleNamespace(global_step=7))
    return OomSnapshots(trainer, mode)


def numbered(path: str) -> int:
    number: int = pickle.loads(Path(path).read_bytes())["segments"][0]["blocks"][0]["requested_size"]
    return number


def test_first_of_each_place_and_three_at_most(tmp_path: Path, states: list[Any]) -> None:
    snapshots = made(tmp_path / "out", rank=2)
    path = snapshots.take("training", ERROR)
    assert path == str(tmp_path / "out" / "_asrconfig-oom-training-rank2.pickle")
    assert snapshots.take("training", ERROR) == ""
    assert [bool(snapshots.take(place, ERROR)) for place in ("optimizer", "evaluation", "saving")] == [
        True,
        True,
        False,
    ]
    assert len(list((tmp_path / "out").glob("*.pickle"))) == 3
    assert numbered(path) == 0


def test_what_was_held_is_written_beside_the_snapshot(tmp_path: Path, states: list[Any]) -> None:
    snapshots = made(tmp_path, rank=2)
    snapshots.ran_out(512)
    snapshots.take("training", ERROR)
    failure = read_failure(tmp_path / "_asrconfig-oom-training-rank2.json")
    assert (failure.place, failure.step, failure.rank, failure.phase) == ("training", 7, 2, "forward")
    assert (failure.held, failure.reserved, failure.predicted, failure.moment) == (512, 512, None, None)
    assert failure.rows == (HeldRow("others", "*", 512, None),)


def test_a_snapshot_does_not_need_the_comparison(
    tmp_path: Path, states: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(oom_snapshots, "compared", lambda *_: 1 / 0)
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        path = made(tmp_path).take("training", ERROR)
    assert numbered(path) == 0
    assert "cannot write a memory snapshot" in caplog.text
    assert not list(tmp_path.glob("*.json"))


def test_blocks_belong_to_components_and_modules() -> None:
    snapshot = state()
    (segment,) = snapshot["segments"]
    segment["blocks"] = [
        {"address": address, "size": size, "state": use, "frames": []}
        for address, size, use in ((0, 10, "active_allocated"), (10, 20, "active_allocated"), (30, 40, "inactive"),
                                   (70, 1, "active_allocated"), (71, 2, "active_allocated"))
    ]  # fmt: skip
    events = [
        ("alloc", 10, "lost"),
        ("free_completed", 10, "lost"),
        ("alloc", 10, "encoder.layers.0"),
        ("alloc", 71, ""),
    ]
    snapshot["device_traces"] = [[{"action": a, "addr": at, "user_metadata": m} for a, at, m in events]]
    blocks = held_in(snapshot, {0: ("gradients", "encoder.layers.0.weight"), 70: ("parameters", "bias")})
    assert blocks == {
        ("gradients", "encoder.layers.0"): 10,
        ("others", "encoder.layers.0"): 20,
        ("parameters", ""): 1,
        ("others", ""): 2,
    }
    assert Held(snapshot, blocks).reserved == 512


def test_the_moment_of_the_error_comes_first(tmp_path: Path, states: list[Any]) -> None:
    snapshots = made(tmp_path)
    snapshots.ran_out(512)
    snapshots.ran_out(512)  # the last one is the error's
    assert numbered(snapshots.take("training", ERROR)) == 1
    snapshots.ran_out(512)
    text = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    assert numbered(snapshots.take("evaluation", RuntimeError(text))) == 3, "which does not pass through the allocator"


def test_errors_that_others_catch_are_seen_a_hundred_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots_taken = []
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: snapshots_taken.append(1) or state())  # type: ignore[func-returns-value]
    snapshots = made(tmp_path)
    for _ in range(300):
        snapshots.ran_out(512)
    assert len(snapshots_taken) == 100
    assert snapshots._newest is None, "the last one is not of a later error"


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError()])
def test_nothing_for_other_errors(error: Exception, tmp_path: Path, states: list[Any]) -> None:
    assert made(tmp_path).take("training", error) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("mode", "begins"), [("off", []), ("blocks", ["blocks"]), ("history", ["history"])])
def test_the_guard_asks_for_them_where_a_gpu_computes(
    tmp_path: Path, states: list[Any], monkeypatch: pytest.MonkeyPatch, mode: Any, begins: list[str]
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(OomSnapshots, "begin", lambda self: begun.append(self._mode))
    trainer = tiny_trainer(tmp_path)
    guard = Guard(trainer, oom_snapshot=mode)
    monkeypatch.setattr(type(trainer.args), "device", SimpleNamespace(type="cuda"))
    trainer.create_optimizer()
    guard._training_begins()
    assert begun == begins
    path = guard._snapshot("training", ERROR)
    assert bool(path) == bool(begins) == bool(list(tmp_path.glob("*.pickle")))
    if guard._snapshots:
        guard._snapshots.end()


def test_what_goes_wrong_is_logged_once(
    tmp_path: Path, states: list[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    snapshots = made(tmp_path / "file")
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        assert [snapshots.take("training", ERROR) for _ in range(2)] == ["", ""]
    assert caplog.text.count("cannot write a memory snapshot of the out-of-memory error") == 1

    def fails() -> Any:
        raise RuntimeError("cudaMallocAsync does not yet support this")

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", fails)
    snapshots = made(tmp_path)
    monkeypatch.setattr(oom_snapshots, "_observers", {snapshots})
    oom_snapshots._memory_ran_out(0, 1, 2, 3)
    assert "cannot take a memory snapshot" in caplog.text
    assert snapshots.take("training", ERROR) == ""


def test_files_are_bounded_by_leaving_older_events_out() -> None:
    full = state(events=1000)
    assert pickle.loads(bounded(full)) == full
    cut = pickle.loads(bounded(full, 10_000))
    assert cut["segments"] == full["segments"]
    (events,) = cut["device_traces"]
    assert 50 < len(events) < 500
    assert events == full["device_traces"][0][-len(events) :]
    with pytest.raises(ValueError, match="its 1 segment take more than 50 bytes"):
        bounded(full, 50)


def test_blocks_are_named_by_what_they_are_for() -> None:
    snapshot = state()
    snapshot["segments"][0]["blocks"][0]["frames"] = [{"filename": "train.py", "line": 3, "name": "step"}]
    oom_snapshots._name_blocks(snapshot, {512: ("gradients", "encoder.layers.0.weight")})
    (block,) = snapshot["segments"][0]["blocks"]
    assert [(f["filename"], f["line"], f["name"]) for f in block["frames"]] == [
        ("gradients", 0, "encoder.layers.0.weight"),
        ("module", 0, "encoder.layers.0"),
        ("module", 0, "encoder"),
        ("train.py", 3, "step"),
    ]


def test_a_training_on_the_cpu_has_none(tmp_path: Path) -> None:
    from asrconfig_go.guard import attach

    trainer = prepared(tmp_path, once_at(2))
    guard = attach(trainer, oom_snapshot="history")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        trainer.train()
    guard.detach()
    assert not list(tmp_path.glob("*.pickle"))


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    from asrconfig_go.guard import attach

    with pytest.raises(InvalidArgumentError, match="oom_snapshot"):
        attach(tiny_trainer(tmp_path), oom_snapshot="all")  # type: ignore[arg-type]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Snapshots that are names alone, and the places in the order in which they were asked for."""
    places: list[str] = []
    monkeypatch.setattr(Guard, "_snapshot", lambda _, place, error: places.append(place) or f"{place}.pickle")  # type: ignore[func-returns-value]
    return places


def failing(times: int) -> Any:
    """Raises the first so many times that it is called."""
    remaining = [ERROR] * times

    def fail(*_: Any, **__: Any) -> None:
        if remaining:
            raise remaining.pop()

    return fail


def once_failing(original: Any) -> Any:
    fail = failing(1)

    def call(*args: Any, **kwargs: Any) -> Any:
        fail()
        return original(*args, **kwargs)

    return call


def test_events_of_every_place_name_their_file(tmp_path: Path, named: list[str]) -> None:
    from asrconfig_go.guard import attach

    trainer = tiny_trainer(tmp_path, save_strategy="steps", save_steps=4, eval_strategy="epoch")
    trainer._save_checkpoint = once_failing(trainer._save_checkpoint)
    trainer.evaluation_loop = once_failing(trainer.evaluation_loop)
    trainer.create_optimizer()
    trainer.optimizer.step = once_failing(trainer.optimizer.step)
    trainer.model.fail = running_short(1, 0)
    guard = attach(trainer, rule="mean")
    trainer.train()
    assert len(guard.events) == 4 and {e.place for e in guard.events} == {
        "training",
        "optimizer",
        "evaluation",
        "saving",
    }
    assert [e.snapshot for e in guard.events] == [f"{e.place}.pickle" for e in guard.events]
    assert [e.place for e in guard.events] == named
    lost = [f"; {e.lost}" if e.lost else "" for e in guard.events]
    ends = [f"; memory snapshot in {e.snapshot}{more}" for e, more in zip(guard.events, lost, strict=True)]
    assert all(str(e).endswith(end) for e, end in zip(guard.events, ends, strict=True))


def test_an_error_that_ends_the_training_names_the_file(
    tmp_path: Path, named: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from asrconfig_go.guard import attach

    trainer = tiny_trainer(tmp_path)
    trainer.model.fail = failing(99)
    guard = attach(trainer, rule="mean", max_halvings=0)
    with pytest.raises(InfeasiblePlanError, match=r"CUDA out of memory.*; memory snapshot in training\.pickle"):
        trainer.train()
    guard.detach()

    messages: list[str] = []
    monkeypatch.setattr("asrconfig_go.guard.guard.add_note", lambda error, text: messages.append(text))
    monkeypatch.setattr("asrconfig_go.guard.guard.cannot_retry", lambda trainer: True)
    attach(trainer, rule="mean")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        trainer.train()
    assert messages == ["memory snapshot in training.pickle"]
