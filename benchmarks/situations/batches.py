"""Which clips lie together in a batch, and how large it may be."""

from __future__ import annotations

import math
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import datasets
import torch
from material import ctc, labelled, noise, train
from outcome import Outcome, hearing, situation
from transformers import Wav2Vec2BertConfig, Wav2Vec2BertForCTC

import asrconfig_go as ac
from asrconfig_go.recipe import build_processor

_GROUP: dict[str, Any] = {"feat_extract_norm": "group", "do_stable_layer_norm": False}  # as wav2vec2-base has it
_SHORT, _MASK = 0.15, "mask_length"


def _clips(folder: Path, seconds: list[float]) -> tuple[Any, Any]:
    processor = build_processor(["one", "two"], "tiny-wav2vec2")
    labels = processor(text="one").input_ids
    rows = [{"audio": noise(folder / f"{i}.wav", s, i), "labels": labels} for i, s in enumerate(seconds)]
    return datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False)), processor


def _mixed(count: int) -> list[float]:
    """Every eighth clip has 7 frames; a mask of SpecAugment has 10."""
    return [_SHORT if i % 8 == 5 else 0.6 + i % 7 / 5 for i in range(count)]


def _losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def _trains(trainer: Any, steps: int) -> Outcome:
    """Survived, if every step was made, each with a finite loss and no clip blamed for the model's error."""
    losses, blamed = _losses(trainer), [b for b in trainer.manager.report.bad_batches if b.what != "memory"]
    text = f"{trainer.state.global_step} steps, losses {min(losses):.2f} to {max(losses):.2f}"
    good = trainer.state.global_step == len(losses) == steps and all(map(math.isfinite, losses)) and not blamed
    return Outcome("survived" if good else "silent", text)


def _played(folder: Path, seconds: list[float], steps: int, model: dict[str, Any], **options: Any) -> Outcome:
    rows, processor = _clips(folder, seconds)
    with hearing() as heard:
        trainer = train(ctc(processor, **model), rows, processor, folder, max_steps=-1, **options)
    return _trains(trainer, steps) if heard.error is None else heard.named(_MASK, "SpecAugment")


@situation
def steps_of_clips_shorter_than_a_mask(folder: Path) -> Outcome:
    """The plan's steps put clips together that are shorter than SpecAugment's mask."""
    return _played(folder, _mixed(480), 60, _GROUP)


@situation
def steps_of_short_clips_with_attention_masks(folder: Path) -> Outcome:
    """The same in steps of similar lengths, with attention masks."""
    return _played(folder, _mixed(480), 60, {}, plan={"length_handling": "bucketed"})


@situation
def stratified_steps_of_short_clips(folder: Path) -> Outcome:
    """The same in stratified steps."""
    return _played(folder, _mixed(160), 20, _GROUP, plan={"length_handling": "stratified"})


@situation
def a_short_clip_alone_in_a_batch(folder: Path) -> Outcome:
    """A batch of one clip that is shorter than SpecAugment's mask."""
    arguments = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}
    return _played(folder, _mixed(16), 16, _GROUP, plan={"length_handling": "random"}, **arguments)


@situation
def every_clip_is_shorter_than_a_mask(folder: Path) -> Outcome:
    """Every clip is shorter than SpecAugment's mask."""
    rows, processor = _clips(folder, [_SHORT] * 24)
    with hearing() as heard:
        trainer = train(ctc(processor), rows, processor, folder)
    if heard.error is not None or not all(map(math.isfinite, _losses(trainer))):
        return heard.named("mask_time_length", "SpecAugment")
    return heard.named("mask of SpecAugment", "mask_time_length")


@situation
def short_frames_of_w2v_bert(folder: Path) -> Outcome:
    """Frames of w2v-BERT, fewer than SpecAugment's mask."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = Wav2Vec2BertConfig(vocab_size=8, feature_projection_input_dim=160, ctc_loss_reduction="mean", **sizes)
    rows = [{"input_features": torch.randn(7, 160), "labels": torch.tensor([3, 4])} for _ in range(24)]
    model = Wav2Vec2BertForCTC(config)

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        made = {name: torch.stack([row[name] for row in batch]) for name in batch[0]}
        return {**made, "attention_mask": torch.ones(made["input_features"].shape[:2], dtype=torch.long)}

    from transformers import Trainer, TrainingArguments

    settings: dict[str, Any] = {"report_to": [], "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True}
    arguments = TrainingArguments(str(folder), max_steps=3, use_cpu=True, remove_unused_columns=False, **settings)
    trainer = Trainer(model, arguments, train_dataset=rows, data_collator=collate)
    trainer.manager = ac.ASRConfigManager()
    with hearing() as heard:
        trainer.manager.train(trainer, verbose=False)
    return _trains(trainer, 3) if heard.error is None else heard.named(_MASK, "SpecAugment")


@situation
def memory_runs_out_beside_short_clips(folder: Path) -> Outcome:
    """Memory runs out in a step, whose long clip is left out: the others are shorter than the mask."""
    rows, processor = _clips(folder, [2.0 if i == 3 else _SHORT for i in range(8)])
    model = ctc(processor)

    def full(_: Any, args: Any, inputs: dict[str, Any]) -> None:
        if inputs["input_values"].shape[1] > 20_000 and torch.is_grad_enabled():
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    model.register_forward_pre_hook(full, with_kwargs=True)
    with hearing() as heard:
        trainer = train(model, rows, processor, folder, max_steps=1, attach={"too_long": "skip", "memory": False})
    if heard.error is not None:
        return heard.named(_MASK, "SpecAugment")
    return _trains(trainer, 1)


@situation
def grouped_without_lengths(folder: Path) -> Outcome:
    """length_handling="grouped" without a column of lengths."""
    rows, processor = labelled()
    seconds = list(ac.scan_audio(rows, progress=False).durations)
    bare = rows.remove_columns("length")
    with hearing() as heard:
        trainer = train(ctc(processor), bare, processor, folder, plan={"length_handling": "grouped"})
    if heard.error is not None:
        return heard.named("grouped", "add_durations")
    trainer.manager.attach(trainer)
    step = list(trainer._get_train_sampler(bare))[1:8]  # the first may be the longest of all
    lengths = [seconds[i] for i in step]
    return Outcome("prevented" if lengths == sorted(lengths, reverse=True) else "silent", f"a step of {lengths}")


@situation
def grouped_with_a_column_behind_a_transform(folder: Path) -> Outcome:
    """The same with a column of lengths, of a dataset whose transform reads audio."""
    rows, processor = labelled()
    made: list[int] = []

    def audio(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made.extend(batch["labels"])
        return {"audio": batch["audio"], "labels": batch["labels"]}

    rows = rows.with_transform(audio)
    with hearing() as heard:
        trainer = train(ctc(processor), rows, processor, folder, plan={"length_handling": "grouped"})
    if heard.error is not None:
        return heard.named("grouped", "length")
    made.clear()
    trainer.manager.attach(trainer)
    next(iter(trainer._get_train_sampler(rows)))
    return Outcome("silent" if made else "survived", f"{len(made)} rows made to find their lengths")


@situation
def grouped_by_a_sample(folder: Path) -> Outcome:
    """The same where only a sample was measured."""
    rows, processor = labelled()
    bare = rows.remove_columns("length")
    with hearing() as heard:
        train(ctc(processor), bare, processor, folder, plan={"length_handling": "grouped", "sample_size": 8})
    return heard.named("grouped by length", "add_durations")


@situation
def evaluation_without_lengths(folder: Path) -> Outcome:
    """Evaluation of a grouped training, whose clips have no column of lengths."""
    rows, processor = labelled()
    bare = rows.remove_columns("length")
    arguments = {"eval_strategy": "steps", "eval_steps": 3}
    with hearing() as heard:
        plan = {"length_handling": "grouped"}
        trainer = train(ctc(processor), rows, processor, folder, plan=plan, evaluation=bare, **arguments)
    if heard.error is not None:
        return heard.named("length", "add_durations")
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    return Outcome("survived" if losses and math.isfinite(losses[0]) else "silent", f"evaluation losses {losses}")


@situation
def too_late_for_the_allocator(folder: Path) -> Outcome:
    """config.apply() after CUDA has started."""
    rows, processor = labelled()
    config, _ = ac.create_optimal_config(rows, ctc(processor), gpu="T4", verbose=False)
    torch.cuda.is_initialized = lambda: True
    with hearing() as heard, warnings.catch_warnings():
        warnings.simplefilter("always")
        config.apply(backends=False)
    return heard.named("expandable_segments", "iB more", "restart")


@situation
def a_scan_is_passed_on(folder: Path) -> Outcome:
    """The result of scan_audio passed to create_optimal_config."""
    rows, processor = labelled()
    scan = ac.scan_audio(rows, progress=False)
    with hearing() as heard:
        config, manager = ac.create_optimal_config(scan, ctc(processor), verbose=False)
    if heard.error is not None:
        return heard.named("scan_audio", "profile")
    same = manager.dataset == scan.profile and list(manager.durations) == list(scan.durations)
    return Outcome("prevented" if same else "silent", repr(config).splitlines()[0])


@situation
def records_at_the_root(folder: Path) -> Outcome:
    """Profiles and the errors' base, imported from the package's root."""
    names = ("HardwareProfile", "DatasetProfile", "ModelProfile", "AsrConfigError")
    root: types.ModuleType = sys.modules["asrconfig_go"]
    missing = [name for name in names if not hasattr(root, name)]
    return Outcome("unnamed" if missing else "prevented", f"without {missing}" if missing else f"{len(names)} names")
