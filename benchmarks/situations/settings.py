"""Settings that are not the plan's, that nothing takes, or that nothing does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from material import ctc, labelled, noise, train
from outcome import Outcome, hearing, situation
from transformers import Trainer, TrainerCallback, TrainingArguments, Wav2Vec2Config, Wav2Vec2ForCTC

from asrconfig_go import create_optimal_config


class _BeforeStepOne(Exception):
    pass


class _End(TrainerCallback):
    def on_step_begin(self, *_: Any, **__: Any) -> None:
        raise _BeforeStepOne


def _xls_r_1b() -> Any:
    """Its shapes, with memory that nothing has touched."""
    sizes = {"hidden_size": 1280, "num_hidden_layers": 48, "num_attention_heads": 16, "intermediate_size": 5120}
    kind = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
    with torch.device("meta"):
        model = Wav2Vec2ForCTC(Wav2Vec2Config(**sizes, **kind, vocab_size=40, ctc_loss_reduction="mean"))
    return model.to_empty(device="cpu")


def _clips(folder: Path) -> str:
    for i in range(8):
        noise(folder / f"{i}.flac", 1.5 * (i + 1), i)
    return str(folder)


def _by_hand(folder: Path, managed: bool, gpu: str, **changes: Any) -> Outcome:
    """The published example: own arguments from some fields of the plan."""
    clips = folder / "clips"
    clips.mkdir()
    config, manager = create_optimal_config(_clips(clips), "xls-r-1b", gpu=gpu, verbose=False)
    args = TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=config.per_device_train_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        fp16=config.fp16,
        learning_rate=config.learning_rate,
        report_to=[],
        use_cpu=True,
        **changes,
    )
    rows = [{"input_values": torch.zeros(16_000), "labels": torch.tensor([1, 2])}] * 64
    trainer = Trainer(_xls_r_1b(), args, train_dataset=rows, callbacks=[manager.callback(), _End()])
    with hearing() as heard:
        manager.train(trainer, max_retries=0) if managed else trainer.train()
    if not isinstance(heard.error, _BeforeStepOne):
        return Outcome("unnamed", heard.text[-300:])
    heard.error = None
    return heard.named("fp32 instead of bf16", "bf16=config.bf16", "GiB of")


@situation
def published_example_with_the_callback(folder: Path) -> Outcome:
    """Own TrainingArguments with fp16=config.fp16 for XLS-R-1B on an L4, and the callback."""
    return _by_hand(folder, False, "L4")


@situation
def published_example_with_manager_train(folder: Path) -> Outcome:
    """Own TrainingArguments with fp16=config.fp16 for XLS-R-1B on an L4, and manager.train."""
    return _by_hand(folder, True, "L4")


@situation
def published_example_on_another_ampere_card(folder: Path) -> Outcome:
    """Own TrainingArguments with fp16=config.fp16 for XLS-R-1B on an RTX 3090."""
    return _by_hand(folder, False, "RTX 3090")


def _small_plan(**options: Any) -> Any:
    rows, processor = labelled()
    return create_optimal_config(rows, ctc(processor), gpu="L4", verbose=False, num_train_epochs=1, **options)[0]


@situation
def batch_alone_is_overridden(folder: Path) -> Outcome:
    """config.per_device_train_batch_size = 4: the effective batch stays."""
    config = _small_plan()
    with hearing():
        config.per_device_train_batch_size = 4
        args = config.to_training_arguments(folder)
    step = args.per_device_train_batch_size * args.gradient_accumulation_steps
    return Outcome("prevented" if step == 32 else "silent", f"a step has {step} clips of 32")


@situation
def batch_alone_is_passed_to_the_arguments(folder: Path) -> Outcome:
    """to_training_arguments(out, per_device_train_batch_size=4): the effective batch stays."""
    config = _small_plan()
    with warnings.catch_warnings(record=True):
        args = config.to_training_arguments(folder, per_device_train_batch_size=4)
    step = args.per_device_train_batch_size * args.gradient_accumulation_steps
    return Outcome("prevented" if step == 32 else "silent", f"a step has {step} clips of 32")


@situation
def accumulation_is_overridden(_: Path) -> Outcome:
    """config.gradient_accumulation_steps = 8: the learning rate is of another effective batch."""
    config = _small_plan()
    steps = 8 * config.gradient_accumulation_steps
    with hearing() as heard:
        config.gradient_accumulation_steps = steps
    return heard.named("learning_rate", "scaling gives", "32")


@situation
def checkpointing_is_turned_off(folder: Path) -> Outcome:
    """gradient_checkpointing=False against the plan: predicted memory no longer holds."""
    config = _small_plan(gradient_checkpointing=True)
    with hearing() as heard:
        config.to_training_arguments(folder, gradient_checkpointing=False)
    return heard.named("gradient_checkpointing", "predicted memory")


def _unknown(hint: str, **settings: Any) -> Outcome:
    with hearing() as heard:
        create_optimal_config("clips", "wav2vec2-base", **settings)
    return heard.named("create_optimal_config", hint)


@situation
def epochs_is_no_setting(_: Path) -> Outcome:
    """create_optimal_config(epochs=3)."""
    return _unknown("num_train_epochs=3", epochs=3)


@situation
def batch_size_is_no_setting(_: Path) -> Outcome:
    """create_optimal_config(batch_size=8)."""
    return _unknown("target_batch_size=8", batch_size=8)


@situation
def fp16_is_no_setting(_: Path) -> Outcome:
    """create_optimal_config(fp16=True)."""
    return _unknown('precision="fp16"', fp16=True)


@situation
def learning_rate_is_no_setting(_: Path) -> Outcome:
    """create_optimal_config(learning_rate=1e-4)."""
    return _unknown("base_learning_rate=0.0001", learning_rate=1e-4)


@situation
def half_weights_are_planned(_: Path) -> Outcome:
    """A model in float16 is planned for a T4."""
    rows, processor = labelled()
    with hearing() as heard:
        create_optimal_config(rows, ctc(processor).half(), gpu="T4", verbose=False)
    return heard.named("float16", "float()")


@situation
def bfloat16_weights_are_trained(folder: Path) -> Outcome:
    """A model in bfloat16 is trained as it is, without a copy in float32."""
    rows, processor = labelled()
    with hearing() as heard:
        train(ctc(processor).to(torch.bfloat16), rows, processor, folder)
    return heard.named("stored in bfloat16", "float()")


@situation
def half_checkpoint_is_loaded(folder: Path) -> Outcome:
    """load_model of a checkpoint that is stored in float16."""
    from asrconfig_go.recipe import load_model

    rows, processor = labelled()
    ctc(processor).half().save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    model = load_model(str(folder / "model"), processor)
    with hearing() as heard:
        trainer = train(model, rows, processor, folder)
    if heard.error is not None:
        return Outcome("unnamed", heard.text[-300:])
    stored = {str(p.dtype) for p in model.parameters()}
    steps = trainer.state.global_step
    return Outcome("prevented" if stored == {"torch.float32"} and steps == 3 else "silent", f"{stored}, {steps} steps")


@situation
def plan_says_that_clips_are_kept(folder: Path) -> Outcome:
    """cache_dataset = True: the recipe decodes each clip once."""
    from asrconfig_go.audio import DecodedCache
    from asrconfig_go.recipe import fine_tune

    seen: list[Any] = []

    class Collators(TrainerCallback):
        def on_train_end(self, *_: Any, train_dataloader: Any = None, **__: Any) -> None:
            seen.append(getattr(train_dataloader.collate_fn, "load", None))

    with hearing() as heard:
        fine_tune("demo", "tiny-wav2vec2", folder, max_steps=12, callbacks=[Collators()], verbose=False)
    if heard.error is not None:
        return Outcome("unnamed", heard.text[-300:])
    kept = [load for load in seen if isinstance(load, DecodedCache)]
    return Outcome("prevented" if kept and kept[0].hits else "silent", f"clips are read by {seen[0]}")
