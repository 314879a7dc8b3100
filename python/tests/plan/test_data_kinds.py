"""Every kind of dataset with every kind of model: planned, and trained by the plan for a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

import asrconfig_go as ac
from asrconfig_go.data import scan_audio
from asrconfig_go.data.splits import load_split
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.recipe import build_processor, load_model, load_speech, make_collator, prepare
from asrconfig_go.trace.collated_batches import CollatedExamples
from data_kinds import KNOWN, OWN, ROWS, WaveNetwork, bert, collate, collate_waves, own_waves, rows, side

QUIET: dict[str, Any] = {
    "max_steps": 2, "use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no",
    "remove_unused_columns": False,
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore")


def planned(dataset: Any, model: Any, **options: Any) -> tuple[Any, Any]:
    return ac.create_optimal_config(dataset, model, target_batch_size=8, trace=True, verbose=False, **options)


def trained(config: Any, manager: Any, model: Any, dataset: Any, collator: Any, output: Path) -> int:
    config.apply(model, environment=False)
    trainer = transformers.Trainer(
        model=model,
        args=config.to_training_arguments(output, **QUIET),
        train_dataset=dataset,
        data_collator=collator,
        callbacks=[manager.callback()],
    )
    manager.train(trainer, verbose=False)
    return int(trainer.state.global_step)


@pytest.mark.parametrize("kind", list(KNOWN))
def test_rows_with_a_models_input_are_planned_and_trained(kind: str, tmp_path: Path) -> None:
    dataset, model, collator = KNOWN[kind]()
    config, manager = planned(dataset, model)
    assert config.policy == "fastest", config.warnings
    assert len(manager.durations) == ROWS
    assert trained(config, manager, model, dataset, collator, tmp_path) == 2


@pytest.mark.parametrize("kind", list(OWN))
def test_rows_of_any_kind_are_planned_by_their_collator(kind: str, tmp_path: Path) -> None:
    dataset, model, collator = OWN[kind]()
    with pytest.raises(InvalidArgumentError, match="collator=collator") as refused:
        planned(dataset, model)
    plan = eval(
        refused.value.hint.partition(": ")[2], {"create_optimal_config": planned, **locals()}
    )  # as it is written
    config, manager = plan
    assert config.policy == "fastest", config.warnings
    assert config.micro_batching == "fixed", "the guard does not know how long such batches are"
    assert trained(config, manager, model, dataset, collator, tmp_path) == 2


@pytest.mark.parametrize("name", ["tiny-wav2vec2", "tiny-whisper"])
def test_audio_is_planned_and_trained(name: str, tmp_path: Path) -> None:
    raw = load_split("train").select(range(ROWS))
    speech = load_speech(raw, evaluation_share=0.0, progress=False)
    processor = build_processor(speech.train["text"], name)
    model = load_model(name, processor)
    data = prepare(speech, processor)
    collator = make_collator(processor, model)
    config, manager = planned(raw, model)
    assert list(manager.durations) == pytest.approx([n / 16_000 for n in raw["length"]])
    assert trained(config, manager, model, data.train, collator, tmp_path) == 2
    by_collator, _ = planned(data.train, model, collator=collator)
    assert by_collator.policy == "fastest"
    assert by_collator.predicted_bytes == pytest.approx(config.predicted_bytes, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "shortest", "longest"),
    [
        ("samples", 0.5, 0.6),
        ("Whisper features", 1.28, 1.28),
        ("w2v-BERT features", 0.8, 1.6),
        ("AST features", 0.64, 0.64),
        ("words, BERT", 0.5, 0.9),
    ],
)
def test_lengths_count_as_the_model_takes_them(kind: str, shortest: float, longest: float) -> None:
    dataset, model, collator = KNOWN[kind]()
    profile = scan_audio(dataset, model=model, progress=False).profile
    assert (profile.min_s, profile.max_s) == pytest.approx((shortest, longest))
    assert not any("16 kHz" in warning for warning in profile.warnings)
    unit = CollatedExamples(dataset, collator, model).unit
    assert scan_audio(dataset, model=model, progress=False).unit in (unit, None), "None: samples are audio"


def test_a_stream_of_tokens_is_measured() -> None:
    dataset = KNOWN["words, BERT"]()[0].to_iterable_dataset()
    assert scan_audio(dataset, progress=False).profile.max_s == pytest.approx(0.9)


def test_frames_without_a_model_say_what_to_pass() -> None:
    with pytest.raises(InvalidArgumentError, match="collator=collator"):
        scan_audio(rows("input_features", (40, 8), side), progress=False)


def test_texts_longer_than_the_model_takes_are_named() -> None:
    with pytest.warns(UserWarning, match=r"text of 90 tokens is longer than the 64 tokens"):
        planned(rows("input_ids", (90,), side), bert())


def test_collated_batches_have_the_size_that_is_asked_for() -> None:
    dataset, _, collator = OWN["own spectrograms"]()
    made = CollatedExamples(dataset, collator).batches().batch(7, 200, 0)
    assert {name: tuple(value.shape) for name, value in made.items()} == {
        "mel": (7, 6, 200), "frame_lens": (7,), "label": (7,)
    }  # fmt: skip
    assert int(made["frame_lens"].max()) == 200
    assert set(made["label"].tolist()) <= {0, 1}, "classes are no lengths"
    dataset, model, collator = KNOWN["samples"]()
    made = CollatedExamples(dataset, collator, model).batches().batch(3, 5000, 9)
    assert made["input_values"].shape == made["attention_mask"].shape == (3, 5000)
    assert made["labels"].shape == (3, 9)


def test_a_model_whose_trainer_has_the_loss_is_planned_by_its_collator() -> None:
    class Silent(WaveNetwork):
        def forward(self, wave: Any) -> Any:  # type: ignore[override]
            return super().forward(wave)["logits"]

    dataset, _, _ = own_waves()

    def collator(batch: list[Any]) -> dict[str, Any]:
        return {"wave": collate_waves(batch)["wave"]}

    config, _ = planned(dataset, Silent(), collator=collator)
    assert config.policy == "fastest"
    assert "the mean of the model's outputs stands for a loss" in config.warnings[1]


def test_a_collator_sees_the_columns_that_the_trainer_keeps() -> None:
    dataset = KNOWN["words, BERT"]()[0].map(lambda row: {"text": "some words"})

    def strict(batch: list[Any]) -> dict[str, Any]:
        assert "text" not in batch[0], "cannot be padded"
        return collate(batch)

    assert planned(dataset, bert(), collator=strict)[0].policy == "fastest"


def test_a_batch_function_of_tokens_counts_in_tokens() -> None:
    dataset = KNOWN["words, BERT"]()[0]
    lengths = []

    def batches(batch: int, length: int, labels: int) -> dict[str, Any]:
        lengths.append(length)
        tokens = torch.randint(1, 40, (batch, min(length, 64)))
        return {"input_ids": tokens, "labels": torch.zeros(batch, dtype=torch.long)}

    config, _ = planned(dataset, bert(), batch_fn=batches)
    assert config.policy == "fastest"
    assert max(lengths) < 300, "tokens, not samples of audio"


def test_the_guard_traces_with_the_collators_batches(tmp_path: Path) -> None:
    dataset, model, collator = OWN["own spectrograms"]()
    _, manager = ac.create_optimal_config(dataset, model, gpu="T4", collator=collator, verbose=False)
    args = transformers.TrainingArguments(tmp_path, **QUIET)
    trainer = transformers.Trainer(model, args, train_dataset=dataset, data_collator=collator)
    guard = manager.attach(trainer, memory=True)
    assert trainer.train().global_step == 2
    guard.detach()


def test_the_loader_is_measured_with_rows_that_hold_input() -> None:
    for kinds, kind in ((KNOWN, "words, BERT"), (OWN, "own spectrograms")):
        dataset, model, collator = kinds[kind]()
        _, manager = planned(dataset, model, gpu="T4", collator=collator if kinds is OWN else None)
        assert manager.loader is not None and manager.loader.clips == ROWS
        assert manager.loader.bad == 0
