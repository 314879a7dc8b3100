"""Files that people and disks change, field by field: what is raised is an error of this package, or nothing."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go._core.modules import installed_version
from asrconfig_go.errors import AsrConfigError, CorruptFileError, InternalError

Json = Any
WRONG: list[Json] = [
    None, "text", "", True, [], [None], ["a"], {}, {"a": 1}, -1, 0, 0.5, 10**30, -(10**30), 1e308, math.nan, math.inf
]  # fmt: skip


def places(document: Json, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The whole, each field and each first entry of a list, at any depth."""
    yield at
    if isinstance(document, dict):
        for name, value in document.items():
            yield from places(value, (*at, name))
    elif isinstance(document, list) and document:
        yield from places(document[0], (*at, 0))


def mutated(document: Json, at: tuple[Any, ...], value: Json) -> Json:
    if not at:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[at[0]] = mutated(copy[at[0]], at[1:], value)
    return copy


def variants(document: Json) -> Iterator[tuple[str, bytes]]:
    """Files: a field of another type or size, one that is missing, one too many, and what is not JSON at all."""
    for at in places(document):
        for value in WRONG:
            yield f"{at} = {value!r}", json.dumps(mutated(document, at, value)).encode()
    for name in document if isinstance(document, dict) else ():
        yield f"no {name}", json.dumps({n: v for n, v in document.items() if n != name}).encode()
    if isinstance(document, dict):
        yield "more", json.dumps({**document, "more": 1}).encode()
    content = json.dumps(document).encode()
    yield from (
        ("empty", b""),
        ("zeros", bytes(len(content))),
        ("cut", content[: len(content) // 2]),
        ("bytes", b"\xff\xfe"),
    )


def refused(path: Path, use: Callable[[], Any]) -> int:
    """How many variants of a file were refused; any other error than this package's fails, with the variant's name."""
    content, count = path.read_bytes(), 0
    for name, data in variants(json.loads(content)):
        path.write_bytes(data)
        try:
            use()
        except InternalError as error:
            pytest.fail(f"{path.name}: {name}: {error!r}")
        except AsrConfigError as error:
            assert error.hint, (name, error)
            count += 1
        except Exception as error:
            pytest.fail(f"{path.name}: {name}: {error!r}")
    path.write_bytes(content)
    use()
    return count


def test_plans(plan: ac.TrainingConfig, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)

    def use() -> None:
        loaded = ac.TrainingConfig.load(path)
        repr(loaded), loaded._repr_html_(), loaded.effective_batch_size, loaded.precision, loaded.to_dict()
        loaded.save(tmp_path / "again.json")

    assert refused(path, use) > 500


@pytest.mark.slow
def test_stories(tmp_path: Path) -> None:
    from asrconfig_go.watch import report

    path = tmp_path / "asrconfig_monitor.json"
    with ac.MemoryMonitor(10) as monitor:
        monitor.step()
        monitor.event("training", "begins")
        monitor.save(path)
    assert refused(path, lambda: (repr(report(path)), report(path).to_json())) > 500


def test_peaks_of_ranks(tmp_path: Path) -> None:
    from asrconfig_go.watch.memory_summary import rank_peaks

    path = tmp_path / "memory-rank1.json"
    path.write_text(json.dumps({"rank": 1, "device": "cuda:1", "allocated": 5, "reserved": 7, "rss": 9}))
    assert refused(path, lambda: repr(rank_peaks(tmp_path))) > 40


def test_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"T4": 0.35, "L4": 0.7}))
    assert (
        refused(
            path,
            lambda: ac.compare_gpus("facebook/wav2vec2-base", hours=1, mean_s=5, max_s=9, gpus=["T4"], prices=path),
        )
        > 10
    )


@pytest.mark.slow
def test_calibrations_that_are_broken_count_as_none(tmp_path: Path) -> None:
    """They are a cache: what cannot be read is measured again."""
    from asrconfig_go.plan import time_estimates
    from asrconfig_go.predict import memory_settings as memory

    calibration_record = memory.Calibration(
        "m", "g", installed_version("torch"), "2026-01-01", 1, 1.0, 1.1, 1, 1, 1, 1, None
    )
    path = memory.store_calibration("m", calibration_record)

    def found() -> memory.Calibration | None:
        return memory.find_calibration("m", "g")

    def words() -> Any:
        calibration = found()
        return calibration and calibration.words()

    assert refused(path, words) == 0
    assert found() == calibration_record

    described = ac.profile_model("facebook/wav2vec2-base")
    step = time_estimates.StepRecord("Tesla T4", "fp16", False, 0, 1.1, 1.0, 1.2, 5, 60.0, "2026-01-01", "")
    assert time_estimates.store_step_calibration(described, step)

    def compared() -> str:
        return repr(ac.compare_gpus("facebook/wav2vec2-base", hours=1, mean_s=5, max_s=9, gpus=["T4"]))

    assert refused(time_estimates._file(described), compared) == 0


class TestOfARun:
    """The record of a run and its checkpoints."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        pytest.importorskip("transformers")
        pytest.importorskip("torch")
        from disturbed_runs import once_at, trained

        with pytest.raises(KeyboardInterrupt):  # behind a checkpoint in the second epoch
            trained(tmp_path, once_at(8, KeyboardInterrupt()), event="on_step_end", save_strategy="steps", save_steps=3)  # type: ignore[arg-type]
        record = tmp_path / ".asrconfig" / "run.json"
        document = json.loads(record.read_text())
        document |= {"gpu": ["T4", 15 << 30], "micro_batch": 2}
        document["events"] = [{"place": "training", "global_step": 1, "micro_batch_before": 8, "micro_batch_after": 4,
                           "error": "CUDA out of memory", "lost_s": 0.5, "snapshot": "",
                           "not_restored": ["step.order"]}]  # fmt: skip
        document["restarts"] = [{"step": 2, "since": 1, "place": "training", "before": 8, "after": 4, "error": "x"}]
        record.write_text(json.dumps(document))
        return tmp_path

    def resumed(self, run: Path) -> Any:
        """As far as resuming reads and reports, without a training."""
        from asrconfig_go.train.guarded_training import GuardedTraining
        from disturbed_runs import prepared

        training = GuardedTraining(prepared(run), resume=True)
        start = training._start
        training._set_up()
        repr(training.report()), start.record.to_json()
        training._undo.close()
        training._lock.release()  # type: ignore[union-attr]
        return start

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "at_least"), [("run.json", 500), ("begin.json", 100), ("epoch-4.json", 100)])
    def test_records(self, run: Path, name: str, at_least: int) -> None:
        path = run / ".asrconfig" / name
        before = path.read_bytes()

        def use() -> None:
            changed = path.read_bytes()
            try:
                self.resumed(run)
            finally:
                path.write_bytes(changed)

        assert refused(path, use) > at_least
        assert path.read_bytes() == before

    @pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "steps"])
    @pytest.mark.parametrize("damage", ["zeros", "bit", "longer", "gone"])
    def test_files_of_a_checkpoint(self, run: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
        path = run / "checkpoint-6" / ("trainer_state.json" if name == "steps" else name)
        data = bytearray(path.read_bytes())
        if damage == "gone":
            path.unlink()
        else:
            data[len(data) // 2] ^= 4 if damage == "bit" else 0
            path.write_bytes({"zeros": bytes(len(data)), "bit": bytes(data), "longer": bytes(data) + b" "}[damage])
        with caplog.at_level(logging.WARNING, "asrconfig_go"):
            start = self.resumed(run)
        assert start.checkpoint == run / "checkpoint-3"
        assert path.name in caplog.text or ("weights" in caplog.text and damage == "gone")
        from asrconfig_go.train.guarded_training import GuardedTraining
        from disturbed_runs import prepared

        with pytest.raises(CorruptFileError, match=r"checkpoint-6 is not complete or damaged: "):
            GuardedTraining(prepared(run), resume=run / "checkpoint-6")

    def test_checksums(self, run: Path) -> None:
        path = run / "checkpoint-6" / "asrconfig_checksums.json"
        assert refused(path, lambda: self.resumed(run)) == 0
        assert self.resumed(run).checkpoint == path.parent
        path.write_text("[]")
        assert self.resumed(run).checkpoint == run / "checkpoint-3"
        path.unlink()
        assert self.resumed(run).checkpoint == path.parent
