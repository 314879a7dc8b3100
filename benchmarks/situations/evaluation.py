"""Evaluations and the checkpoints that they choose."""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from material import ctc, labelled, train
from outcome import Heard, Outcome, hearing, situation
from transformers import EvalPrediction, PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

import asrconfig_go
from asrconfig_go.recipe import build_processor, make_collator, word_error_rates

SPOILT = 3


class Perfect(PreTrainedModel):  # type: ignore[misc]
    """Hears every label: a letter, then the blank."""

    config_class = PretrainedConfig

    def __init__(self, blank: int, size: int) -> None:
        super().__init__(PretrainedConfig())
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.blank, self.size = blank, size

    def forward(self, labels: Any) -> dict[str, Any]:
        """Two frames for each label, the second of which is blank."""
        known = labels.masked_fill(labels < 0, self.blank)
        frames = torch.stack([known, torch.full_like(known, self.blank)], dim=2).flatten(1)
        logits = 9.0 * torch.nn.functional.one_hot(frames, self.size).float() - 4
        return {"loss": self.weight.sum(), "logits": logits}


def _letters_first() -> Any:
    """A processor whose vocabulary ends with its marks, as many do: token 0 is a letter."""
    processor = build_processor(["one two three four"], "tiny-wav2vec2")
    with tempfile.TemporaryDirectory() as folder:
        letters = [*"onetwhrfu"]
        tokens = {token: i for i, token in enumerate([*dict.fromkeys(letters), "|", "[UNK]", "[PAD]"])}
        Path(folder, "vocab.json").write_text(str(tokens).replace("'", '"'))
        kind = type(processor.tokenizer)
        processor.tokenizer = kind(
            f"{folder}/vocab.json", unk_token="[UNK]", pad_token="[PAD]", bos_token=None, eos_token=None
        )
    return processor


def _perfect(folder: Path, **more: Any) -> dict[str, float]:
    """The metrics of a model that hears every word, evaluated in batches of other lengths."""
    processor = _letters_first()
    tokenizer = processor.tokenizer
    texts = ["four", "one two three four", "two", "one", "three three three", "two one"]
    rows = [{"labels": tokenizer(text).input_ids} for text in texts]

    def collate(part: list[dict[str, Any]]) -> dict[str, Any]:
        longest = max(len(row["labels"]) for row in part)
        padded = [row["labels"] + [-100] * (longest - len(row["labels"])) for row in part]
        return {"labels": torch.tensor(padded)}

    concatenated = more.pop("concatenated", True)
    arguments = TrainingArguments(
        str(folder), per_device_eval_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True,
        remove_unused_columns=False, eval_do_concat_batches=concatenated,
    )  # fmt: skip
    trainer = Trainer(
        Perfect(tokenizer.pad_token_id, len(tokenizer)), arguments, eval_dataset=rows, data_collator=collate,
        compute_metrics=word_error_rates(processor), **more,
    )  # fmt: skip
    with contextlib.redirect_stdout(None):
        metrics: dict[str, float] = trainer.evaluate()
    return metrics


def _right(metrics: dict[str, float]) -> Outcome:
    wer, cer = metrics["eval_wer"], metrics["eval_cer"]
    return Outcome("survived" if wer == cer == 0 else "silent", f"wer {wer:.2f}, cer {cer:.2f} of perfect predictions")


@situation
def padded_logits(folder: Path) -> Outcome:
    """Logits of batches of other lengths, which the Trainer pads with -100."""
    return _right(_perfect(folder))


@situation
def padded_tokens(folder: Path) -> Outcome:
    """The same with preprocess_logits_for_metrics, which gives tokens and labels."""
    return _right(_perfect(folder, preprocess_logits_for_metrics=lambda logits, labels: (logits.argmax(-1), labels)))


@situation
def batches_that_are_not_concatenated(folder: Path) -> Outcome:
    """eval_do_concat_batches=False, which gives lists of batches."""
    return _right(_perfect(folder, concatenated=False))


@situation
def logits_of_a_decoder(folder: Path) -> Outcome:
    """Whisper's logits without predict_with_generate: they go on behind the end of each text."""
    processor = build_processor(["one two", "three"], "tiny-whisper")
    labels = [processor.tokenizer(text).input_ids for text in ("three", "one two one two")]
    longest = max(map(len, labels))
    padded = np.array([row + [-100] * (longest - len(row)) for row in labels])
    heard = np.array([row + row[-2:-1] * (longest - len(row)) for row in labels])
    logits = np.eye(len(processor.tokenizer), dtype=np.float32)[heard]
    rates = word_error_rates(processor)(EvalPrediction(predictions=(logits, logits[:, :1]), label_ids=padded))
    return _right({f"eval_{name}": value for name, value in rates.items()})


def _infinite(folder: Path, heard: Heard, guarded: bool = True, **more: Any) -> Any:
    """Three steps with an evaluation after each, of clips of which one's text is far too long."""
    rows, processor = labelled()
    evaluation = rows.select(range(8)).map(
        lambda row, i: {"labels": row["labels"] * (40 if i == SPOILT else 1)}, with_indices=True
    )
    settings = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1, **more}
    with heard_in(heard):
        if guarded:
            return train(
                ctc(processor, ctc_zero_infinity=False), rows, processor, folder, evaluation=evaluation, **settings
            )
        model = ctc(processor, ctc_zero_infinity=False)
        arguments = TrainingArguments(
            str(folder / "out"), max_steps=3, report_to=[], use_cpu=True, disable_tqdm=True,
            remove_unused_columns=False, per_device_train_batch_size=8, **settings,
        )  # fmt: skip
        trainer = Trainer(
            model, arguments, make_collator(processor, model), rows, evaluation,
            callbacks=[asrconfig_go.AdaptiveMemoryCallback(panel=False)],
        )  # fmt: skip
        trainer.train()
        return trainer


@contextlib.contextmanager
def heard_in(heard: Heard) -> Any:
    """``hearing`` into a collection that is there already."""
    with hearing() as inner:
        yield
    heard.lines += inner.lines
    heard.error = inner.error


@situation
def evaluation_loss_that_is_infinite(folder: Path) -> Outcome:
    """The loss of an evaluation is infinite for one clip's labels."""
    heard = Heard()
    _infinite(folder, heard)
    words = "row 3", "evaluation", "inf", "its labels need"
    once = sum(all(word in line for word in words) for line in heard.lines) == 1
    return heard.named(*words) if once else Outcome("silent", f"{len(heard.lines)} lines, none or several name it")


@situation
def one_infinite_batch_of_several(folder: Path) -> Outcome:
    """The same, of which the Trainer leaves the batch out of eval_loss."""
    heard = Heard()
    _infinite(folder, heard, per_device_eval_batch_size=2)
    return heard.named("evaluation at step 1", "the loss of 1 of 4 batches is not finite")


@situation
def best_checkpoint_by_an_infinite_loss(folder: Path) -> Outcome:
    """load_best_model_at_end goes by an evaluation's loss that is infinite."""
    heard = Heard()
    trainer = _infinite(folder, heard, load_best_model_at_end=True)
    if trainer is not None and math.isfinite(trainer.state.best_metric or math.inf):
        return Outcome("survived", f"best metric {trainer.state.best_metric}")
    return heard.named("eval_loss is inf", "load_best_model_at_end", "metric_for_best_model")


@situation
def callback_alone_and_an_infinite_evaluation(folder: Path) -> Outcome:
    """The callback without a guard, and an evaluation whose loss is infinite."""
    heard = Heard()
    _infinite(folder, heard, guarded=False, load_best_model_at_end=True)
    return heard.named("eval_loss is inf", "load_best_model_at_end", "guard")


def _cell(kind: str, folder: Path) -> Outcome:
    """README's cell of ``kind``, and its newest checkpoint in a pipeline."""
    from transformers import pipeline

    readme = Path(asrconfig_go.__file__).resolve().parents[2] / "README.md"
    cells = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    cell = next(text for text in cells if f'"tiny-{kind}"' in text)
    cell = re.sub(
        r"(to_training_arguments\(\"[\w-]+\",)", r"\1 max_steps=2, save_steps=2, save_strategy='steps',", cell
    )
    os.chdir(folder)
    with hearing() as heard:
        exec(compile(cell, "README.md", "exec"), {})  # the cell as people paste it
        checkpoint = next(folder.glob("out*/checkpoint-2"))
        noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
        text = pipeline("automatic-speech-recognition", str(checkpoint))(noise)["text"]
    if heard.error is None and isinstance(text, str):
        return Outcome("survived", f"pipeline({checkpoint.name}) transcribes")
    return heard.named("pipeline", "processing_class")


@situation
def checkpoint_of_the_ctc_cell(folder: Path) -> Outcome:
    """A checkpoint of README's first cell in pipeline("automatic-speech-recognition")."""
    return _cell("wav2vec2", folder)


@situation
def checkpoint_of_the_whisper_cell(folder: Path) -> Outcome:
    """A checkpoint of README's Whisper cell in pipeline("automatic-speech-recognition")."""
    return _cell("whisper", folder)


@situation
def checkpoints_without_a_processor(folder: Path) -> Outcome:
    """A Trainer without processing_class, whose checkpoints no pipeline can load."""
    rows, processor = labelled()
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, save_strategy="steps", save_steps=2)
    return heard.named("processing_class=processor", "pipeline")
