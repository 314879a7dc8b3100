"""What is said where the guard is missing, and that it is true: each line is run as it is written."""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

import asrconfig_go as ac
from asrconfig_go.watch.watch_setup import without_guard
from speech_models import gradient, wav2vec2
from training_fixtures import make_plan

PLANNED: dict[str, Any] = {
    "micro_batching": "memory", "micro_batch_size": 2, "target_batch_size": 16, "budget_bytes": 4_000_000_000,
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4,
}  # fmt: skip
# Of its few clips.
pytestmark = pytest.mark.filterwarnings("ignore:an epoch has only:asrconfig_go.predict.BatchingWarning")


def told(records: list[logging.LogRecord]) -> list[str]:
    return [r.getMessage() for r in records if "no guard is attached" in r.getMessage()]


def trained(tmp_path: Path, make: Callable[[], Any], train: Callable[[Any], Any]) -> Any:
    """The gradient of 4 × 4 clips that the plain Trainer makes four times too large."""
    gradients, _ = gradient("ctc mean", tmp_path, 4, 4, lambda trainer: (trainer.add_callback(make()), train(trainer)))
    return gradients


def run_as_written(hint: str, **names: Any) -> None:
    """``before trainer.train(): CODE`` and ``in place of trainer.train(): CODE``."""
    match = re.search(r"(before|in place of) (trainer\.train\(\)): (.+)$", hint)
    assert match is not None, hint
    exec(match[3], names)
    if match[1] == "before":
        exec(match[2], names)


@pytest.mark.parametrize("managed", [True, False], ids=["manager", "callback alone"])
@pytest.mark.parametrize("planned", [True, False], ids=["planned", "no plan"])
def test_a_missing_guard_is_named_and_the_line_mends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, managed: bool, planned: bool
) -> None:
    manager = ac.ASRConfigManager()
    manager.config = make_plan(**PLANNED) if planned else None
    manager.durations = array("d", [1.0] * 16)

    def callback() -> Any:
        return manager.callback(panel=False) if managed else ac.AdaptiveMemoryCallback(manager.config, panel=False)

    full_batch, _ = gradient("ctc mean", tmp_path / "whole", 16, 1, lambda trainer: trainer.train())
    wrong = trained(tmp_path / "plain", callback, lambda trainer: trainer.train())
    (message,) = told(caplog.records)
    assert "gradients of Wav2Vec2ForCTC up to 4 times too large" in message
    assert ("sized by predicted memory, and the Trainer's batches of 4 × 4 may not fit" in message) == planned
    assert managed == ("manager." in message)
    assert (wrong - full_batch).norm() > 1 * full_batch.norm()

    caplog.clear()
    names = {"manager": manager} if managed else {}
    right = trained(tmp_path / "mended", callback, lambda trainer: run_as_written(message, trainer=trainer, **names))
    assert told(caplog.records) == []
    assert (right - full_batch).norm() < 1e-4 * full_batch.norm()


@pytest.mark.parametrize("managed", [True, False])
def test_a_batch_that_will_not_fit_is_named_and_the_line_mends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, managed: bool
) -> None:
    manager = ac.ASRConfigManager()
    manager.config = make_plan(length_buckets=[{"up_to_s": 2.0, "clips": 16, "micro_batch": 1}])

    def callback() -> Any:
        return manager.callback(panel=False) if managed else ac.AdaptiveMemoryCallback(manager.config, panel=False)

    def said() -> list[str]:
        return [r.getMessage() for r in caplog.records if "the next batch, " in r.getMessage()]

    trained(tmp_path / "plain", callback, lambda trainer: trainer.train())
    (text,) = said()
    assert managed == ("manager." in text)
    caplog.clear()
    names = {"manager": manager} if managed else {}
    trained(tmp_path / "mended", callback, lambda trainer: run_as_written(text, trainer=trainer, **names))
    assert said() == []


def test_nothing_is_said_where_the_trainer_does_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for reduction, batch, steps in (("ctc mean", 16, 1), ("ctc sum", 4, 4)):
        make = lambda trainer: (trainer.add_callback(ac.AdaptiveMemoryCallback(panel=False)), trainer.train())  # noqa: E731
        gradient(reduction, tmp_path / reduction, batch, steps, make)
    assert told(caplog.records) == []


def test_processes_multiply_where_the_tokens_of_all_are_counted(tmp_path: Path) -> None:
    class Args:
        gradient_accumulation_steps, world_size, average_tokens_across_devices = 1, 2, True

    (message,) = without_guard(Args, wav2vec2("mean"), None)
    assert "up to 2 times" in message
    Args.average_tokens_across_devices = False
    assert without_guard(Args, wav2vec2("mean"), None) == []
