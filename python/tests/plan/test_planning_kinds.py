"""Modules that are no speech recognizers are traced with batches made up from their signature."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import asrconfig_go as ac
from asrconfig_go.plan.plan_options import PlanOptions
from asrconfig_go.plan.planner import NotTracedWarning
from asrconfig_go.plan.traced_answers import TracedAnswers, Wanted
from asrconfig_go.predict import MemoryModel
from asrconfig_go.trace import TraceError

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "conv_dim": (32,) * 7, "do_stable_layer_norm": True, "feat_extract_norm": "layer", "xvector_output_dim": 16,
    "tdnn_dim": (32, 32, 32, 32, 48),
}  # fmt: skip


class Classifier(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions over audio, with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv1d(1, 64, 10, stride=5), torch.nn.Conv1d(64, 256, 8, stride=4)
        self.head = torch.nn.Linear(256, 10)

    def forward(self, input_values: Any, labels: Any = None) -> dict[str, Any]:
        hidden = self.second(self.first(input_values.unsqueeze(1)).relu()).relu()
        logits = self.head(hidden.mean(-1))
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class Channels(Classifier):
    """Wants a channel, and leaves the loss to the Trainer."""

    def forward(self, audio: Any) -> Any:  # type: ignore[override]
        return self.head(self.second(self.first(audio).relu()).relu().mean(-1))


class Pair(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Needs two recordings."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Conv1d(1, 64, 10, stride=5)

    def forward(self, one: Any, other: Any) -> dict[str, Any]:
        return {"loss": (self.net(one) - self.net(other)).square().mean()}


def manager_for(model: Any, gpu: str = "T4") -> ac.ASRConfigManager:
    manager = ac.ASRConfigManager(gpu=gpu)
    manager.profile_model(model)
    manager.profile_dataset([[0.0] * (100 * (1 + i % 8)) for i in range(200)], sampling_rate=100)
    return manager


def classes(batch: int, length: int, labels: int) -> dict[str, Any]:
    return {"input_values": torch.randn(batch, length), "labels": torch.zeros(batch, dtype=torch.long)}


def test_an_own_network_is_planned_from_its_trace() -> None:
    config = manager_for(Classifier()).plan(PlanOptions(target_batch_size=64))
    assert config.policy == "fastest"
    with MemoryModel.trace(
        Classifier(), classes, precision="fp16", optimizer=config.optimizer, accumulation=3, gpu="T4",
        allocator=config.alloc_conf, progress=False,
    ) as memory:  # fmt: skip
        steps = {"accumulation": config.gradient_accumulation_steps}
        assert config.predicted_bytes == memory.estimate(config.micro_batch_size, 8.0, **steps).peak_device
    formula = manager_for(Classifier()).plan(PlanOptions(target_batch_size=64, policy="published"))
    assert config.predicted_bytes > 20 * formula.predicted_bytes, "activations grow with the length of clips"
    assert "a class of each clip" in config.warnings[0], "what was assumed is said"


def test_micro_batches_fit_beside_the_inputs_of_a_large_step() -> None:
    with MemoryModel.trace(Classifier(), classes, precision="fp16", accumulation=3, gpu="T4", progress=False) as memory:
        assert memory.target.context_bytes is not None
        wanted = Wanted(
            precision="fp16", gradient_checkpointing=False, every_n_layers=1, offload_checkpoints=False,
            optimizer="adamw_torch", allocator="", share=192, budget_bytes=memory.target.context_bytes + (600 << 20),
            max_length_s=None, longest_s=16.0, high=False, beside_bytes=0, generates=False, beams=1, tokens=0,
            sizes=(), devices=1,
        )  # fmt: skip
        table = TracedAnswers(memory, wanted, [2.0, 16.0] * 300, None).answer()["memory"]

        def used(batch: int, seconds: float) -> float:
            step = memory.estimate(batch, seconds, accumulation=-(-wanted.share // batch), timeline=0)
            assert step.peak_device is not None
            return step.peak_device / wanted.budget_bytes

        assert max(used(**row) for row in table) <= 1
        assert used(table[-1]["batch"] + 1, 16.0) > 1, "no micro-batch is smaller than it has to be"


@pytest.fixture(scope="module")
def recognizer_bytes() -> int:
    """What a step of a recognizer with the same encoder takes."""
    recognizer = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**SMALL))
    return manager_for(recognizer).plan(PlanOptions(target_batch_size=8)).predicted_bytes


@pytest.mark.parametrize(
    ("kind", "assumed"),
    [
        ("Wav2Vec2ForSequenceClassification", "labels: a class of each clip"),
        ("Wav2Vec2ForXVector", "labels: a class of each clip"),
        ("Wav2Vec2ForAudioFrameClassification", "labels: a class of each frame"),
    ],
)
def test_other_heads_of_speech_models_are_traced(kind: str, assumed: str, recognizer_bytes: int) -> None:
    model = getattr(transformers, kind)(transformers.Wav2Vec2Config(**SMALL))
    config = manager_for(model).plan(PlanOptions(target_batch_size=8))
    assert config.policy == "fastest"
    assert assumed in config.warnings[0]
    assert any(d.setting == "predicted_bytes" and "traced" in d.reason for d in config.decisions)
    assert config.predicted_bytes == pytest.approx(recognizer_bytes, rel=0.1), "the encoder, where all memory is"
    if kind == "Wav2Vec2ForXVector":  # a loop over the clips of a batch: no shape tells of another
        assert config.micro_batching == "fixed"


def test_channels_and_a_missing_loss_are_made_up() -> None:
    config = manager_for(Channels()).plan()
    assert config.policy == "fastest"
    assert "audio: (batch, 1, samples) at 16 kHz, no labels" in config.warnings[0]


def test_what_cannot_be_made_up_says_what_works() -> None:
    manager = manager_for(Pair())
    with pytest.warns(NotTracedWarning, match="forward takes one, other"):
        config = manager.plan()
    assert config.policy == "published"
    assert "forward takes one, other" in config.warnings[0]
    assert "Pass batch_fn(batch, length, labels)" in config.warnings[0]

    def pairs(batch: int, length: int, labels: int) -> dict[str, Any]:
        return {"one": torch.randn(batch, 1, length), "other": torch.randn(batch, 1, length)}

    config = manager.plan(batch_fn=pairs)
    assert config.policy == "fastest"
    clips = [[0.0] * 100] * 40
    again, _ = ac.create_optimal_config(
        clips, Pair(), gpu="T4", sampling_rate=100, loader_rate=100.0, batch_fn=pairs, verbose=False
    )
    assert again.policy == "fastest"


def test_an_attempt_that_fails_says_all_that_was_tried() -> None:
    class Strict(Classifier):
        def forward(self, input_values: Any, labels: Any = None) -> dict[str, Any]:
            raise ValueError("not today")

    with pytest.raises(TraceError, match="no batches could be made up for a Strict; tried") as caught:
        MemoryModel.trace(Strict(), gpu="T4", progress=False, cache=False)
    for tried in ("a class of each clip", "a text of each clip", "(batch, 1, samples)", "no labels", "not today"):
        assert tried in caught.value.message
    assert "batch_fn" in caught.value.hint


def test_the_module_is_left_as_it_was() -> None:
    model = Classifier()
    before = copy.deepcopy(model.state_dict())
    manager_for(model).plan(PlanOptions(target_batch_size=8))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
