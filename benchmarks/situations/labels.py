"""Labels and settings that do not fit the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from material import ctc, labelled, noise, train
from outcome import Heard, Outcome, hearing, situation
from transformers import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForSequenceClassification,
)

from asrconfig_go import check_labels, create_optimal_config
from asrconfig_go.data.splits import load_split
from asrconfig_go.recipe import build_processor, load_model, make_collator, word_error_rates

Change = Callable[[list[int], int], list[int]]


def changed(rows: Any, change: Change) -> Any:
    """The rows with other labels."""
    return rows.map(lambda row, i: {"labels": change(row["labels"], i)}, with_indices=True)


def said_nothing(heard: Heard) -> Outcome:
    """``survived``, if the training ended and nothing was said of its data, model or settings."""
    line = heard.line("TrainingCheckWarning")
    return Outcome("unnamed" if line or heard.error else "survived", line or str(heard.error or "no finding"))


def train_whisper(folder: Path, change: Change | None = None, set_up: Any = None, **arguments: Any) -> Any:
    """Two steps of a small Whisper, with ``change`` of its labels."""
    spoken = load_split("train").select(range(8))
    processor = build_processor(spoken["text"], "tiny-whisper")
    model = load_model("tiny-whisper", processor)
    rows = spoken.cast_column("audio", datasets.Audio(decode=False))
    rows = rows.map(lambda row: {"labels": processor(text=row["text"]).input_ids})
    rows = changed(rows, change) if change else rows
    if set_up:
        set_up(model, processor)
    config, manager = create_optimal_config(rows, model, target_batch_size=4, num_train_epochs=1, verbose=False)
    settings = {"remove_unused_columns": False, "report_to": [], "save_strategy": "no", "max_steps": 2, **arguments}
    args = config.to_training_arguments(folder / "out", arguments_class=Seq2SeqTrainingArguments, **settings)
    collator = make_collator(processor, model)
    trainer = Seq2SeqTrainer(
        model=model, args=args, train_dataset=rows, data_collator=collator, processing_class=processor
    )
    manager.train(trainer, verbose=False)
    return trainer


@situation
def label_outside_the_vocabulary(folder: Path) -> Outcome:
    """A label id that the CTC head does not have."""
    rows, processor = labelled()
    outside = len(processor.tokenizer)
    rows = changed(rows, lambda labels, i: labels + [outside] * (i == 5))
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, attach={"bad_clips": "skip"})
    return heard.named("TrainingCheckWarning", "label", str(outside), "row 5", "four")


@situation
def labels_padded_by_minus_one(folder: Path) -> Outcome:
    """Labels padded with -1, which is no label and is not ignored."""
    rows, processor = labelled()
    rows = changed(rows, lambda labels, i: labels + [-1] * (25 - len(labels)))
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder)
    return heard.named("negative", "-1", "24 of 24", "-100")


@situation
def labels_of_a_decoder_padded_by_its_pad_token(folder: Path) -> Outcome:
    """Whisper's labels padded to one length with the pad token instead of -100."""
    with hearing() as heard:
        train_whisper(folder, lambda labels, i: labels + [labels[-1]] * (30 - len(labels)))
    return heard.named("padding", "8 of 8", "-100", "row 0")


@situation
def blank_is_another_than_the_tokenizers_pad(folder: Path) -> Outcome:
    """The model's pad_token_id is not the tokenizer's."""
    rows, processor = labelled()
    with hearing() as heard:
        train(ctc(processor, pad_token_id=5), rows, processor, folder)
    return heard.named("pad_token_id", "5", "0")


@situation
def blank_is_no_label_at_all(folder: Path) -> Outcome:
    """The model's pad_token_id is one behind its vocabulary."""
    rows, processor = labelled()
    with hearing() as heard:
        train(ctc(processor, pad_token_id=len(processor.tokenizer)), rows, processor, folder)
    return heard.named("pad_token_id = 18", "blank")


@situation
def tokenizer_of_more_tokens_than_the_model(folder: Path) -> Outcome:
    """A head that is smaller than the tokenizer's vocabulary."""
    rows, processor = labelled()
    with hearing() as heard:
        train(ctc(processor, vocab_size=len(processor.tokenizer) - 1), rows, processor, folder)
    return heard.named("tokenizer has 18 tokens", "model 17", "vocab_size=18")


@situation
def one_row_without_labels(folder: Path) -> Outcome:
    """A clip without labels, in batches of one."""
    rows, processor = labelled()
    rows = changed(rows, lambda labels, i: labels if i != 7 else [])
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, per_device_train_batch_size=1)
    return heard.named("TrainingCheckWarning", "no label", "row 7")


@situation
def evaluation_row_without_labels(folder: Path) -> Outcome:
    """A clip without labels in the evaluation set."""
    rows, processor = labelled()
    evaluation = changed(rows, lambda labels, i: labels if i != 3 else [])
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, evaluation=evaluation)
    return heard.named("to evaluate with", "no label", "row 3")


@situation
def more_labels_than_frames(folder: Path) -> Outcome:
    """A transcript of more labels than the clip has frames."""
    rows, processor = labelled()
    rows = changed(rows, lambda labels, i: labels * (9 if i == 3 else 1))
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder)
    return heard.named("TrainingCheckWarning", "row 3", "frames", "62")


@situation
def more_labels_than_positions(folder: Path) -> Outcome:
    """A transcript of more labels than Whisper's decoder has positions."""
    with hearing() as heard:
        train_whisper(folder, lambda labels, i: labels * (100 if i == 2 else 1))
    return heard.named("TrainingCheckWarning", "row 2", "decoder positions")


def train_classifier(folder: Path, classes: list[int]) -> None:
    """Two steps of a classifier of 4 classes."""
    spoken, _ = labelled(8)
    rows = spoken.remove_columns(["labels", "text"]).add_column("label", classes)
    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=True)
    small: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 16, "conv_dim": (8,) * 7, "num_conv_pos_embeddings": 4, "num_labels": 4}
    torch.manual_seed(0)
    model = Wav2Vec2ForSequenceClassification(Wav2Vec2Config(**small, num_conv_pos_embedding_groups=2))

    def collate(batch: list[Any]) -> Any:
        from asrconfig_go.audio import load_audio

        audio = [load_audio(row["audio"]) for row in batch]
        inputs = extractor(audio, sampling_rate=16_000, padding=True, return_tensors="pt")
        return {**inputs, "labels": torch.tensor([row["label"] for row in batch])}

    from transformers import Trainer

    config, manager = create_optimal_config(rows, model, target_batch_size=4, num_train_epochs=1, verbose=False)
    settings = {"remove_unused_columns": False, "report_to": [], "save_strategy": "no", "max_steps": 2}
    args = config.to_training_arguments(folder / "out", **settings)
    manager.train(Trainer(model=model, args=args, train_dataset=rows, data_collator=collate), verbose=False)


@situation
def class_that_the_head_does_not_have(folder: Path) -> Outcome:
    """A classifier's label that is not among its classes."""
    with hearing() as heard:
        train_classifier(folder, [0, 1, 2, 3, 0, 4, 2, 3])
    return heard.named("TrainingCheckWarning", "label 4", "row 5", "0 to 3")


@situation
def class_that_is_not_known(folder: Path) -> Outcome:
    """A classifier's label -1, with which datasets marks a class that is not known."""
    with hearing() as heard:
        train_classifier(folder, [0, 1, 2, 3, 0, -1, 2, 3])
    return heard.named("TrainingCheckWarning", "label -1", "row 5")


@situation
def clips_shorter_than_a_mask(folder: Path) -> Outcome:
    """Clips of fewer frames than SpecAugment masks at once."""
    clips = [noise(folder / f"{i}.wav", 0.15 if i % 4 == 1 else 1.0, i) for i in range(24)]
    processor = build_processor(["one"], "tiny-wav2vec2")
    labels = processor(text="one").input_ids
    rows = datasets.Dataset.from_list([{"audio": clip, "labels": labels} for clip in clips])
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, plan={"length_handling": "random"})
    return heard.named("6 of 24", "SpecAugment", "row 1", "mask_time_length")


@situation
def label_smoothing_of_ctc(folder: Path) -> Outcome:
    """label_smoothing_factor with a CTC model."""
    rows, processor = labelled()
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, label_smoothing_factor=0.1)
    return heard.named("label_smoothing_factor", "Wav2Vec2ForCTC", "pass label_smoothing_factor=0")


@situation
def label_smoothing_of_whisper(folder: Path) -> Outcome:
    """label_smoothing_factor with Whisper, whose collator makes no decoder_input_ids."""
    with hearing() as heard:
        train_whisper(folder, label_smoothing_factor=0.1)
    return heard.named("label_smoothing_factor", "decoder_input_ids", "collator")


@situation
def generation_settings_that_cannot_be_saved(folder: Path) -> Outcome:
    """A generation config that the first checkpoint would refuse."""

    def set_up(model: Any, processor: Any) -> None:
        model.generation_config.temperature = 0.5

    with hearing() as heard:
        train_whisper(folder, set_up=set_up, save_strategy="steps", save_steps=2)
    return heard.named("generation_config", "cannot be saved", "temperature", "checkpoint")


@situation
def config_that_cannot_be_saved(folder: Path) -> Outcome:
    """A number of numpy in the model's config, which JSON cannot hold."""
    rows, processor = labelled()
    model = ctc(processor)
    model.config.threshold = np.float32(0.5)
    with hearing() as heard:
        train(model, rows, processor, folder, save_strategy="steps", save_steps=1)
    return heard.named("cannot be saved", "threshold", "float32")


@situation
def evaluation_metrics_by_batches(folder: Path) -> Outcome:
    """batch_eval_metrics with the recipe's word error rates."""
    rows, processor = labelled(21)
    rates: list[Any] = []
    with hearing() as heard:
        for by_batches in (False, True):
            arguments = {"eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": 4}
            trainer = train(
                ctc(processor), rows, processor, folder / str(by_batches), evaluation=rows,
                metrics=word_error_rates(processor), batch_eval_metrics=by_batches, **arguments,
            )  # fmt: skip
            rates.append(next(log["eval_cer"] for log in trainer.state.log_history if "eval_cer" in log))
    if heard.error is None and len(set(rates)) == 1:
        return Outcome("survived", f"the same character error rate, {rates[0]:.3f}")
    return heard.named("no such message")


@situation
def labels_checked_by_hand(folder: Path) -> Outcome:
    """check_labels of a label outside the vocabulary and of another blank."""
    rows, processor = labelled()
    outside = changed(rows, lambda labels, i: labels + [len(processor.tokenizer)] * (i == 5))
    with hearing() as heard:
        for data, model in ((outside, ctc(processor)), (rows, ctc(processor, pad_token_id=5))):
            print(repr(check_labels(data, text="labels", tokenizer=processor, model=model, progress=False)))
    first, second = heard.line("row 5", "label 18"), heard.line("pad_token_id = 5", "tokenizer's pad_token_id is 0")
    return Outcome("named" if first and second else "silent", first or second or heard.text[-200:])


@situation
def healthy_ctc(folder: Path) -> Outcome:
    """A training in which nothing is wrong, with labels that end with -100: nothing is said."""
    rows, processor = labelled()
    rows = changed(rows, lambda labels, i: labels + [-100] * (25 - len(labels)))
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, evaluation=rows, save_strategy="steps", save_steps=3)
    return said_nothing(heard)


@situation
def healthy_whisper(folder: Path) -> Outcome:
    """Whisper with a prompt that is ignored, in which nothing is wrong: nothing is said."""
    with hearing() as heard:
        prompt = [-100] * 4
        train_whisper(folder, lambda labels, i: labels[:1] + prompt + labels[1:], save_strategy="steps", save_steps=2)
    return said_nothing(heard)
