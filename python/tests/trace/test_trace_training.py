"""The Trainer's loop, traced: windows, optimizers, checkpointing, evaluation, and models that refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn

import trace_fixtures as models
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.predict import MemoryModel
from asrconfig_go.trace import SpeechBatches, Trace, TraceError, speech_batches, trace_training
from speech_processors import KINDS

POINTS = [(2, 16_001, 7), (3, 24_001, 11)]


def trace(model: Any = models.wav2vec2, **settings: Any) -> Trace:
    return trace_training(model, **{"points": POINTS, **settings})


def bytes_of(trace: Trace, tag: str, kind: str = "") -> int:
    total = 0
    for s in trace.segments:
        if s["kind"].startswith(kind):
            sizes = [e for e in s["events"] if e >= 0]
            total += sum(e for e, t in zip(sizes, s["tag"], strict=True) if trace.tags[t] == tag)
    return total


def peak(trace: Trace) -> int:
    sizes: list[int] = []
    now = highest = 0
    for s in trace.segments:
        for event in s["events"]:
            if event >= 0:
                sizes.append(event)
                now += event
            else:
                now -= sizes[-1 - event]
            highest = max(highest, now)
    return highest


def test_windows_follow_the_points() -> None:
    made = trace()
    kinds = [(s["kind"], s.get("batch"), s.get("length"), s.get("labels")) for s in made.segments]
    first, second = POINTS
    train = [(kind, *point) for point in (first, first, second) for kind in ("micro", "step")]
    assert kinds == [("load", None, None, None), *train, ("evaluate", *first), ("evaluate", *second)]
    assert made.about["precision"] == "fp32" and made.about["length_per_second"] == 16_000


def test_the_ladder_of_lengths_is_the_feature_encoders() -> None:
    made = trace()
    convolutions = [(r["kernel"], r["stride"]) for r in made.lengths[1:8]]
    assert convolutions == [(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]
    assert [r["of"] for r in made.lengths[1:8]] == list(range(7))


def test_the_model_is_left_as_it_is() -> None:
    model = models.wav2vec2().eval()
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    before = copy.deepcopy(model.state_dict())
    handle = model.lm_head.register_forward_hook(lambda *_: None)
    trace(model, precision="fp16", gradient_checkpointing=True)
    assert not model.training and not model.is_gradient_checkpointing
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(model.lm_head.weight.grad, torch.ones_like(model.lm_head.weight))
    assert list(model.lm_head._forward_hooks) == [handle.id]


def test_a_live_model_and_one_built_inside_give_the_same_trace() -> None:
    torch.manual_seed(0)
    assert trace(models.wav2vec2()).segments == trace(models.wav2vec2).segments


def test_gradients_optimizer_and_parameters() -> None:
    model = models.wav2vec2()
    model.freeze_feature_encoder()
    total = sum(p.numel() for p in model.parameters()) * 4
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad) * 4
    assert trainable < total
    made = trace(model, optimizer="adamw_torch")
    assert bytes_of(made, "parameter") == total
    assert bytes_of(made, "optimizer") == 2 * trainable
    assert bytes_of(made, "gradient") == 3 * trainable


@pytest.mark.parametrize(
    ("optimizer", "share"),
    [("adamw_torch", 2.0), ("adamw_torch_fused", 2.0), ("sgd", 0.0), ("rmsprop", 1.0), ("adagrad", 1.0)],
)
def test_states_of_optimizers(optimizer: str, share: float) -> None:
    made = trace(optimizer=optimizer)
    parameters = bytes_of(made, "parameter")
    scalars = 4 * sum(p.requires_grad for p in models.wav2vec2().parameters())
    assert bytes_of(made, "optimizer") - share * parameters in (0, scalars)  # fused keeps its step counts on the GPU


def test_small_states() -> None:
    parameters = bytes_of(trace(), "parameter")
    assert bytes_of(trace(optimizer="adafactor"), "optimizer") < 0.3 * parameters
    eight_bit = bytes_of(trace(optimizer="adamw_8bit"), "optimizer")
    assert 0.5 * parameters < eight_bit < parameters


def test_an_optimizer_of_ones_own() -> None:
    made = trace(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, foreach=True))
    assert bytes_of(made, "optimizer") == bytes_of(made, "parameter")


@pytest.mark.parametrize("kind", ["non_reentrant", "reentrant"])
def test_checkpointing_takes_less(kind: str) -> None:
    def model() -> Any:
        return models.wav2vec2(num_hidden_layers=6)

    points = [(4, 64_000, 7)]
    assert peak(trace(model, points=points, gradient_checkpointing=kind)) < 0.9 * peak(trace(model, points=points))


def test_a_model_that_checkpoints_already_is_traced_as_asked() -> None:
    model = models.checkpointed(models.wav2vec2)()
    points = [(2, 16_000, 7)]
    assert trace(model, points=points).segments == trace(models.wav2vec2, points=points).segments
    assert model.is_gradient_checkpointing


def test_accumulation() -> None:
    kinds = [s["kind"] for s in trace(accumulation=2, points=POINTS[:1], evaluation=False).segments]
    assert kinds == ["load", *["micro", "accumulate", "step"] * 2]
    kinds = [s["kind"] for s in trace(accumulation=8, points=POINTS[:1], evaluation=False).segments]
    assert kinds == ["load", *["micro", "accumulate", "accumulate", "step"] * 2]


def test_layers_are_never_dropped_and_masks_are_drawn() -> None:
    made = trace(lambda: models.wav2vec2(layerdrop=1.0))
    modules = {made.modules[m] for s in made.segments for m in s["module"]}
    assert any(name.startswith("wav2vec2.encoder.layers.1") for name in modules)


def test_a_decoder_caches_as_the_trainer_lets_it() -> None:
    from transformers import TrainingArguments

    model = models.whisper()
    assert model.config.use_cache
    trace = trace_training(model, points=[(2, 200, 9)], evaluation=False)
    gathered = [trace.modules[m] for s in trace.segments for op, m in zip(s["op"], s["module"], strict=True)
                if trace.ops[op] == "aten.cat.default" and "attn" in trace.modules[m]]  # fmt: skip
    assert bool(gathered) is not hasattr(TrainingArguments, "use_cache")
    assert model.config.use_cache


def test_a_compiled_model_is_traced_as_the_eager_one() -> None:
    model = models.wav2vec2()
    made = trace(torch.compile(model))
    assert made.segments == trace(model).segments
    assert "torch.compile" in made.about["notes"]


def test_adapters() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(models.whisper(), config)
    trained = [p.numel() for p in model.parameters() if p.requires_grad]
    made = trace_training(model)
    assert bytes_of(made, "optimizer") == 4 * (2 * sum(trained) + len(trained)), "two moments, and counts of steps"


def test_progress_counts_windows() -> None:
    calls: list[tuple[int, int]] = []
    trace(progress=lambda done, all_: calls.append((done, all_)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_a_loss_and_a_batch_of_ones_own() -> None:
    def batch(batch: int, length: int, labels: int) -> dict[str, Any]:
        return {"x": torch.randn(batch, length), "y": torch.zeros(batch, dtype=torch.long)}

    def loss(model: nn.Module, inputs: dict[str, Any]) -> Any:
        return nn.functional.cross_entropy(model(inputs["x"]), inputs["y"])

    made = trace_training(nn.Linear(100, 10), batch, points=[(4, 100, 0)], loss=loss)
    assert bytes_of(made, "input") > 0 and "length_per_second" not in made.about


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "int8"}, "precision = 'int8'"),
        ({"optimizer": "lion_32"}, "optimizer 'lion_32'"),
        ({"gradient_checkpointing": "full"}, "gradient_checkpointing is 'full'"),
        ({"accumulation": 0}, "accumulation is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"points": [(0, 16_000, 3)]}, "is not a shape"),
        ({"points": [(2, 16_000)]}, "is not a shape"),
        ({"batch_fn": lambda *_: [], "points": POINTS}, "batch_fn returned a list"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        trace(**settings)


def test_models_that_cannot_be_traced() -> None:
    with pytest.raises(TraceError, match="no batches could be made up for a Linear; tried input: "):
        trace_training(nn.Linear(3, 3))
    frozen = models.wav2vec2().requires_grad_(False)
    with pytest.raises(InvalidArgumentError, match="no trainable parameters"):
        trace(frozen)

    class Locked(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.file = nn.Linear(100, 100), (i for i in range(3))

    with pytest.raises(TraceError, match="cannot be copied"):
        trace(Locked(), batch_fn=lambda *_: {})

    class Broken(nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            raise KeyError("mel")

    with pytest.raises(TraceError, match=r"fails on a batch of 2, input length 9, 1 labels: KeyError"):
        trace_training(Broken(100, 100), lambda *_: {"x": torch.zeros(3)}, points=[(2, 9, 1)])


def test_speech_batches() -> None:
    whisper = speech_batches(models.whisper())
    assert whisper.length(1.5) == 200 and whisper.fixed_length == 200
    with pytest.raises(InvalidArgumentError, match="longer than the 2 s that the model takes"):
        whisper.length(2.5)
    assert speech_batches(models.w2v_bert()).length(2.0) == 100
    batches = speech_batches(models.wav2vec2())
    made = batches.batch(3, 1600, 5)
    assert made["input_values"].shape == (3, 1600) and made["labels"].shape == (3, 5)
    assert 0 < made["attention_mask"].sum() < 3 * 1600
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidArgumentError, match="seconds of audio"):
            batches.length(seconds)


def test_an_encoder_of_frames_takes_the_batches_made_up_for_it() -> None:
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "MoonshineStreamingConfig"):
        pytest.skip("transformers has no Moonshine Streaming")
    _, model = KINDS["moonshine_streaming"](transformers, ["one two"])
    trace = trace_training(model, points=[(2, 1601, 5)], steps=1, evaluation=False)
    assert not trace.about.get("batches"), "labels as for any recognizer"


def test_a_clip_longer_than_an_extractor_takes_is_as_long_as_that() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ASTConfig(max_length=64, num_mel_bins=16, hidden_size=16, num_hidden_layers=1,
                                    num_attention_heads=2, intermediate_size=16)  # fmt: skip
    batches = speech_batches(config)
    assert (batches.length(0.5), batches.length(30.0)) == (64, 64)
    with MemoryModel.trace(transformers.ASTForAudioClassification(config), cache=False, progress=False) as memory:
        assert memory.length(30.0) == 64
        assert memory.estimate(2, 30.0).peak_allocated == memory.estimate(2, 0.5).peak_allocated


class Predicting(nn.Module):  # type: ignore[misc]
    """As long as its labels in training, and as it predicts itself in an evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(100, 100)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        y = self.net(x)
        durations = labels[0] if self.training else y[0].abs().long()
        return {"loss": torch.repeat_interleave(y[0], durations, dim=0).square().mean()}


def test_a_training_is_traced_whose_evaluation_is_not() -> None:
    def batches(batch: int, length: int, labels: int) -> dict[str, Any]:
        return {"x": torch.randn(batch, 100), "labels": torch.ones(batch, 100, dtype=torch.long)}

    trace = trace_training(Predicting(), batches, points=[(2, 100, 1), (3, 100, 1)])
    assert {segment["kind"] for segment in trace.segments} >= {"micro", "step"}
    assert not [segment for segment in trace.segments if segment["kind"] == "evaluate"]
    assert "its evaluation is not traced: aten.repeat_interleave" in trace.about["notes"]


class Inserting(nn.Module):  # type: ignore[misc]
    """Writes rows of its own into the places of a mark, as audio LLMs do."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.audio = nn.Embedding(20, 64), nn.Linear(64, 64)

    def forward(self, input_ids: Any, heard: Any) -> dict[str, Any]:
        embedded = self.words(input_ids)
        embedded[input_ids == 3] = self.audio(heard)
        return {"loss": embedded.square().mean()}


def test_rows_written_through_a_mask_have_gradients_of_their_number() -> None:
    def batches(batch: int, length: int, labels: int) -> dict[str, Any]:
        marks = torch.ones(batch, length, dtype=torch.long)
        marks[:, :7] = 3
        return {"input_ids": marks, "heard": torch.randn(7 * batch, 64)}

    trace_training(Inserting(), batches, points=[(2, 90, 0), (3, 70, 0)])


def test_a_refused_batch_is_not_hidden_by_one_without_labels() -> None:
    class Refusing(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 8)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            if labels is not None:
                raise ValueError("no such labels")
            return {"logits": self.net(x)}

    def batches(batch: int, length: int, labels: int) -> dict[str, Any]:
        return {"x": torch.randn(batch, length, 8), "labels": torch.ones(batch)}

    with pytest.raises(TraceError, match="no such labels"):
        trace_training(Refusing(), SpeechBatches(batches, 100))
