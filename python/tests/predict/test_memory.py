"""Questions about memory and their answers, over a library that follows a simple formula."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go._core import native
from asrconfig_go._core.modules import installed_version
from asrconfig_go.errors import AsrConfigError, CorruptFileError, InvalidArgumentError, UnsupportedError
from asrconfig_go.guard.micro_batches import MemoryBudget
from asrconfig_go.predict import ModelProfile, memory_table
from asrconfig_go.predict.memory_model import MemoryModel
from asrconfig_go.predict.memory_settings import (
    Calibration,
    MemorySettings,
    Shape,
    Target,
    find_calibration,
    store_calibration,
)
from asrconfig_go.predict.question import EstimatorWarning, changes_that_fit, estimate_memory
from asrconfig_go.predict.recordings import Recording, open_trace
from asrconfig_go.watch.batch_shapes import by_memory
from memory_fakes import CONTEXT, MIB, PER_SECOND, RESERVED, STATIC, FakeLibrary

STATIC_BYTES = sum(STATIC.values())


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(native, "call", fake)
    return fake


@pytest.fixture
def traced(library: FakeLibrary) -> Iterator[MemoryModel]:
    with MemoryModel.load("any.trace", gpu="L4") as model:
        yield model


@pytest.fixture
def recorded(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """Recordings that were asked for; none is made."""
    made: list[Recording] = []
    monkeypatch.setattr(Recording, "make", lambda self, key, progress: made.append(self) or open_trace(b""))  # type: ignore[func-returns-value]
    return made


def test_an_estimate_says_what_where_and_whether(traced: MemoryModel) -> None:
    e = traced.estimate(8, 10.0)
    assert e.peak_allocated == STATIC_BYTES + 80 * PER_SECOND
    assert e.peak_reserved == round(e.peak_allocated * RESERVED)
    assert e.peak_device == e.peak_reserved + CONTEXT
    assert e.fits is True
    assert e.target.name == "NVIDIA L4"
    assert e.target.available_bytes is not None
    assert e.headroom_bytes == e.target.available_bytes - e.peak_device
    assert e.at_peak.components["activations"] == 80 * PER_SECOND
    assert [p.phase for p in e.phases] == ["load", "backward"]
    assert (e.model, e.shape, e.settings.precision) == ("Fake", Shape(8, 10.0), "fp16")
    assert e.timeline is not None and e.timeline.event == (0, 50, 100)
    assert traced.estimate(8, 10.0, timeline=0).timeline is None


def test_without_a_gpu_nothing_is_said_about_fitting(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with MemoryModel.load("any.trace") as model:
        e = model.estimate(8, 10.0)
        assert (e.fits, e.peak_device, e.headroom_bytes, e.out_of_memory) == (None, None, None, None)
        assert "name a GPU" in repr(e)
        with pytest.raises(InvalidArgumentError, match="no GPU to fit into"):
            model.largest_batch(10.0)
        assert model.largest_batch(10.0, 2 * round(STATIC_BYTES * RESERVED)) == math.floor(
            STATIC_BYTES / 10 / PER_SECOND
        )


def test_what_does_not_fit_shows_its_need_and_what_fits(traced: MemoryModel) -> None:
    e = traced.estimate(4000, 10.0)
    needed = STATIC_BYTES + 40_000 * PER_SECOND
    assert (e.fits, e.peak_allocated, e.peak_reserved) == (False, needed, round(needed * RESERVED))
    assert e.out_of_memory is not None and e.out_of_memory.op == "aten.mm"
    assert e.headroom_bytes is not None and e.headroom_bytes < 0
    assert e.remedies == (f"batch={traced.largest_batch(10.0)} is the largest that fits",)
    for part in ("does not fit NVIDIA L4", "stop in backward at aten.mm in layers.1", "asking for 7.0 MiB"):
        assert part in " ".join(repr(e).split())
    assert traced.estimate(4, 80_000.0).remedies == ("not even one clip of 80000 s fits with these settings",)


def test_the_largest_batch_is_the_last_that_fits(traced: MemoryModel) -> None:
    limit = traced.target.limit_bytes
    assert limit is not None
    largest = traced.largest_batch(7.0)
    assert largest == math.floor((limit / RESERVED - STATIC_BYTES) / 7 / PER_SECOND)
    assert traced.estimate(largest, 7.0).fits
    assert traced.estimate(largest + 1, 7.0).fits is False
    assert traced.largest_batch(7.0, MIB) == 0


def test_a_close_fit_says_that_the_context_is_known_roughly(traced: MemoryModel) -> None:
    assert "may take up to" not in repr(traced.estimate(8, 10.0))
    close = traced.estimate(traced.largest_batch(10.0), 10.0)
    assert "the CUDA context may take up to 0.59 GiB, and then it would not fit" in repr(close)


def test_steps_are_cut_as_the_guard_cuts_them(traced: MemoryModel, library: FakeLibrary) -> None:
    table = ((2.0, 3), (4.0, 2), (8.0, 1))
    durations = [1.0, 2.0, 3.0, 8.0, 1.5]
    run = traced.simulate_steps(durations, [[0, 1, 2, 3, 4], [4, 2]], table=table, labels=[5, 6, 7, 8, 9])
    request = library.asked[-1][1]
    assert request["windows"] == [
        [[1, 128_000, 8], [2, 48_000, 7], [2, 24_000, 9]],
        [[2, 48_000, 9]],
    ]
    assert request["overhead"] == 4.0 * 16_000
    assert (run.steps, run.micro_batches, run.fits) == (2, 4, True)
    assert run.padding == pytest.approx(1 - 20.0 / 23.0)
    assert run.use is not None and run.limit_bytes is not None
    assert run.use * run.limit_bytes == pytest.approx(sum(STATIC.values()) + MIB * 23.0 / 4)
    for part in ("2 steps, 4 micro-batches", "no micro-batch is out of memory", "padding 13.0%", "by time"):
        assert part in repr(run)


def test_steps_that_keep_their_padding(traced: MemoryModel, library: FakeLibrary) -> None:
    traced.simulate_steps([1.0, 2.0, 4.0], [[2, 1, 0]], table=((4.0, 2),), labels=[1, 2, 3], trim=False)
    assert library.asked[-1][1]["windows"] == [[[2, 64_000, 3], [1, 64_000, 1]]]
    traced.simulate_steps([1.0, 2.0, 4.0], [[[2, 0], [1]]], labels=[1, 2, 3])
    assert library.asked[-1][1]["windows"] == [[[2, 64_000, 3], [1, 32_000, 2]]]


def test_steps_of_a_sampler_go_on_with_the_next_epoch(traced: MemoryModel, library: FakeLibrary) -> None:
    durations = [0.5 + 0.1 * n for n in range(40)]
    sampler = ac.StepSampler(durations, 16, memory=[(5.0, 8)], seed=1)
    sampler.set_epoch(3)
    run = traced.simulate_steps(durations, sampler, count=4)
    assert run.steps == 4 and sampler.epoch == 3
    sizes = [sum(micro[0] for micro in window) for window in library.asked[-1][1]["windows"]]
    assert sizes == [16, 16, 8, 16]
    with pytest.raises(InvalidArgumentError, match="39 durations, and StepSampler"):
        traced.simulate_steps(durations[:-1], sampler)


def test_steps_out_of_memory_are_counted(traced: MemoryModel) -> None:
    limit = 520 * MIB  # 400 MiB and 16 seconds, a quarter more reserved
    run = traced.simulate_steps([8.0], [[0], [0] * 3, [0], [0] * 3], table=((8.0, 9),), limit_bytes=limit)
    assert (run.fits, run.failed_steps, run.first_failed_step) == (False, 2, 1)
    assert "2 steps are out of memory, step 1 first" in repr(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": []}, "no step"),
        ({"steps": [[0], [1]]}, r"step 1 = \[1\]"),
        ({"steps": [[0], ["a"]]}, "step 1"),
        ({"steps": [5]}, "step 0 = 5"),
        ({"durations": [float("nan")]}, r"durations\[0\]"),
        ({"count": 0}, "count = 0"),
        ({"limit_bytes": -1}, "limit_bytes = -1"),
    ],
)
def test_wrong_steps_are_named(traced: MemoryModel, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        traced.simulate_steps(**{"durations": [1.0], "steps": [[0]], **options})


def test_a_model_with_fixed_input(library: FakeLibrary) -> None:
    library.about |= {"length_per_second": 100, "fixed_length": 3000, "max_labels": 20, "labels_per_second": 4}
    with MemoryModel.load("any.trace") as model:
        assert (model.length(1.0), model.length(30.0), model.labels(1.0), model.labels(30.0)) == (3000, 3000, 4, 20)
        with pytest.raises(InvalidArgumentError, match=r"audio of 31 s is longer than the 30 s"):
            model.estimate(2, 31.0)
        with pytest.raises(InvalidArgumentError, match="labels = 21 is more than the 20"):
            model.estimate(2, 3.0, 21)


def test_lengths_are_rounded_up_to_the_longest_that_the_model_takes(library: FakeLibrary) -> None:
    library.about |= {"length_per_second": 50, "max_length": 64}
    with MemoryModel.load("any.trace", gpu="T4") as model:
        assert model.longest_s == 1.28
        assert memory_table(model, 1.28)[-1][0] == 1.28
        fits = model.largest_batch(1.28)
        assert MemoryBudget(model).predicted(1.28) == fits
        assert by_memory(model)(fits, 1.5) is None, "a batch of 1.28 s, as lengths are given to it"
        with pytest.raises(InvalidArgumentError, match=r"1\.3 s is longer than the 1\.28 s"):
            memory_table(model, 1.3)


def test_a_table_of_a_model_that_truncates_goes_on_behind_its_length(library: FakeLibrary) -> None:
    library.about |= {"length_per_second": 100, "fixed_length": 1024, "truncates": True}
    with MemoryModel.load("any.trace", gpu="T4") as model:
        assert memory_table(model, 30.0) == ((30.0, model.largest_batch(1.0)),)


def test_evaluation_keeps_what_it_gives(traced: MemoryModel) -> None:
    v = traced.estimate(8, 10.0, evaluation_batch=16).evaluation
    assert v is not None
    resident = STATIC["parameters"] + STATIC["optimizer"]
    assert (v.batch, v.outputs_bytes_per_sample, v.resident_bytes) == (16, 1000, resident)
    assert v.peak_allocated == resident + 16 * PER_SECOND + 16_000
    assert v.generation_cache_bytes is None
    million = 1_000_000
    assert v.gpu_bytes(million) == resident + 2 * million * 1000
    assert v.gpu_bytes(16) == v.peak_allocated + 16_000
    assert v.gpu_bytes(million, eval_accumulation_steps=2) == v.peak_allocated + 32_000
    assert (v.host_bytes(million), v.host_bytes(million, 2)) == (million * 1000, 2 * million * 1000)
    with pytest.raises(InvalidArgumentError, match="samples = 0"):
        v.gpu_bytes(0)


def test_a_generation_cache_is_that_of_whisper(library: FakeLibrary) -> None:
    library.about |= {"decoder_layers": 12, "decoder_width": 768, "source_frames": 1500, "max_labels": 448}
    with MemoryModel.load("any.trace") as model:
        v = model.evaluation(4, 10.0)
    assert v.generation_cache_bytes == 2 * 12 * 768 * (448 + 1500) * 2 * 4


def _calibration(factor: float) -> Calibration:
    return Calibration(
        "Fake", "NVIDIA L4", installed_version("torch"), "2026-01-02", 8, 10.0, factor, 1, 1, 1, 1, 2 * CONTEXT
    )


def test_a_calibration_corrects_reserved_memory(traced: MemoryModel) -> None:
    before, largest = traced.estimate(8, 10.0), traced.largest_batch(10.0)
    traced.apply(_calibration(1.1))
    e = traced.estimate(8, 10.0)
    assert e.peak_allocated == before.peak_allocated
    assert e.peak_reserved == round(before.peak_reserved * 1.1)
    assert e.peak_device == e.peak_reserved + 2 * CONTEXT
    assert e.phases[1].peak_reserved == e.peak_reserved
    assert e.timeline is not None and max(e.timeline.reserved) == e.peak_reserved
    assert "calibrated on NVIDIA L4, torch" in repr(e) and "factor 1.100" in repr(e)
    assert traced.largest_batch(10.0) < largest
    limit = traced.target.limit_bytes
    assert limit is not None
    at_most = traced.estimate(traced.largest_batch(10.0), 10.0)
    assert at_most.fits and at_most.peak_reserved <= limit


def test_a_stored_calibration_is_found_again(recorded: list[Recording]) -> None:
    with MemoryModel.trace("xls-r-300m", gpu="L4") as model:
        assert model.calibration is None
        assert model.model_key is not None
        path = store_calibration(model.model_key, _calibration(1.25))
    with MemoryModel.trace("xls-r-300m", gpu="L4", precision="bf16") as again:
        assert again.calibration == _calibration(1.25)
    assert MemoryModel.trace("xls-r-300m", gpu="T4").calibration is None
    assert MemoryModel.trace("xls-r-1b", gpu="L4").calibration is None
    for broken in ("{}", "not json", json.dumps({**vars(_calibration(1.0)), "factor": 99})):
        path.write_text(broken)
        assert find_calibration(model.model_key, "NVIDIA L4") is None


def test_handles_are_given_back(library: FakeLibrary) -> None:
    model = MemoryModel.load("any.trace")
    assert len(library.opened) == 1
    assert "closed" not in repr(model)
    model.close()
    model.close()
    assert not library.opened
    assert "closed" in repr(model)
    with pytest.raises(InvalidArgumentError, match="is closed"):
        model.estimate(1, 1.0)
    forgotten = MemoryModel.load("any.trace")
    assert len(library.opened) == 1
    del forgotten
    gc.collect()
    assert not library.opened


def test_settings_reach_the_recorder_and_the_simulation(recorded: list[Recording], library: FakeLibrary) -> None:
    e = estimate_memory(
        "xls-r-300m", batch=2, seconds=3, labels=7, precision="bf16", gradient_checkpointing="reentrant",
        optimizer="adafactor", accumulation=4, freeze_feature_encoder=True, gpu="T4",
        allocator="expandable_segments:True", cache=False,
    )  # fmt: skip
    settings = MemorySettings("bf16", "reentrant", "adafactor", 4, True, "expandable_segments:True")
    assert (recorded[0].settings, recorded[0].capability, e.settings) == (settings, (7, 5), settings)
    request = next(args for op, args in library.asked if op == "memory.simulate")
    wanted = {"batch": 2, "length": 48_000, "labels": 7, "accumulation": 4, "settings": "expandable_segments:True"}
    assert wanted.items() <= request.items()
    assert "feature encoder frozen" in repr(e)
    assert library.opened, "a snapshot is asked of the trace"
    del e
    gc.collect()
    assert not library.opened, "the trace stayed open"


def test_cached_traces_are_opened_by_path(recorded: list[Recording], library: FakeLibrary) -> None:
    from asrconfig_go.predict.recordings import TraceCache

    def keys(**settings: Any) -> str:
        MemoryModel.trace("xls-r-300m", **settings).close()
        made = recorded[-1]
        return made.key("m")

    assert keys() == keys(cache=False) == keys(allocator="expandable_segments:True")
    assert keys(gradient_checkpointing=True) == keys(gradient_checkpointing="non_reentrant")
    assert keys(accumulation=3) == keys(accumulation=30) != keys(accumulation=2)
    different = [keys(), keys(precision="bf16"), keys(gradient_checkpointing=True), keys(optimizer="adafactor")]
    different += [keys(gpu="T4"), keys(accumulation=2)]
    assert len(set(different)) == len(different)

    count, cache = len(recorded), TraceCache()
    model = MemoryModel.trace("xls-r-300m")
    key = recorded[-1].key(str(model.model_key))
    cache.store(key, b"")
    path = cache.find(key)
    assert len(recorded) == count + 1
    with MemoryModel.trace("xls-r-300m"):
        assert library.asked[-1] == ("memory.open", {"path": str(path)})
    assert len(recorded) == count + 1


def test_a_broken_cached_trace_is_recorded_anew(
    recorded: list[Recording], library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    from asrconfig_go.predict.recordings import TraceCache

    model_key = MemoryModel.trace("xls-r-300m").model_key
    cache, recorded_key = TraceCache(), recorded[-1].key(str(model_key))
    cache.store(recorded_key, b"junk")

    def broken(path: str = "", trace: str = "") -> Any:
        if path:
            raise CorruptFileError("not a trace")
        return FakeLibrary.open(library)

    monkeypatch.setattr(library, "open", broken)
    MemoryModel.trace("xls-r-300m")
    assert len(recorded) == 2


def test_what_cannot_be_traced_is_answered_by_a_formula(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise UnsupportedError("aten.odd in layers.3 cannot be traced", "…")

    monkeypatch.setattr(Recording, "make", fails)
    with pytest.warns(EstimatorWarning, match=r"trace estimator could not answer: aten\.odd in layers\.3"):
        e = estimate_memory("xls-r-300m", batch=8, seconds=10, gpu="L4", evaluation_batch=4)
    assert e.estimator == "published"
    for rendered in (repr(e), e._repr_html_()):
        assert "published formula" in rendered and "aten.odd in layers.3" in rendered
    assert e.evaluation is None and "from traces only" in repr(e)
    with pytest.raises(UnsupportedError, match=r"aten\.odd"):
        estimate_memory("xls-r-300m", batch=8, seconds=10, estimator="trace")


def test_the_published_formula(library: FakeLibrary) -> None:
    profile = ModelProfile(total_parameters=300_000_000)
    e = estimate_memory(profile, batch=8, seconds=8, gpu="T4", estimator="published")
    assert e.peak_allocated == round(4.8e9 + 8 * (0.1 * 4.8e9 + 8 * 16_000 * 4))
    assert e.fits is True
    assert "ignores how activations grow" in repr(e)


def test_without_torch_a_recording_answers_without_a_warning(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asrconfig_go.predict.memory_model.can_trace", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimate_memory("xls-r-300m", batch=8, seconds=10, precision="fp16", gpu="T4").estimator == "trace"
    monkeypatch.setattr("asrconfig_go.predict.recordings.can_trace", lambda: False)
    with pytest.raises(UnsupportedError, match="torch and transformers") as caught:
        estimate_memory("hubert-large-ll60k", batch=8, seconds=10, estimator="trace", cache=False)
    assert "pip install" in caught.value.hint


def test_changes_that_would_fit_are_named() -> None:
    """Settings that need less, each as traced; what the model cannot train with is left out."""

    def ask(settings: MemorySettings) -> Any:
        if settings.freeze_feature_encoder:
            raise InvalidArgumentError("there is no feature encoder to freeze", "…")
        peak = (9 if settings.gradient_checkpointing else 20) + (0 if settings.precision == "fp16" else 2)
        return types.SimpleNamespace(peak_device=peak * 2**30, fits=peak <= 10)

    none = changes_that_fit(MemorySettings("bf16"), ask)
    assert none == ("not even gradient_checkpointing=True and optimizer='adafactor': 11.0 GiB would fit",)
    assert changes_that_fit(MemorySettings("fp16"), ask) == ("gradient_checkpointing=True: 9.0 GiB",)
    together = changes_that_fit(MemorySettings("fp32"), ask)
    assert together == ("gradient_checkpointing=True and precision='fp16': 9.0 GiB",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch = 0"),
        ({"batch": True}, "batch = True"),
        ({"batch": 10**9}, "batch = 1000000000"),
        ({"seconds": 0}, "seconds = 0"),
        ({"seconds": float("nan")}, "seconds = nan"),
        ({"labels": -1}, "labels = -1"),
        ({"precision": "fp8"}, "precision = 'fp8'"),
        ({"gradient_checkpointing": "yes"}, "gradient_checkpointing = 'yes'"),
        ({"optimizer": ""}, "optimizer is empty"),
        ({"accumulation": 0}, "accumulation = 0"),
        ({"estimator": "guess"}, "estimator = 'guess'"),
        ({"gpu": "T5"}, "T5"),
        ({"model": "no-such-model"}, "no-such-model"),
        ({"evaluation_batch": 0}, "batch = 0"),
    ],
)
def test_wrong_questions_are_named(recorded: list[Recording], options: dict[str, Any], message: str) -> None:
    question: dict[str, Any] = {"model": "xls-r-300m", "batch": 2, "seconds": 3.0} | options
    with pytest.raises(AsrConfigError, match=message) as caught:
        estimate_memory(question.pop("model"), **question)
    assert caught.value.hint


def test_own_batches_must_be_a_function(recorded: list[Recording]) -> None:
    with pytest.raises(InvalidArgumentError, match="batch_fn is a dict"):
        MemoryModel.trace("xls-r-300m", {"input_values": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="length_per_second"):
        MemoryModel.trace("xls-r-300m", length_per_second=0)


def test_an_estimate_is_json(traced: MemoryModel) -> None:
    traced.apply(_calibration(1.0))
    body = json.loads(json.dumps(traced.estimate(8, 10.0, evaluation_batch=4).to_dict(), allow_nan=False))
    assert body["gpu"]["name"] == "NVIDIA L4"
    assert body["shape"] == {"batch": 8, "seconds": 10.0, "labels": None}
    assert body["peak_device"] + body["headroom_bytes"] == body["gpu"]["available_bytes"]
    assert (body["calibration"]["factor"], body["evaluation"]["batch"]) == (1.0, 4)


def test_a_live_gpu_s_own_memory_counts_as_available(monkeypatch: pytest.MonkeyPatch, library: FakeLibrary) -> None:
    from asrconfig_go.predict.hardware import HardwareProfile
    from asrconfig_go.predict.predict_records import GPUProcess

    planned = HardwareProfile.detect("L4")
    processes = (GPUProcess(os.getpid(), 3 * MIB), GPUProcess(1, 5 * MIB))
    gpu = dataclasses.replace(planned.gpus[0], memory_free_bytes=100 * MIB, processes=processes)
    hardware = dataclasses.replace(planned, gpus=(gpu,))
    monkeypatch.setattr(HardwareProfile, "detect", classmethod(lambda cls, *_: hardware))
    target = Target.find(None)
    assert target.available_bytes == 103 * MIB
    assert target.limit_bytes == 0

    class Cuda:
        is_initialized = staticmethod(lambda: True)
        memory_reserved = staticmethod(lambda place: 40 * MIB)

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=Cuda))
    assert Target.find(None).available_bytes == 103 * MIB
    strangers = dataclasses.replace(hardware, gpus=(dataclasses.replace(gpu, processes=(GPUProcess(1, 9 * MIB),)),))
    monkeypatch.setattr(HardwareProfile, "detect", classmethod(lambda cls, *_: strangers))
    assert Target.find(None).available_bytes == 140 * MIB + CONTEXT
    eight = dataclasses.replace(planned, gpus=8 * planned.gpus)
    monkeypatch.setattr(HardwareProfile, "detect", classmethod(lambda cls, *_: eight))
    contexts = [Target.find(*asked).context_bytes for asked in ((None,), (None, 1), (None, 4), ("8xL4",))]
    assert contexts == [CONTEXT, CONTEXT, 2 * CONTEXT, 2 * CONTEXT], "one process has no NCCL, whatever it sees"
