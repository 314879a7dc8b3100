"""The published scenarios come out of the default call: a plan that fits, with what will run."""

from __future__ import annotations

import pytest

import asrconfig_go as ac
from asrconfig_go.plan.plan_options import PlanOptions
from asrconfig_go.predict import MemoryModel

XLSR_1B, XLSR_300M = "facebook/wav2vec2-xls-r-1b", "facebook/wav2vec2-xls-r-300m"
ROWS = (
    (XLSR_1B, "L4"), (XLSR_1B, "A10G"), (XLSR_1B, "RTX 3090"), (XLSR_1B, "A100-40GB"), (XLSR_1B, "V100-32"),
    (XLSR_300M, "T4"), (XLSR_300M, "RTX 3090"), (XLSR_300M, "V100-16"),
)  # fmt: skip
DURATIONS = {"8 s": [8.0] * 320, "up to 15 s": [2 + 13 * (i * 0.618 % 1) for i in range(319)] + [15.0]}


def planned(
    model: str, gpu: str, durations: list[float], trace: bool | None = None
) -> tuple[ac.TrainingConfig, ac.ASRConfigManager]:
    clips = [[0.0] * int(100 * s) for s in durations]
    return ac.create_optimal_config(clips, model, gpu=gpu, trace=trace, sampling_rate=100, verbose=False)


@pytest.mark.filterwarnings("ignore::asrconfig_go.audio.LoaderNotMeasuredWarning")
@pytest.mark.parametrize("lengths", DURATIONS)
@pytest.mark.parametrize(
    ("model", "gpu"), [row if row == (XLSR_300M, "T4") else pytest.param(*row, marks=pytest.mark.slow) for row in ROWS]
)
def test_every_published_row_fits_by_default(model: str, gpu: str, lengths: str) -> None:
    config, manager = planned(model, gpu, DURATIONS[lengths], trace=False)
    assert config.policy == "fastest"
    assert config.effective_batch_size == 32
    assert 0 < config.predicted_bytes <= config.budget_bytes
    assert (config.optimizer, config.alloc_conf) == ("adamw_torch_fused", "expandable_segments:True")

    (other,) = manager.what_if([gpu]).rows
    assert other.fits and other.optimizer == config.optimizer, "a comparison does not contradict the plan"
    assert other.peak_bytes <= other.budget_bytes
    (compared,) = ac.compare_gpus(model, gpus=[gpu], hours=1, mean_s=8, max_s=max(DURATIONS[lengths])).rows
    assert compared.fits and compared.optimizer == config.optimizer
    full_training = {m.name: m.full for m in ac.largest_models(gpu, "xls-r", seconds=max(DURATIONS[lengths])).models}
    assert full_training[model].fits


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::asrconfig_go.audio.LoaderNotMeasuredWarning")
@pytest.mark.parametrize(("model", "gpu", "fits"), [(XLSR_1B, "L4", 4), (XLSR_300M, "T4", 8)])
def test_a_traced_row_is_what_its_settings_take(model: str, gpu: str, fits: int) -> None:
    pytest.importorskip("transformers")
    config, manager = planned(model, gpu, DURATIONS["8 s"])
    assert config.effective_batch_size == 32
    assert config.predicted_bytes <= config.budget_bytes
    assert config.micro_batch_size >= fits, "the published micro-batch, at least"
    assert any(d.setting == "predicted_bytes" and "traced" in d.reason for d in config.decisions)
    with MemoryModel.trace(
        model, precision=config.precision, gradient_checkpointing=config.gradient_checkpointing,
        optimizer=config.optimizer, accumulation=3, gpu=gpu, allocator=config.alloc_conf, progress=False,
    ) as memory:  # fmt: skip
        micro_batches = -(-config.effective_batch_size // config.micro_batch_size)
        estimate = memory.estimate(config.micro_batch_size, 8.0, accumulation=micro_batches, timeline=0)
        assert estimate.peak_device == config.predicted_bytes
        assert estimate.retries == 0
        limit = config.budget_bytes - (memory.target.context_bytes or 0)
        assert memory.largest_batch(8.0, limit, most=32) >= config.micro_batch_size
    rough = manager.plan(PlanOptions(), trace=False)
    assert rough.gradient_checkpointing == config.gradient_checkpointing
    assert rough.predicted_bytes == pytest.approx(config.predicted_bytes, rel=0.03), "both ways of knowing agree"


RECORDED = ["facebook/wav2vec2-base", XLSR_300M, XLSR_1B, "openai/whisper-tiny", "openai/whisper-small"]
RECORDED += ["openai/whisper-medium", "facebook/w2v-bert-2.0", "nvidia/parakeet-ctc-0.6b", "microsoft/wavlm-base-plus"]


@pytest.mark.filterwarnings("ignore::asrconfig_go.audio.LoaderNotMeasuredWarning")
@pytest.mark.parametrize("seconds", [2.0, 25.0])
@pytest.mark.parametrize(
    "model",
    [name if name == "openai/whisper-small" else pytest.param(name, marks=pytest.mark.slow) for name in RECORDED],
)
def test_predicted_steps_are_as_fast_as_gpus_compute(model: str, seconds: float) -> None:
    config, _ = planned(model, "L4", [seconds] * 64, trace=False)
    times, arithmetic = config.times, config.arithmetic
    assert times is not None and arithmetic is not None and arithmetic.rate is not None
    tokens_a_second = 4  # of made-up transcripts
    x = seconds * (tokens_a_second if arithmetic.unit == "labels" else 1)
    flops = sum(factor * x**power for power, factor in enumerate(arithmetic.clip_flops)) * config.effective_batch_size
    computing_s = sum(part.likely for part in (times.parts.compute, times.parts.memory, times.parts.launches))
    utilization = flops / arithmetic.rate / computing_s
    assert 0.03 < utilization < 0.6, "trainings of speech models reach 5 to 50 % of a GPU's published rate"
