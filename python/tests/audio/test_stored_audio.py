"""Datasets of ``Audio`` where ``datasets`` cannot decode it: torchcodec is missing, or broken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

datasets = pytest.importorskip("datasets")
pytest.importorskip("transformers")
pytest.importorskip("soundfile")

from transformers import Trainer

from asrconfig_go import create_optimal_config, measure_loader
from asrconfig_go.audio import CTCCollator, DecodedCache
from asrconfig_go.audio.collators import cannot_decode, make_readable
from asrconfig_go.data.source import open_source
from asrconfig_go.recipe import build_processor, load_model, load_speech, prepare, transcribe
from recipe_data import digits

BROKEN = [
    ImportError("To support decoding audio data, please install 'torchcodec'."),
    RuntimeError("Could not load libtorchcodec. Likely causes:\n  1. FFmpeg is not properly installed"),
]


@pytest.fixture(params=BROKEN, ids=["missing", "broken"])
def no_torchcodec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exception]:
    def fail(*_: Any, **__: Any) -> Any:
        raise request.param

    monkeypatch.setattr(datasets.Audio, "decode_example", fail)
    cannot_decode.cache_clear()
    yield request.param
    cannot_decode.cache_clear()


@pytest.fixture
def raw() -> Any:
    """As ``load_dataset`` gives clips: marked as audio that is to be decoded."""
    return digits(8).cast_column("audio", datasets.Audio())


def test_the_reason_is_one_line(no_torchcodec: Exception) -> None:
    assert cannot_decode() in (str(no_torchcodec), "Could not load libtorchcodec.")


def test_everything_that_reads_a_raw_dataset_works(no_torchcodec: Exception, raw: Any, tmp_path: Path) -> None:
    processor = build_processor(raw["train"]["text"], "tiny-wav2vec2")
    model = load_model("tiny-wav2vec2", processor)
    with pytest.raises(type(no_torchcodec)):
        raw["train"][0]
    rate = measure_loader(raw, seconds=0.05, processor=processor)
    assert rate is not None and rate.how == "soundfile" and cannot_decode() in rate.notes[0]
    assert DecodedCache(1 << 24).prepare(raw["train"], progress=False).bad == 0
    assert len(prepare(load_speech(raw, progress=False), processor, model=model).train) == 8
    assert len(transcribe(model, processor, raw["test"], n=2)) == 2


def test_a_trainer_reads_a_raw_dataset_by_our_collator(
    no_torchcodec: Exception, raw: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    processor = build_processor(raw["train"]["text"], "tiny-wav2vec2")
    model = load_model("tiny-wav2vec2", processor)
    config, manager = create_optimal_config(raw, model, verbose=False)
    args = config.to_training_arguments(
        tmp_path, remove_unused_columns=False, max_steps=1, report_to=[], disable_tqdm=True, eval_strategy="steps"
    )
    parts = {"train_dataset": raw["train"], "eval_dataset": raw["test"]}
    trainer = Trainer(model, args, data_collator=CTCCollator(processor), **parts)
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        manager.train(trainer, verbose=False)
    assert trainer.state.global_step == 1
    assert f"datasets cannot decode audio here ({cannot_decode()}): soundfile does" in caplog.text
    assert "eval_loss" in trainer.evaluate()


@pytest.mark.usefixtures("no_torchcodec")
def test_datasets_that_another_collator_reads_are_left_alone(raw: Any) -> None:
    class Other:
        data_collator, train_dataset, eval_dataset = object(), raw["train"], dict(raw)

    make_readable(Other)
    assert Other.train_dataset is raw["train"] and Other.eval_dataset["test"] is raw["test"]


def test_all_parts_are_stored_and_others_stay(raw: Any) -> None:
    undecoded = open_source(raw).undecoded()
    assert type(undecoded) is type(raw)
    assert all(not part.features["audio"].decode for part in undecoded.values())
    plain = datasets.Dataset.from_dict({"text": ["one"]})
    assert open_source(plain).undecoded() is plain
    assert open_source(undecoded).undecoded()["train"] is undecoded["train"]


def test_where_datasets_decodes_the_trainer_keeps_its_datasets(raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    processor = build_processor(raw["train"]["text"], "tiny-wav2vec2")
    monkeypatch.setattr(
        datasets.Audio, "decode_example", lambda *_, **__: {"array": [0.0] * 160, "sampling_rate": 16_000}
    )
    cannot_decode.cache_clear()

    class Ours:
        data_collator, train_dataset, eval_dataset = CTCCollator(processor), raw["train"], None

    make_readable(Ours)
    assert cannot_decode() == "" and Ours.train_dataset is raw["train"]
    cannot_decode.cache_clear()
