"""A training on ``cuda:0``, and the peaks that torch's allocator counted."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from typing import Any

import models
import plain_loop
import torch
from cases import Case
from torch.optim import optimizer as optimizers

from asrconfig_go._core.modules import checkpoint_options


class Peaks:
    """Peaks of allocated memory by phase, from the start of one to the start of the next."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.bytes = {"forward": 0, "backward": 0, "other": 0}
        self._phase = "other"
        model.register_forward_pre_hook(lambda *_: self._enter("forward"))
        model.register_forward_hook(lambda *_: self._enter("backward"))
        optimizers.register_optimizer_step_pre_hook(lambda *_: self._enter("other"))

    def _enter(self, phase: str) -> None:
        if torch._C._current_graph_task_id() != -1:  # a checkpoint computes a part of the model again
            return
        self.bytes[self._phase] = max(self.bytes[self._phase], torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()
        self._phase = phase

    def most(self) -> int:
        """The highest of all."""
        self._enter("other")
        return max(self.bytes.values())


def train(case: Case, values: Any = None) -> dict[str, Any]:
    """Peaks in bytes; ``fits`` is False where memory ran out. ``values`` is the stand-in's, None on a real GPU."""
    model = models.MODELS[case.model].build()
    peaks = Peaks(model)
    fits = True
    reserved = _Reserved()
    with values or nullcontext():
        try:
            if case.loop == "plain":
                plain_loop.train(case, model, _to_cuda, lambda: None)
            else:
                _with_trainer(case, model)
        except torch.OutOfMemoryError:
            fits = False
        except RuntimeError as error:
            if "unable to find an engine" not in str(error):  # cuDNN, where none of its workspaces fits
                raise
            fits = False
    found = {"allocated": peaks.most(), "reserved": reserved.most(), "pinned": _pinned(), "fits": fits}
    return {**found, "forward": peaks.bytes["forward"], "backward": peaks.bytes["backward"]}


def _pinned() -> int:
    """Host memory that torch has pinned in all."""
    return int(torch.cuda.host_memory_stats()["allocated_bytes.peak"])


class _Reserved:
    """The peak of reserved memory, which resets with that of allocated memory: the highest before each."""

    def __init__(self) -> None:
        self._most = 0
        reset = torch.cuda.reset_peak_memory_stats

        def noting(device: Any = None) -> None:
            self._most = self.most()
            reset(device)

        torch.cuda.reset_peak_memory_stats = noting

    def most(self) -> int:
        return max(self._most, torch.cuda.max_memory_reserved())


def _to_cuda(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to("cuda") for name, tensor in batch.items()}


def _with_trainer(case: Case, model: Any) -> None:
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

    about = models.MODELS[case.model]
    length, labels = round(case.seconds * models.units(about)), round(case.seconds * about.labels_per_second)
    generates = hasattr(model, "generate")
    made = Seq2SeqTrainer if generates else Trainer
    with tempfile.TemporaryDirectory() as folder:
        arguments = (Seq2SeqTrainingArguments if generates else TrainingArguments)(
            folder,
            per_device_train_batch_size=case.batch,
            gradient_accumulation_steps=case.accumulation,
            max_steps=plain_loop.STEPS,
            fp16=case.precision == "fp16",
            bf16=case.precision == "bf16",
            optim=case.optimizer,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,  # checkpoints alone pin host memory then
            remove_unused_columns=False,
            **_checkpointing(case),
        )
        clips = [{"clip": n} for n in range(case.batch * case.accumulation * plain_loop.STEPS)]
        made(
            model,
            arguments,
            train_dataset=clips,  # type: ignore[arg-type]
            data_collator=lambda chosen: models.batch(about, len(chosen), length, labels),
        ).train()


def _checkpointing(case: Case) -> dict[str, Any]:
    if not case.checkpointing:
        return {}
    some = checkpoint_options(case.every_n_layers, case.offload_checkpoints)
    kwargs = {"use_reentrant": case.checkpointing == "reentrant", **some}
    return {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": kwargs}
