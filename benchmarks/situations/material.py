"""Small models, processors and clips for situations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import soundfile
import torch
from transformers import Trainer, Wav2Vec2Config, Wav2Vec2ForCTC

from asrconfig_go import create_optimal_config
from asrconfig_go.data.splits import load_split
from asrconfig_go.recipe import build_processor, make_collator

torch.set_num_threads(1)
datasets.disable_progress_bars()


def ctc(processor: Any, **changes: Any) -> Any:
    """A small wav2vec2 of the processor's vocabulary."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
        "conv_dim": (16,) * 7, "vocab_size": len(processor.tokenizer),
        "pad_token_id": processor.tokenizer.pad_token_id, "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4, "feat_extract_norm": "layer", "do_stable_layer_norm": True,
        "ctc_loss_reduction": "mean", "ctc_zero_infinity": True, "mask_time_prob": 0.05, "layerdrop": 0.0,
    }  # fmt: skip
    return Wav2Vec2ForCTC(Wav2Vec2Config(**{**settings, **changes}))


def labelled(count: int = 24) -> tuple[Any, Any]:
    """Clips of digits with a column ``labels``, and their processor."""
    spoken = load_split("train").select(range(count))
    processor = build_processor(spoken["text"], "tiny-wav2vec2")
    rows = spoken.cast_column("audio", datasets.Audio(decode=False))
    return rows.map(lambda row: {"labels": processor(text=row["text"]).input_ids}), processor


def noise(path: Path, seconds: float, seed: int = 0) -> str:
    """A clip of noise, and where it is."""
    samples = np.random.default_rng(seed).normal(0, 0.1, int(16_000 * seconds))
    soundfile.write(path, samples, 16_000)
    return str(path)


def train(
    model: Any,
    rows: Any,
    processor: Any,
    folder: Path,
    *,
    plan: dict[str, Any] | None = None,
    attach: dict[str, Any] | None = None,
    evaluation: Any = None,
    metrics: Any = None,
    kind: Any = Trainer,
    **arguments: Any,
) -> Any:
    """As README's cell does it, three steps; the Trainer with its manager as ``trainer.manager``."""
    options = {"num_train_epochs": 1, "target_batch_size": 8, "verbose": False, **(plan or {})}
    config, manager = create_optimal_config(rows, model, **options)
    config.apply(model)
    settings = {
        "remove_unused_columns": False, "report_to": [], "save_strategy": "no", "logging_steps": 1, "max_steps": 3,
        "disable_tqdm": True, **arguments,
    }  # fmt: skip
    trainer = kind(
        model=model,
        args=config.to_training_arguments(folder / "out", **settings),
        train_dataset=rows,
        eval_dataset=evaluation,
        data_collator=make_collator(processor, model),
        compute_metrics=metrics,
        callbacks=[manager.callback()],
    )
    if attach:
        manager.attach(trainer, **attach)
    trainer.manager = manager
    manager.train(trainer, verbose=False)
    return trainer
