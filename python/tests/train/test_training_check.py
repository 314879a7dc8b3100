"""What is found before the first step in labels, models and settings, and that nothing is found where all is well."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

import asrconfig_go as ac
from asrconfig_go._core.files import config_values
from asrconfig_go.audio import Seq2SeqCollator
from asrconfig_go.data.label_rules import rules_of
from asrconfig_go.data.splits import load_split
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.recipe import build_processor, load_model, make_collator
from asrconfig_go.train import TrainingCheckWarning


def digits(kind: str, count: int = 8) -> tuple[Any, Any]:
    """Clips of digits with their labels, and the processor of a tiny model."""
    spoken = load_split("train").select(range(count))
    processor = build_processor(spoken["text"], kind)
    stored = spoken.cast_column("audio", datasets.Audio(decode=False))
    return stored.map(lambda row: {"labels": processor(text=row["text"]).input_ids}), processor


def trainer_of(kind: str, output: Path, **changes: Any) -> Any:
    """A Trainer of one step; ``changes`` are of the arguments, or ``rows``, ``model``, ``processor``, ``collator``."""
    rows, processor = digits(kind)
    model = changes.pop("model", None) or load_model(kind, processor)
    whisper = kind == "tiny-whisper"
    arguments: Any = Seq2SeqTrainingArguments if whisper else TrainingArguments
    settings = {"remove_unused_columns": False, "report_to": [], "save_strategy": "no", "max_steps": 1, "use_cpu": True}
    change = changes.pop("labels", None)
    evaluated = changes.pop("evaluated", None)
    collator = changes.pop("collator", None) or make_collator(processor, model)
    data = rows.map(lambda row, i: {"labels": change(row["labels"], i)}, with_indices=True) if change else rows
    return (Seq2SeqTrainer if whisper else Trainer)(
        model=model,
        args=arguments(output, disable_tqdm=True, per_device_train_batch_size=8, **{**settings, **changes}),
        train_dataset=data,
        eval_dataset=rows.map(lambda row, i: {"labels": evaluated(row["labels"], i)}, with_indices=True)
        if evaluated
        else None,
        data_collator=collator,
    )


def found(trainer: Any) -> list[str]:
    """The findings of an attached guard."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ac.ASRConfigManager().attach(trainer).detach()
    return [str(warning.message) for warning in warned if warning.category is TrainingCheckWarning]


def refused(trainer: Any) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as error, warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingCheckWarning)
        ac.ASRConfigManager().train(trainer, verbose=False)
    assert trainer.state.global_step == 0
    return error.value


@pytest.mark.parametrize("kind", ["tiny-wav2vec2", "tiny-whisper"])
def test_nothing_is_said_where_all_is_well(kind: str, tmp_path: Path) -> None:
    """With labels that end with -100, a prompt that is ignored, an evaluation, and checkpoints."""
    ignored = [-100] * 3
    same = {"labels": lambda ids, i: ids[:1] + ignored + ids[1:] + ignored, "evaluated": lambda ids, i: ids}
    trainer = trainer_of(kind, tmp_path, **same, save_strategy="steps", save_steps=1)
    assert found(trainer) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingCheckWarning)
        ac.ASRConfigManager().train(trainer, verbose=False)
    assert trainer.state.global_step == 1


def test_nothing_is_said_by_a_plan_and_its_training(tmp_path: Path) -> None:
    rows, processor = digits("tiny-wav2vec2", 16)
    model = load_model("tiny-wav2vec2", processor)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingCheckWarning)
        config, manager = ac.create_optimal_config(rows, model, processor=processor, target_batch_size=8, verbose=False)
        args = config.to_training_arguments(tmp_path, remove_unused_columns=False, report_to=[], max_steps=1)
        collator = make_collator(processor, model)
        manager.train(Trainer(model=model, args=args, train_dataset=rows, data_collator=collator), verbose=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda ids, i: [*ids, 99] if i == 5 else ids,
            ("1 of 8 rows has labels", "row 5", "'four', label 99", "0 to 17"),
        ),
        (lambda ids, i: [*ids, -1] if i == 5 else ids, ("negative", "row 5", "label -1")),
        (lambda ids, i: [*ids, 0, 0], ("8 of 8 rows end", "the first is row 0", "2 labels 0 at the end")),
        (lambda ids, i: [ids[0], 0, *ids[1:]] if i > 5 else ids, ("2 of 8", "CTC's blank", "row 6", "label 0")),
        (lambda ids, i: [] if i == 3 else ids, ("1 of 8 rows has no label: row 3",)),
        (lambda ids, i: [-100] if i == 3 else ids, ("1 of 8 rows has no label: row 3",)),
        (lambda ids, i: None if i == 3 else ids, ("None for labels: row 3",)),
    ],
)
def test_rows_of_ctc(change: Any, words: tuple[str, ...], tmp_path: Path) -> None:
    (text,) = found(trainer_of("tiny-wav2vec2", tmp_path, labels=change))
    assert all(word in text for word in words), text
    (evaluated,) = found(trainer_of("tiny-wav2vec2", tmp_path, evaluated=change))
    assert "rows to evaluate with" in evaluated


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda ids, i: [*ids, 9999] if i == 2 else ids,
            ("labels that the model does not have", "row 2", "label 9999"),
        ),
        (lambda ids, i: [*ids, ids[-1], ids[-1]], ("8 of 8 rows end with the tokenizer's padding", "-100")),
        (lambda ids, i: ids * 50 if i == 2 else ids, ("row 2", "decoder positions, of which there are 96")),
    ],
)
def test_rows_of_a_decoder(change: Any, words: tuple[str, ...], tmp_path: Path) -> None:
    (text,) = found(trainer_of("tiny-whisper", tmp_path, labels=change))
    assert all(word in text for word in words), text


def test_labels_of_every_row_that_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    error = refused(trainer_of("tiny-wav2vec2", tmp_path, labels=lambda ids, i: [*ids, 99]))
    assert "8 of 8 rows have labels that the model does not have" in error.message
    assert error.hint.startswith("Make labels by the tokenizer that the model is for")
    assert found(trainer_of("tiny-wav2vec2", tmp_path)) == []


def test_another_blank_than_the_tokenizers_pad(tmp_path: Path) -> None:
    _, processor = digits("tiny-wav2vec2")
    model = load_model("tiny-wav2vec2", processor)
    model.config.pad_token_id = 5
    trainer = trainer_of("tiny-wav2vec2", tmp_path, model=model)
    (text,) = found(trainer)
    assert "config.pad_token_id = 5 is CTC's blank, and the tokenizer's pad_token_id is 0" in text
    error = refused(trainer)
    assert "have the label 5, which is CTC's blank" in error.message
    assert error.hint.startswith("Set model.config.pad_token_id = 0")
    model.config.pad_token_id = 0  # as the hint says
    assert found(trainer) == []


def test_a_blank_that_is_no_label_is_refused(tmp_path: Path) -> None:
    _, processor = digits("tiny-wav2vec2")
    model = load_model("tiny-wav2vec2", processor)
    model.config.pad_token_id = 18
    assert "not among the 18 labels" in refused(trainer_of("tiny-wav2vec2", tmp_path, model=model)).message


def test_another_pad_token_of_a_decoder_is_said_in_its_texts(tmp_path: Path) -> None:
    _, processor = digits("tiny-whisper")
    model = load_model("tiny-whisper", processor)
    pad, letter = model.config.pad_token_id, processor.tokenizer("e", add_special_tokens=False).input_ids[0]
    model.config.pad_token_id = model.generation_config.pad_token_id = letter
    trainer = trainer_of("tiny-whisper", tmp_path, model=model)
    (text,) = found(trainer)
    assert f"pad_token_id = {letter}, the tokenizer's 'e', whose pad_token_id is {pad}" in text
    assert text.endswith(f"Set pad_token_id = {pad} in model.config and model.generation_config.")
    model.config.pad_token_id = model.generation_config.pad_token_id = pad
    assert found(trainer) == []


def test_a_tokenizer_of_more_tokens_than_the_model(tmp_path: Path) -> None:
    _, processor = digits("tiny-whisper")
    model = load_model("tiny-whisper", processor)
    processor.tokenizer.add_tokens(["<new>"])
    collator = make_collator(processor, model)
    trainer = trainer_of("tiny-whisper", tmp_path, model=model, collator=collator)
    (text,) = found(trainer)
    size = len(processor.tokenizer)
    assert f"it cannot learn '<new>'. Call model.resize_token_embeddings({size})" in text
    model.resize_token_embeddings(size)
    assert found(trainer) == []
    _, letters = digits("tiny-wav2vec2")
    small = type(load_model("tiny-wav2vec2", letters))(load_model("tiny-wav2vec2", letters).config)
    small.config.vocab_size = len(letters.tokenizer) - 1
    assert rules_of(small, letters).beyond == ("[UNK]",)
    letters.tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})  # which no label of CTC has
    small.config.vocab_size = len(letters.tokenizer) - 2
    assert rules_of(small, letters).beyond == ()


def test_a_larger_head_as_the_hint_says(tmp_path: Path) -> None:
    from transformers import AutoModelForCTC

    _, processor = digits("tiny-wav2vec2")
    size = len(processor.tokenizer)
    load_model("tiny-wav2vec2", processor).save_pretrained(tmp_path / "model")
    small = AutoModelForCTC.from_pretrained(tmp_path / "model", vocab_size=size - 2, ignore_mismatched_sizes=True)
    (text,) = found(trainer_of("tiny-wav2vec2", tmp_path, model=small))
    assert f"Load the model with vocab_size={size}, the tokenizer's length, and ignore_mismatched_sizes=True." in text
    small.save_pretrained(tmp_path / "small")
    large = AutoModelForCTC.from_pretrained(tmp_path / "small", vocab_size=size, ignore_mismatched_sizes=True)
    assert found(trainer_of("tiny-wav2vec2", tmp_path, model=large)) == []


def test_config_entries_that_a_decoder_needs(tmp_path: Path) -> None:
    from transformers import SpeechEncoderDecoderConfig, SpeechEncoderDecoderModel
    from transformers.models.auto import CONFIG_MAPPING

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    conv = {"conv_dim": (8,) * 7, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    encoder = CONFIG_MAPPING["wav2vec2"](**small, **conv)
    decoder = CONFIG_MAPPING["bert"](**small, vocab_size=18, is_decoder=True, add_cross_attention=True)
    config = SpeechEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.pad_token_id = config.decoder_start_token_id = None
    model = SpeechEncoderDecoderModel(config=config)
    model.config.pad_token_id = None
    assert (rules_of(model).kind, rules_of(model).vocabulary) == ("decoder", 18)
    processor = digits("tiny-wav2vec2")[1]
    with pytest.raises(InvalidArgumentError, match="SpeechEncoderDecoderConfig has no token that the decoder starts"):
        make_collator(processor, model)
    (text,) = found(trainer_of("tiny-wav2vec2", tmp_path, model=model, collator=Seq2SeqCollator(processor, 1)))
    assert "config.pad_token_id and config.decoder_start_token_id are None" in text
    model.config.pad_token_id, model.config.decoder_start_token_id = 0, 1  # as the hint says, from the tokenizer
    assert found(trainer_of("tiny-wav2vec2", tmp_path, model=model)) == []


def test_clips_shorter_than_a_mask(make_wav: Any) -> None:
    _, processor = digits("tiny-wav2vec2")
    model = load_model("tiny-wav2vec2", processor)
    model.config.mask_time_length, model.config.mask_time_prob = 10, 0.05
    clips = [str(make_wav(f"{i}.wav", 0.15 if i % 4 == 1 else 1.0)) for i in range(12)]
    rows = datasets.Dataset.from_dict({"audio": clips, "labels": [[3, 4]] * 12})
    with pytest.warns(TrainingCheckWarning, match=r"3 of 12 clips are shorter .* = 10 frames\): the first is row 1 "):
        ac.create_optimal_config(rows, model, verbose=False)
    model.config.mask_time_length = 3  # as the message says
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingCheckWarning)
        ac.create_optimal_config(rows, model, verbose=False)


def test_label_smoothing_of_a_loss_that_is_not_the_trainers(tmp_path: Path) -> None:
    error = refused(trainer_of("tiny-wav2vec2", tmp_path, label_smoothing_factor=0.1))
    assert "label_smoothing_factor = 0.1 does not go with Wav2Vec2ForCTC" in error.message
    assert error.hint == "Pass label_smoothing_factor=0"
    assert found(trainer_of("tiny-wav2vec2", tmp_path, label_smoothing_factor=0)) == []


def test_label_smoothing_of_a_decoder_needs_its_input_from_the_collator(tmp_path: Path) -> None:
    error = refused(trainer_of("tiny-whisper", tmp_path, label_smoothing_factor=0.1))
    assert "Seq2SeqCollator does not make" in error.message
    assert error.hint == "Pass label_smoothing_factor=0, or a collator that adds decoder_input_ids to the batch"
    _, processor = digits("tiny-whisper")
    model = load_model("tiny-whisper", processor)

    def collate(batch: Any) -> Any:
        made = make_collator(processor, model)(batch)
        ids = made["labels"].masked_fill(made["labels"] == -100, model.config.pad_token_id)
        start = torch.full((len(ids), 1), model.config.decoder_start_token_id)
        return {**made, "decoder_input_ids": torch.cat([start, ids[:, :-1]], 1)}

    trainer = trainer_of("tiny-whisper", tmp_path, label_smoothing_factor=0.1, model=model, collator=collate)
    assert found(trainer) == []
    ac.ASRConfigManager().train(trainer, verbose=False)
    assert trainer.state.global_step == 1


def test_a_generation_config_that_cannot_be_saved(tmp_path: Path) -> None:
    _, processor = digits("tiny-whisper")
    model = load_model("tiny-whisper", processor)
    model.generation_config.temperature = 0.5
    saves = {"save_strategy": "steps", "save_steps": 1, "model": model}
    error = refused(trainer_of("tiny-whisper", tmp_path / "saves", **saves))
    assert "generation_config cannot be saved" in error.message and "temperature" in error.message
    assert error.hint == "Correct the model's generation_config, or set save_strategy='no'"
    ac.ASRConfigManager().train(trainer_of("tiny-whisper", tmp_path / "no", model=model), verbose=False)
    model.generation_config.do_sample = True
    ac.ASRConfigManager().train(trainer_of("tiny-whisper", tmp_path / "saves", **saves), verbose=False)


def test_a_config_that_json_cannot_hold() -> None:
    rows, processor = digits("tiny-wav2vec2")
    model = load_model("tiny-wav2vec2", processor)
    model.config.threshold = np.float32(0.5)
    with pytest.raises(InvalidArgumentError, match=r"cannot be saved as JSON: threshold = .*float32") as error:
        ac.create_optimal_config(rows, model, verbose=False)
    assert error.value.hint == "set it to a number, a text or a list of them"
    model.config.threshold = 0.5
    assert config_values(model.config)["threshold"] == 0.5


def test_each_finding_is_said_once(tmp_path: Path) -> None:
    trainer, manager = trainer_of("tiny-wav2vec2", tmp_path, labels=lambda ids, i: [*ids, 0]), ac.ASRConfigManager()
    with pytest.warns(TrainingCheckWarning) as warned:
        manager.attach(trainer).detach()
        manager.train(trainer, verbose=False)
    assert len([warning for warning in warned if warning.category is TrainingCheckWarning]) == 1
