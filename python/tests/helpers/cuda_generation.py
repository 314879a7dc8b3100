"""Peaks of ``torch.cuda`` while ``Seq2SeqTrainer.evaluate`` generates texts, on the stand-in runtime."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from cuda_standin.values import Values
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperConfig, WhisperForConditionalGeneration

CLIPS = 8
_LABELS = 40
_SIZES = {"openai/whisper-tiny": (4, 384), "openai/whisper-small": (12, 768)}
_END, _START = 50257, 50258


def generation_peak(model: str, beams: int, tokens: int, precision: str) -> int:
    """Of allocated memory in the ``generate`` of an evaluation that follows a training step."""
    built = _whisper(*_SIZES[model])
    peaks: list[int] = []
    generate: Any = built.generate

    def generated(*args: Any, **kwargs: Any) -> Any:
        torch.cuda.reset_peak_memory_stats()
        found = generate(*args, **kwargs)
        peaks.append(torch.cuda.max_memory_allocated())
        assert found.shape == (CLIPS, tokens)  # no text ends before
        return found

    with tempfile.TemporaryDirectory() as folder, Values():
        trainer = _trainer(built, folder, beams, tokens, precision)
        trainer.train()
        built.generate = generated
        trainer.evaluate()
    (peak,) = peaks
    return peak


def _whisper(layers: int, width: int) -> Any:
    sizes = {"layers": layers, "attention_heads": width // 64, "ffn_dim": 4 * width}
    both = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in sizes.items()}
    model = WhisperForConditionalGeneration(WhisperConfig(d_model=width, vocab_size=51865, **both))
    config = model.generation_config
    config.eos_token_id = config.pad_token_id = _END
    config.decoder_start_token_id = _START
    return model


def _trainer(model: Any, folder: str, beams: int, tokens: int, precision: str) -> Any:
    arguments = Seq2SeqTrainingArguments(
        folder, per_device_train_batch_size=2, per_device_eval_batch_size=CLIPS, max_steps=1, optim="adamw_torch_fused",
        fp16=precision == "fp16", bf16=precision == "bf16", predict_with_generate=True, generation_max_length=tokens,
        generation_num_beams=beams, remove_unused_columns=False, save_strategy="no", report_to="none",
        disable_tqdm=True,
    )  # fmt: skip
    clips: Any = [{"clip": i} for i in range(CLIPS)]
    return Seq2SeqTrainer(
        model, arguments, train_dataset=clips, eval_dataset=clips, data_collator=_collated,
        compute_metrics=lambda _: {},  # without it the Trainer does not generate
    )  # fmt: skip


def _collated(clips: list[Any]) -> dict[str, torch.Tensor]:
    n = len(clips)
    return {"input_features": torch.zeros(n, 80, 3000), "labels": torch.full((n, _LABELS), 5)}
