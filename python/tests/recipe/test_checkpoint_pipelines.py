"""Checkpoints hold the processor, so that ``pipeline`` transcribes with them, offline; what lacks it is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("soundfile")
np = pytest.importorskip("numpy")

from asrconfig_go.guard import attach
from asrconfig_go.recipe import (
    build_processor,
    load_model,
    load_speech,
    make_collator,
    make_trainer,
    prepare,
)
from asrconfig_go.recipe.fine_tune_options import speech_settings
from asrconfig_go.recipe.speech_data import column
from asrconfig_go.recipe.trainers import arguments_class
from locations import REPOSITORY
from recipe_data import digits


@pytest.fixture(params=["tiny-wav2vec2", "tiny-whisper"])
def parts(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    """A model, its processor and prepared data."""
    speech = load_speech(digits(6), progress=False)
    processor = build_processor(column(speech.train, "text"), request.param)
    model = load_model(request.param, processor)
    return model, processor, prepare(speech, processor, model=model)


def arguments(parts: tuple[Any, Any, Any], output: Path) -> Any:
    model, _, data = parts
    return arguments_class(model)(
        str(output), max_steps=2, save_strategy="steps", save_steps=2, per_device_train_batch_size=2, use_cpu=True,
        report_to=[], disable_tqdm=True, **speech_settings(model, data),
    )  # fmt: skip


@pytest.mark.parametrize("recipe", [True, False])
def test_a_checkpoint_transcribes(tmp_path: Path, parts: tuple[Any, Any, Any], recipe: bool) -> None:
    model, processor, data = parts
    if recipe:
        trainer = make_trainer(model, arguments(parts, tmp_path), data, processor)
    else:
        trainer = transformers.Trainer(
            model, arguments(parts, tmp_path), train_dataset=data.train, data_collator=make_collator(processor, model),
            processing_class=processor,
        )  # fmt: skip
    guard = attach(trainer)
    assert not [note for note in guard.notes if "processing_class" in note]
    trainer.train()
    transcribing = transformers.pipeline("automatic-speech-recognition", str(tmp_path / "checkpoint-2"))
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
    assert isinstance(transcribing(noise)["text"], str)


@pytest.mark.parametrize("saves", ["steps", "no"])
def test_a_trainer_without_the_processor_is_told(tmp_path: Path, parts: tuple[Any, Any, Any], saves: str) -> None:
    model, processor, data = parts
    args = arguments(parts, tmp_path)
    args.save_strategy = saves
    trainer = transformers.Trainer(model, args, train_dataset=data.train, data_collator=make_collator(processor, model))
    notes = [note for note in attach(trainer).notes if "processing_class=processor" in note]
    assert bool(notes) == (saves == "steps")


def test_cells_that_have_a_processor_pass_it() -> None:
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    cells = [cell for page in pages for cell in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    with_processor = [cell for cell in cells if re.search(r"Trainer\(\n", cell) and "Collator(processor" in cell]
    with_processor += [cell for cell in cells if re.search(r"Trainer\(\n", cell) and "make_collator(processor" in cell]
    assert len(with_processor) >= 4
    assert all("processing_class=processor" in cell for cell in with_processor)
