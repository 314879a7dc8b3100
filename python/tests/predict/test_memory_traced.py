"""Real recordings of small models, replayed by the real library."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError
from asrconfig_go.predict import BatchingWarning, EstimatorWarning, memory_table
from asrconfig_go.predict.memory_settings import Shape

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from asrconfig_go import trace as recorder
from asrconfig_go.trace import step_tracing

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "conv_dim": [32, 32],
    "conv_kernel": [10, 8], "conv_stride": [8, 8], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "feat_extract_norm": "layer", "do_stable_layer_norm": True, "vocab_size": 40,
    "mask_time_prob": 0.0,  # how many frames are masked is drawn, so no formula is exact
}  # fmt: skip

TINY_WHISPER = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_source_positions": 100, "vocab_size": 200, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def config() -> Any:
    return transformers.Wav2Vec2Config(**SMALL)


@pytest.fixture(scope="module")
def traced(config: Any) -> Iterator[ac.MemoryModel]:
    """fp32, so that every size is a plain sum of elements."""
    with ac.MemoryModel.trace(config, precision="fp32", gpu="L4", cache=False, progress=False) as model:
        yield model


def frames(samples: int) -> int:
    for kernel, stride in zip(SMALL["conv_kernel"], SMALL["conv_stride"], strict=True):  # type: ignore[call-overload]
        samples = (samples - kernel) // stride + 1
    return samples


def rounded(tensors: Any) -> int:
    """Bytes in the allocator's blocks of 512."""
    return sum(-(-t.numel() * t.element_size() // 512) * 512 for t in tensors)


def test_parameters_gradients_and_states_are_exact(traced: ac.MemoryModel, config: Any) -> None:
    module = transformers.Wav2Vec2ForCTC(config)
    size = rounded(module.parameters())
    e = traced.estimate(6, 5.0)
    assert e.estimator == "trace"
    assert e.approximate == 0
    assert e.at_peak.components["parameters"] == size
    assert 2 * size <= e.at_peak.components["optimizer"] <= 2 * size + 512 * len(list(module.parameters()))
    assert e.peak_requested <= e.peak_allocated <= e.peak_reserved
    assert sum(e.at_peak.components.values()) == e.peak_allocated
    assert {p.phase for p in e.phases} == {"load", "forward", "backward", "optimizer"}
    assert e.fits is True and e.headroom_bytes is not None
    assert e.timeline is not None
    assert max(e.timeline.reserved) == e.peak_reserved


def test_a_traced_shape_and_one_between_are_the_same_as_traced_directly(config: Any, traced: ac.MemoryModel) -> None:
    options: dict[str, Any] = {"precision": "fp32", "gpu": "L4", "cache": False, "progress": False}
    assert frames(65_600) % 8 == 0  # attention masks need no padding there
    for point in [(6, 80_000, 30), (7, 33_333, 9), (1, 50_000, 12), (5, 65_600, 40)]:
        with ac.MemoryModel.trace(config, points=[point], **options) as model:
            direct, fitted = (m.estimate(point[0], point[1] / 16_000, point[2]) for m in (model, traced))
        assert fitted.peak_requested == direct.peak_requested
        assert fitted.peak_allocated == direct.peak_allocated
        assert fitted.peak_reserved == direct.peak_reserved


def test_a_saved_trace_knows_the_lengths_that_the_model_takes(tmp_path: Path) -> None:
    whisper = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**TINY_WHISPER))
    recorder.trace_training(whisper, precision="fp32", evaluation=False).save(tmp_path / "whisper.trace")
    with ac.MemoryModel.load(tmp_path / "whisper.trace") as model:
        assert model.length(1.0) == 200
        assert model.estimate(4, 1.0, 64).peak_allocated > 0
        with pytest.raises(InvalidArgumentError, match="2 s that"):
            model.estimate(4, 2.5)


def test_more_audio_needs_more_memory(traced: ac.MemoryModel) -> None:
    peaks = [traced.estimate(b, s).peak_allocated for b, s in ((1, 4.0), (2, 4.0), (8, 4.0), (8, 9.0), (8, 30.0))]
    assert peaks == sorted(peaks)
    assert len(set(peaks)) == len(peaks)


def test_a_live_module_is_left_alone_and_gives_the_same(traced: ac.MemoryModel, config: Any) -> None:
    module = transformers.Wav2Vec2ForCTC(config).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    random = torch.get_rng_state()
    with ac.MemoryModel.trace(module, precision="fp32", gpu="L4", progress=False) as live:
        assert live.estimate(5, 3.0).peak_reserved == traced.estimate(5, 3.0).peak_reserved
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module.training
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.slow
def test_the_second_time_nothing_is_recorded(config: Any, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question: dict[str, Any] = {"batch": 4, "seconds": 2.0, "gpu": "T4", "progress": False}
    first = ac.estimate_memory(config, **question)

    def refuses(*_: Any, **__: Any) -> Any:
        raise AssertionError("recorded again")

    monkeypatch.setattr(step_tracing, "trace_training", refuses)
    assert repr(ac.estimate_memory(transformers.Wav2Vec2Config(**SMALL), **question)) == repr(first)
    with pytest.raises(UnsupportedError, match="recorded again"):
        ac.estimate_memory(config, **{**question, "estimator": "trace", "cache": False})
    with pytest.raises(UnsupportedError, match="recorded again"):
        ac.estimate_memory(config, **{**question, "estimator": "trace", "precision": "bf16"})
    monkeypatch.undo()
    monkeypatch.setenv("ASRCONFIG_CACHE", str(own_cache))
    (file,) = (own_cache / "traces").iterdir()
    for junk in (b"", file.read_bytes()[:1000]):
        file.write_bytes(junk)
        assert repr(ac.estimate_memory(config, **question)) == repr(first)
        assert file.read_bytes() != junk, "the broken file stayed"


@pytest.mark.slow
def test_checkpointing_and_freezing_save_memory(config: Any, traced: ac.MemoryModel) -> None:
    def of(component: str, model: Any = config, **settings: Any) -> int:
        with ac.MemoryModel.trace(
            model, precision="fp32", gpu="L4", points=[(8, 160_000, 150)], progress=False, **settings
        ) as changed:
            return changed.estimate(8, 10.0).at_peak.components.get(component, 0)

    plain = traced.estimate(8, 10.0).at_peak.components
    assert of("activations", gradient_checkpointing=True) < 0.7 * plain["activations"]
    frozen = transformers.Wav2Vec2ForCTC(config)
    frozen.freeze_feature_encoder()
    states = of("optimizer", freeze_feature_encoder=True)
    assert states == of("optimizer", frozen) < plain["optimizer"]
    assert of("optimizer", optimizer="sgd") == 0
    assert of("optimizer", optimizer="adafactor") < plain["optimizer"] / 5


def test_evaluation_keeps_the_logits(traced: ac.MemoryModel) -> None:
    v = traced.estimate(4, 5.0, evaluation_batch=16).evaluation
    assert v is not None
    logits = frames(80_000) * 40 * 4
    assert logits <= v.outputs_bytes_per_sample <= logits + 64  # the rest is the loss and rounding
    assert v.generation_cache_bytes is None
    assert v.resident_bytes < v.peak_allocated < traced.estimate(16, 5.0).peak_allocated
    assert v.host_bytes(10) == 10 * v.outputs_bytes_per_sample


def test_whisper_takes_thirty_seconds_and_keeps_a_cache() -> None:
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = transformers.WhisperConfig(
        d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=100, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, max_source_positions=100, max_target_positions=50, **sizes,
    )  # fmt: skip
    with ac.MemoryModel.trace(config, precision="fp16", gpu="T4", progress=False) as model:
        assert model.length(1.0) == model.length(2.0) == 200
        assert model.estimate(3, 1.0, 20).peak_allocated == model.estimate(3, 2.0, 20).peak_allocated
        assert model.estimate(3, 1.0, 20).peak_allocated < model.estimate(3, 1.0, 40).peak_allocated
        with pytest.raises(InvalidArgumentError, match="longer than the 2 s"):
            model.estimate(3, 2.5)
        with pytest.raises(InvalidArgumentError, match="labels = 51"):
            model.estimate(3, 1.0, 51)
        v = model.evaluation(8, 2.0, 20)
    assert v.generation_cache_bytes == 2 * 2 * 32 * (50 + 100) * 2 * 8
    logits_and_states = (20 * 100 + 100 * 32) * 4
    assert logits_and_states <= v.outputs_bytes_per_sample <= logits_and_states + 200


class OwnModel(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model of the user's own, with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.GELU(), torch.nn.Linear(300, 5))

    def forward(self, features: Any, targets: Any) -> dict[str, Any]:
        scores = self.layers(features)
        return {"loss": torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())}


def own_batch(batch: int, length: int, labels: int) -> dict[str, Any]:
    return {"features": torch.randn(batch, length, 20), "targets": torch.zeros(batch, length, dtype=torch.long)}


def test_an_own_model_with_its_own_batches() -> None:
    with ac.MemoryModel.trace(OwnModel(), own_batch, length_per_second=100, precision="fp32", progress=False) as model:
        assert model.length(2.0) == 200
        small, large = (model.estimate(32, s, 0).at_peak.components["activations"] for s in (40.0, 80.0))
        assert large == pytest.approx(2 * small, rel=0.01)
    with ac.MemoryModel.trace(OwnModel, own_batch, length_per_second=100, precision="fp32", progress=False) as built:
        assert built.name == "OwnModel"


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (lambda batch, length, labels: torch.zeros(batch, length), "batch_fn returned"),
        (lambda batch, length, labels: {"wrong": torch.zeros(batch, length)}, "wrong"),
        (lambda batch: {}, "argument"),
    ],
)
def test_wrong_batch_functions_are_one_error(batches: Any, message: str) -> None:
    with pytest.raises(AsrConfigError, match=message) as caught:
        ac.MemoryModel.trace(OwnModel(), batches, progress=False)
    assert caught.value.hint


class Undecided(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Its shapes depend on values that only a GPU would have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.config = transformers.Wav2Vec2Config(**SMALL)

    def forward(self, input_values: Any, **_: Any) -> Any:
        unique = torch.unique(self.linear(input_values[:, :400].reshape(-1, 4)))
        return {"loss": unique.sum()}


def test_a_step_that_cannot_be_traced_names_operation_and_module() -> None:
    with pytest.raises(UnsupportedError, match="unique") as caught:
        ac.estimate_memory(Undecided(), batch=2, seconds=1.0, estimator="trace", progress=False)
    assert caught.value.hint
    with pytest.warns(EstimatorWarning) as warned:
        e = ac.estimate_memory(Undecided(), batch=2, seconds=1.0, progress=False)
    assert ["unique" in str(w.message) for w in warned] == [True]
    assert e.estimator == "published"
    assert "unique" in repr(e)


def test_unknown_optimizers_are_named(config: Any) -> None:
    for estimator in ("auto", "trace", "published"):
        with pytest.raises(AsrConfigError, match="adamw9") as caught:
            ac.estimate_memory(config, batch=2, seconds=1.0, optimizer="adamw9", estimator=estimator, progress=False)  # type: ignore[arg-type]
        assert "adamw_torch" in str(caught.value)


def test_steps_of_unequal_micro_batches(config: Any) -> None:
    with ac.MemoryModel.trace(config, accumulation=3, precision="fp32", cache=False, progress=False) as memory:
        durations = [1.0 + 0.1 * n for n in range(60)]
        limit = memory.estimate(6, 6.9).peak_reserved
        table = memory_table(memory, max(durations), limit)
        assert all(b <= a for (_, a), (_, b) in itertools.pairwise(table))
        with pytest.warns(BatchingWarning, match="only 4 steps"):
            sampler = ac.StepSampler(durations, 15, mode="stratified", memory=table)
        run = memory.simulate_steps(durations, sampler, table=table, count=40, limit_bytes=limit)
        assert run.steps == 40 and run.micro_batches > 80
        assert run.peak_allocated <= run.peak_reserved <= limit
        assert run.use is not None and 0.3 < run.use <= 1
        free = memory.simulate_steps(durations, sampler, table=table, count=40)
        assert free.use is None and free.fits and free.peak_reserved >= free.largest_alone.peak_allocated
        none = memory.simulate_steps(durations, sampler, table=table, count=40, limit_bytes=limit // 8)
        assert (none.failed_steps, none.first_failed_step) == (1, 0), "it ends with its first step"


def test_the_largest_batch_fits_and_the_next_does_not(traced: ac.MemoryModel) -> None:
    limit = traced.estimate(5, 8.0).peak_reserved
    largest = traced.largest_batch(8.0, limit)
    assert largest >= 5
    assert traced.estimate(largest, 8.0).peak_reserved <= limit, "without giving cached memory back"
    assert limit < traced.estimate(2 * largest, 8.0).peak_allocated
    assert traced.largest_batch(8.0, 2**20) == 0


def test_saved_traces_are_loaded(config: Any, tmp_path: Path) -> None:
    made = recorder.trace_training(lambda: transformers.Wav2Vec2ForCTC(config), precision="bf16")
    made.save(tmp_path / "x.trace")
    with ac.MemoryModel.load(tmp_path / "x.trace", gpu="L4") as model:
        assert (model.settings.precision, model.name) == ("bf16", "Wav2Vec2ForCTC")
        assert model.estimate(4, 3.0).shape == Shape(4, 3.0)
        peak = model.estimate(4, 3.0, 20).peak_reserved
    with ac.MemoryModel.load(made) as same:
        assert same.estimate(4, 3.0, 20).peak_reserved == peak
    for wrong in ("none.trace", "junk.trace"):
        (tmp_path / "junk.trace").write_bytes(b"junk")
        with pytest.raises((NotFoundError, CorruptFileError)):
            ac.MemoryModel.load(tmp_path / wrong)


def test_a_loop_of_the_user_s_own_is_replayed_as_recorded() -> None:
    with recorder.MemoryRecorder() as recording:
        model = OwnModel()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(**own_batch(8, 100, 0))["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            recording.step()
    with ac.MemoryModel.load(recording.trace(), gpu="L4") as loop:
        e = loop.as_recorded()
        assert e.shape is None and "as recorded" in repr(e)
        assert e.at_peak.components["parameters"] == rounded(model.parameters())
        assert e.fits is True
        with pytest.raises(AsrConfigError, match="shape"):
            loop.estimate(8, 1.0)


def test_lengths_are_those_of_the_recorder(traced: ac.MemoryModel, config: Any) -> None:
    batches = recorder.speech_batches(config)
    for seconds in (0.1, 1.0, 3.14159, 29.99, 30.0):
        assert traced.length(seconds) == batches.length(seconds)
        assert traced.labels(seconds) == batches.labels(seconds)
