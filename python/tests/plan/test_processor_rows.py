"""With a processor alone, a plan's batches are those that its own call makes of the dataset's rows."""

from __future__ import annotations

import functools
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

import asrconfig_go as ac
from asrconfig_go.audio.processor_batches import (
    ProcessorNotUsedWarning,
    make_collator,
    processor_examples,
)
from asrconfig_go.data.source import CLIPS
from asrconfig_go.data.splits import load_split, splits_of
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.predict import MemoryModel
from asrconfig_go.recipe import build_processor, load_model
from asrconfig_go.trace import trace_training
from asrconfig_go.trace.event_log import TraceError

KINDS = ["tiny-wav2vec2", "tiny-whisper", "tiny-moonshine", "tiny-parakeet-tdt", "tiny-qwen3-asr"]
OPTIONS: dict[str, Any] = {"gpu": "T4", "cache": False, "progress": False}


@pytest.fixture(scope="module")
def rows() -> Any:
    return load_split("train").select(range(12))


def made(kind: str, rows: Any) -> tuple[Any, Any]:
    try:
        processor = build_processor(rows["text"], kind)
        return processor, load_model(kind, processor)
    except (AttributeError, ImportError) as error:  # of a class that an older transformers lacks
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", KINDS)
def test_the_processors_batches_are_traced(kind: str, rows: Any) -> None:
    processor, model = made(kind, rows)
    examples = processor_examples(rows.rename_column("text", "sentence"), processor, model)
    assert examples is not None
    batches = examples.batches([n / 16_000 for n in rows["length"]])
    length, labels = batches.pairs()[-1]
    clips = batches.rows.clips(length, labels)
    renamed = [{"audio": row["audio"], "text": row["sentence"]} for row in clips.rows(3)]
    own = make_collator(processor, model)(renamed)
    batch = batches.batch(3, length, labels)
    assert {name: value.shape for name, value in batch.items()} == {name: value.shape for name, value in own.items()}

    def fresh(*_: int) -> dict[str, Any]:
        return {name: value.clone() for name, value in own.items()}

    peaks = []
    for batch_fn in (batches, fresh):
        with MemoryModel.trace(model, batch_fn, points=[(3, length, labels)], **OPTIONS) as memory:
            seconds = length / batches.length_per_second if batch_fn is batches else length / 16_000
            peaks.append(memory.estimate(3, seconds, labels).peak_allocated)
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize("kind", ["tiny-whisper", pytest.param("tiny-qwen3-asr", marks=pytest.mark.slow)])
def test_a_plan_by_the_processor_is_the_plan_by_its_collator(kind: str, rows: Any) -> None:
    processor, model = made(kind, rows)
    planned = functools.partial(ac.create_optimal_config, rows, model, gpu="T4", target_batch_size=8, verbose=False)
    by_processor, _ = planned(processor=processor)
    by_collator, _ = planned(collator=make_collator(processor, model))
    assert by_processor.predicted_bytes == by_collator.predicted_bytes
    assert not [warning for warning in by_processor.warnings if "made up" in warning]


def test_a_processor_that_makes_no_batch_is_one_warning(rows: Any) -> None:
    _, model = made("tiny-wav2vec2", rows)
    with pytest.warns(ProcessorNotUsedWarning, match=r"makes no batch of the dataset's first row .*, or collator="):
        assert processor_examples(rows, SimpleNamespace(tokenizer=object()), model) is None


def test_no_batch_is_asked_of_a_feature_extractor_or_a_folder(rows: Any) -> None:
    processor, model = made("tiny-wav2vec2", rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert processor_examples(rows, processor.feature_extractor, model) is None
        assert processor_examples("clips", processor, model) is None


def test_an_audio_llm_is_never_traced_as_a_text_model(rows: Any) -> None:
    _, model = made("tiny-qwen3-asr", rows)
    with pytest.raises((TraceError, InvalidArgumentError), match=r"takes input_features and input_ids") as refused:
        trace_training(model)
    assert "processor=processor" in refused.value.hint


def test_a_wrapped_model_is_asked_through_its_base(rows: Any) -> None:
    peft = pytest.importorskip("peft")
    processor, model = made("tiny-whisper", rows)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    examples = processor_examples(rows, processor, wrapped)
    assert examples is not None
    with MemoryModel.trace(wrapped, examples.batches(), **OPTIONS) as memory:
        assert "batches" not in memory.about, "the model's own loss, nothing made up"
    with MemoryModel.trace(wrapped, **OPTIONS) as memory:
        assert "batches" not in memory.about


@pytest.mark.slow
def test_a_folder_with_transcripts_is_planned_as_its_rows(tmp_path: Path) -> None:
    processor, model = made("tiny-qwen3-asr", load_split("train").select(range(12)))
    for number, clip in enumerate(sorted(CLIPS.glob("train-*"))[:12]):
        shutil.copy(clip, tmp_path)
        (tmp_path / f"{clip.stem}.txt").write_text("one two three " * (1 + number % 3))
    planned = functools.partial(ac.create_optimal_config, gpu="T4", target_batch_size=8, verbose=False)
    by_folder, manager = planned(tmp_path, model, processor=processor)
    rows = splits_of(tmp_path, None, None, {}, [])["train"]
    by_rows, _ = planned(rows, model, processor=processor)
    assert by_folder.predicted_bytes == by_rows.predicted_bytes
    assert not [warning for warning in by_folder.warnings if "made up" in warning]
    assert len(manager.durations) == 12
