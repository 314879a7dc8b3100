"""Comparisons of a module whose config says nothing: each row is the plan from its trace."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import asrconfig_go as ac
from asrconfig_go.errors import UnsupportedError
from asrconfig_go.plan.plan_options import PlanOptions
from asrconfig_go.predict.recordings import Recording, kernel_class
from asrconfig_go.recipe.model_building import small_model
from conformer import Conformer, features

CARDS = ["P100", "T4", "2xT4", "L4", "A100-40GB", "H100"]  # of each class of kernels, and two of the same


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASRCONFIG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def model() -> Any:
    return Conformer(width=256, layers=2)


@pytest.fixture(scope="module")
def clips() -> Any:
    return ac.scan_audio([[0.0] * (100 * (2 + i % 24)) for i in range(400)], sampling_rate=100)


def settings(row: Any) -> Any:
    return (
        row.per_device_train_batch_size,
        row.gradient_accumulation_steps,
        row.gradient_checkpointing,
        row.micro_batching,
    )


def manager_for(model: Any, clips: Any, gpu: str) -> ac.ASRConfigManager:
    manager = ac.ASRConfigManager(gpu=gpu)
    manager.profile_model(model)
    manager.profile_dataset(clips.profile)
    return manager


@pytest.mark.slow
def test_every_row_is_the_plan(model: Any, clips: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[tuple[Any, ...]] = []
    record = Recording.trace

    def counted(self: Recording, progress: bool = False) -> Any:
        recorded.append((kernel_class(self.capability), self.settings, self.points))
        return record(self, progress)

    monkeypatch.setattr(Recording, "trace", counted)
    options = PlanOptions(target_batch_size=64)
    manager = manager_for(model, clips, "T4")
    manager.plan(options, batch_fn=features)
    comparison = manager.what_if(CARDS)
    recordings = set(recorded)
    assert len(recorded) == len(recordings), "cards of one kernel class share a recording"
    assert {kernels for kernels, *_ in recorded} == {0, 7, 8, 9}
    for name, row in zip(CARDS, comparison.rows, strict=True):
        config = manager_for(model, clips, name).plan(options, batch_fn=features)
        assert row.fits and config.times is not None
        assert settings(row) == settings(config), name
        assert row.peak_bytes == config.predicted_bytes, name
        assert row.parts == config.times.parts, name
        assert row.epoch_hours == config.times.epoch_hours, name
        assert row.run_hours == config.times.run_hours, name
        assert row.largest_batch >= config.micro_batch_size, name
    assert len(recorded) == len(recordings), "later plans read the cache"
    assert len({settings(row) for row in comparison.rows}) > 1, "cards differ"


@pytest.mark.slow
def test_what_does_not_fit_says_so(model: Any) -> None:
    comparison = ac.compare_gpus(model, gpus=["T4"], batch_fn=features, hours=10, mean_s=600, max_s=6000)
    (row,) = comparison.rows
    assert not row.fits
    assert any("no gradient_checkpointing_enable" in text for text in comparison.assumptions)
    *others, shorter = row.remedies
    assert not any(remedy.fits for remedy in others) and shorter.fits
    seconds = re.match(r"clips of at most (\d+) s, with nothing computed again", shorter.what)
    assert seconds is not None
    shorter_clips = ac.compare_gpus(model, gpus=["T4"], batch_fn=features, hours=10, mean_s=60, max_s=int(seconds[1]))
    assert shorter_clips.rows[0].fits


def test_without_a_trace_it_is_refused(model: Any) -> None:
    options: dict[str, Any] = {"gpus": ["T4"], "hours": 10, "mean_s": 5, "max_s": 20, "batch_fn": features}
    with pytest.raises(UnsupportedError, match="no recording of Conformer with these settings comes with the package"):
        ac.compare_gpus(model, trace=False, **options)
    with pytest.raises(UnsupportedError, match="Conformer has no query and value projections"):
        ac.compare_gpus(model, lora_rank=8, **options)


def test_a_trace_may_be_asked_for(clips: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_for(small_model(tokens=12, seed=0), clips, "T4")
    planned = manager.plan(trace=True)
    assert manager.what_if(["T4"], trace=True).rows[0].peak_bytes == planned.predicted_bytes

    def recorded(self: Recording, progress: bool = False) -> Any:
        raise AssertionError(f"{self.source.label} is recorded")

    monkeypatch.setattr(Recording, "trace", recorded)
    with pytest.raises(UnsupportedError, match="no recording of Wav2Vec2ForCTC with these settings"):
        manager.what_if(["T4"], trace=False)
    manager_by_name = manager_for("wav2vec2-base", clips, "T4")
    planned = manager_by_name.plan(trace=False)
    assert manager_by_name.what_if(["T4"], trace=False).rows[0].peak_bytes == planned.predicted_bytes
