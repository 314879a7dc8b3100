"""One call from dataset and model to a plan."""

from __future__ import annotations

from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.audio import LoaderNotMeasuredWarning
from asrconfig_go.data.source import CLIPS
from asrconfig_go.errors import AsrConfigError, InvalidArgumentError, NotFoundError
from asrconfig_go.predict import ModelProfile

CLIPS_8S = [[0.0] * 800 for _ in range(100)]  # 8 s at 100 Hz


def plan(clips: Any = CLIPS_8S, model: Any = None, **options: Any) -> ac.TrainingConfig:
    model = ModelProfile(total_parameters=300_000_000) if model is None else model
    usual: dict[str, Any] = {"gpu": "T4", "sampling_rate": 100, "verbose": False}
    return ac.create_optimal_config(clips, model, **(usual | options))[0]


# The published inputs: 12.5 GB of model memory is 781.25 M fully trained parameters at 16 B, 4.8 GB is 300 M. The
# checkpoints of those names are larger: XLS-R-1B has 962.5 M parameters, and the formula then gives 2 × 16 on an L4.
@pytest.mark.parametrize(
    ("gpu", "parameters", "batch", "accumulation"),
    [
        ("L4", 781_250_000, 4, 8),
        ("A100-40GB", 781_250_000, 8, 4),
        ("T4", 300_000_000, 8, 4),
        ("L4", 962_538_400, 2, 16),
    ],
)
def test_published_scenarios(gpu: str, parameters: int, batch: int, accumulation: int) -> None:
    config = plan(model=ModelProfile(total_parameters=parameters), gpu=gpu, policy="published")
    assert config.policy == "published"
    assert (config.per_device_train_batch_size, config.gradient_accumulation_steps) == (batch, accumulation)
    assert config.effective_batch_size == 32


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("no-such-model", NotFoundError, "no-such-model"),
        (ModelProfile(total_parameters=0), AsrConfigError, "parameters"),
        (ModelProfile(total_parameters=1.5), InvalidArgumentError, "total_parameters"),  # type: ignore[arg-type]
        (ModelProfile(total_parameters=5, trainable_parameters=6), InvalidArgumentError, "6"),
        (42, InvalidArgumentError, "from an int"),
        ({"model_type": "wav2vec2", "hidden_size": "wide"}, InvalidArgumentError, "hidden_size"),
    ],
)
def test_wrong_models_are_named(model: Any, kind: type[AsrConfigError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        plan(model=model)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"safety_margin": value}, f"safety_margin = {value}") for value in (0.5, 0.99, float("nan"))),
        *(({"target_batch_size": value}, f"{value}") for value in (0, -4, 10**9, 3.5)),
        ({"target_batch_size": 10**30}, "target_batch_size"),
        *(({name: "magic"}, "magic") for name in ("preset", "policy", "optimizer", "lr_scaling")),
        ({"gpu": 4}, "gpu = 4"),
        ({"sampling_rate": 0}, "sampling rate 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AsrConfigError, match=message) as caught:
        plan(**options)
    assert caught.value.hint


@pytest.mark.parametrize("wrong", [{"target_batch_size": 0}, {"preset": "fast"}, {"model": "no-such-model"}])
def test_wrong_options_come_to_light_before_the_scan(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(*_: object, **__: object) -> None:
        raise AssertionError("the dataset was scanned first")

    monkeypatch.setattr(ac.manager, "scan_audio", scan)
    with pytest.raises(AsrConfigError):
        plan(**wrong)


def test_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="T5") as caught:
        plan(gpu="T5")
    assert "T4" in caught.value.hint


def test_other_ranks_print_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    ac.create_optimal_config(CLIPS, "wav2vec2-base", gpu="2xT4", trace=False)
    assert capsys.readouterr().out == ""


def test_stages_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(LoaderNotMeasuredWarning, match="sampling_rate = 100"):
        plan(verbose=True)
    printed = capsys.readouterr().out
    stages = [printed.index(stage) for stage in ("Hardware:", "Dataset:", "Model:", "Optimized Settings")]
    assert stages == sorted(stages)
    for name in ("Clips a step", "Micro-batches", "Precision", "Gradient checkpointing", "Memory", "Time"):
        assert f"  {name} " in printed
    assert max(map(len, printed.splitlines())) <= 80
    with pytest.warns(LoaderNotMeasuredWarning, match="sampling_rate = 100"):
        plan()
    assert capsys.readouterr().out == ""


def test_rows_that_only_load_speech_reads() -> None:
    with pytest.raises(InvalidArgumentError, match=r"pass load_speech\(rows\)\.train"):
        ac.create_optimal_config([{"audio": "a.wav", "text": "one"}], "wav2vec2-base", gpu="T4", verbose=False)


def test_the_loader_of_a_dataset_that_does_not_exist() -> None:
    with pytest.raises(NotFoundError, match="the dataset '/nowhere' does not exist"):
        ac.ASRConfigManager(gpu="T4").measure_loader("/nowhere")


def test_steps_one_by_one() -> None:
    manager = ac.ASRConfigManager(gpu="2xT4", safety_margin=0.9)
    with pytest.raises(InvalidArgumentError, match="profile_dataset"):
        manager.plan()
    manager.profile_dataset(CLIPS_8S, sample_size=10, sampling_rate=100)
    manager.profile_model("whisper-tiny", name="mine")
    with pytest.raises(InvalidArgumentError, match="no plan yet"):
        manager.explain()
    config = manager.plan()
    assert (config.safety_margin, config.device_count, config.effective_batch_size) == (0.9, 2, 32)
    assert manager.hardware.usable_memory_bytes == int(0.9 * manager.hardware.gpus[0].memory_total_bytes)
    assert "mine" in repr(manager)


@pytest.mark.parametrize("count", [1, 2])
def test_devices_are_counted_alike_by_name_and_by_device_count(count: int) -> None:
    """NCCL's buffers take memory of each of several devices, however many of them were asked for."""
    clips, settings = [[0.0] * 16_000 * 8 for _ in range(40)], {"trace": False, "sampling_rate": 16_000}
    named = plan(clips, "wav2vec2-base", gpu=f"{count}xT4", **settings)
    for gpu in ("T4", "3xT4"):
        assert (
            plan(clips, "wav2vec2-base", gpu=gpu, device_count=count, **settings).predicted_bytes
            == named.predicted_bytes
        )


def test_a_scan_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clips are not measured again, and the plan is the one of what was scanned."""
    options: dict[str, Any] = {"gpu": "T4", "trace": False, "verbose": False, "loader_rate": 100.0}
    plain, of_source = ac.create_optimal_config(CLIPS, "wav2vec2-base", **options)
    scan = ac.scan_audio(CLIPS, progress=False)
    monkeypatch.setattr("asrconfig_go.data.scan.scan_job", None)
    config, manager = ac.create_optimal_config(scan, "wav2vec2-base", **options)
    planned = [{k: v for k, v in c.to_dict().items() if k != "decisions"} for c in (config, plain)]
    assert planned[0] == planned[1], "all but the reasons, which say how much RAM is left"
    assert manager.durations == of_source.durations
    assert manager.dataset is scan.profile
    assert manager.profile_dataset(scan) is scan.profile
    assert scan.source == CLIPS
    assert ac.scan_audio(scan) is scan
    with pytest.raises(ac.AsrConfigError, match="sample_size = 3 of clips that were scanned already"):
        manager.profile_dataset(scan, 3)


def test_the_rows_of_a_scan_are_collated_and_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"input_values": [[0.0] * 16_000] * 8, "labels": [[1]] * 8})
    manager = ac.ASRConfigManager(gpu="T4")
    sources: list[Any] = []
    monkeypatch.setattr("asrconfig_go.manager.examples_of", lambda source, *_: sources.append(source))
    manager.profile_dataset(ac.scan_audio(rows, progress=False))
    assert sources == [rows]
    assert list(manager.durations) == [1.0] * 8
    stream = rows.to_iterable_dataset()
    manager.profile_dataset(ac.scan_audio(stream, progress=False))
    assert manager._streamed and sources[-1] is stream
