"""Computes clips of a saved batch again, with the model passed or the weights of a checkpoint; which stand out."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from .._core.batches import batch_size, piece
from .._core.declared import Precision
from .._core.out_of_memory import clear_frames, first_line, free_memory
from .._core.padding import trimmed_clips
from .._core.random_state import cpu_generators_kept, set_cpu_state
from .._core.requirements import from_hub
from ..errors import AsrConfigError, InvalidArgumentError, NotFoundError, UnsupportedError
from ..guard.clip_findings import gradient_norm
from ..guard.saved_batch import state_of_plain
from ..predict.probe import gradients_aside
from .checkpoints import checkpoints, incomplete, step_of, weight_files

if TYPE_CHECKING:
    from ..guard.loop import Batch
    from ..guard.own_loop import LossFunction
    from ..guard.saved_batch import SavedBatch

    Weights: TypeAlias = "torch.nn.Module | str | os.PathLike[str] | None"

MOST_TIMES = 3.0  # the median gradient norm of a batch's clips that a clip may have and not stand out
_AUTOCAST_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
# Hints of errors.
FIRST_WEIGHTS = "name the checkpoint or the model that the training began with: --model"
_PASS_MODULE = "from Python: asrconfig_go.train.replay_batch(folder, model=model)"


def load_model(folder: Path, saved: SavedBatch, model: Weights) -> tuple[Any, str]:
    """The model to compute the batch in ``folder`` with, and where its weights come from."""
    if isinstance(model, torch.nn.Module):
        return model, f"the given {type(model).__name__}"
    if model is not None and not isinstance(model, str | os.PathLike):
        raise InvalidArgumentError(
            f"{type(model).__name__} is not a model", "pass a torch module, a checkpoint or a name"
        )
    source = os.fspath(model) if model is not None else str(_checkpoint(folder, saved))
    architecture = _architecture(saved, Path(source))

    def load() -> Any:
        from transformers import AutoConfig

        loaded, found = architecture.from_pretrained(
            source, config=AutoConfig.for_model(**saved.config), output_loading_info=True
        )
        if 2 * len(found["missing_keys"]) > len(loaded.state_dict()):  # a new head is less
            hint = "pass --model with a checkpoint of the training"
            raise NotFoundError(f"{source} lacks most weights of {saved.architecture}", hint)
        return loaded

    if not Path(source).is_dir():
        return from_hub("the model", source, load, "pass --model with a checkpoint of the training"), source
    try:
        return load(), source
    except AsrConfigError:
        raise
    except Exception as error:  # whatever transformers raises of a folder that is no checkpoint
        raise NotFoundError(
            f"cannot load {saved.architecture} from {source}: {first_line(error)}", "pass --model with a checkpoint"
        ) from error


def _checkpoint(folder: Path, saved: SavedBatch) -> Path:
    """The newest whole checkpoint of the run from before the step, else the first whole one after it."""
    run = (folder.resolve() if folder.is_symlink() else folder).parent
    folders = checkpoints(run)
    before = [path for path in folders if step_of(path) <= saved.global_step]
    after = folders[len(before) :]
    checkpoint = next((path for path in (*reversed(before), *after) if not incomplete(path)), None)
    if checkpoint is None:
        raise NotFoundError(f"{run} has no checkpoint to load weights from", FIRST_WEIGHTS)
    return checkpoint


def _architecture(saved: SavedBatch, source: Path) -> Any:
    """The class of transformers that the saved batch's model has."""
    import transformers

    architecture = getattr(transformers, saved.architecture, None)
    if architecture is None or not saved.config.get("model_type"):
        raise UnsupportedError(f"transformers has no {saved.architecture} to load weights into", _PASS_MODULE)
    if any(path.name.startswith("adapter_") for path in weight_files(source)):
        raise UnsupportedError(f"{source} holds adapters alone", _PASS_MODULE)
    return architecture


@dataclass(frozen=True)
class Replayed:
    """What was computed of a clip or a batch.

    Attributes:
        loss: The loss, NaN or infinite where it was so; None where the model raised ``error``.
        gradient_norm: The norm of the gradient, likewise.
        memory_bytes: The peak of the GPU's allocator; None on a CPU.
        error: The first line of the error that the model raised; ``""`` for none.
    """

    loss: float | None
    gradient_norm: float | None
    memory_bytes: int | None
    error: str = ""

    @property
    def finite(self) -> bool:
        """Whether loss and gradient norm were computed and are finite."""
        return all(value is not None and math.isfinite(value) for value in (self.loss, self.gradient_norm))


class BatchRunner:
    """Computes parts of saved batches, with the random numbers that the training had before each batch.

    When a call returns, the model's gradients and mode and the CPU's random number generators are as before it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.device,
        precision: Precision,
        random_states: list[dict[str, Any]],
        loss_fn: LossFunction | None,
    ) -> None:
        self._model, self._device, self._precision, self._loss_fn = model, device, precision, loss_fn
        self._random_states = [state_of_plain(state) for state in random_states]

    def clips(self, batches: Sequence[Batch], training: bool = False) -> list[Replayed]:
        """Every clip of the batches, computed alone; ``training`` is for training mode instead of evaluation mode."""
        return [clip for number, batch in enumerate(batches) for clip in self._clips_of(number, batch, training)]

    def _clips_of(self, number: int, batch: Batch, training: bool) -> list[Replayed]:
        """The clips of a batch, padded as in it.

        Where the model raises an error for all of them, perhaps only for the padded length, they are computed without
        padding: the clips that then still fail are the cause.
        """
        parts = [piece(batch, i, i + 1) for i in range(batch_size(batch))]
        padded = [self.run(number, part, training) for part in parts]
        if len(padded) > 1 and all(clip.error for clip in padded):
            unpadded = [self.run(number, part, training) for part in trimmed_clips(batch, parts, self._model)]
            return unpadded if any(clip.error for clip in unpadded) else padded
        return padded

    def run(self, number: int, part: Batch, training: bool = False, precision: Precision | None = None) -> Replayed:
        """Compute a part of batch ``number``, or all of it."""
        gpu = self._device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        try:
            loss, norm = self._loss_and_norm(number, part, training, precision or self._precision)
            return Replayed(loss, norm, torch.cuda.max_memory_allocated(self._device) if gpu else None)
        except Exception as error:  # whatever a model raises on a bad clip is the answer
            clear_frames(error)
            return Replayed(None, None, None, first_line(error))
        finally:
            free_memory()

    def _loss_and_norm(self, number: int, part: Batch, training: bool, precision: Precision) -> tuple[float, float]:
        inputs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(self._device), part)
        model, was_training = self._model, self._model.training
        with cpu_generators_kept(), gradients_aside(list(model.parameters())):
            set_cpu_state(self._random_states[number])
            dtype = _AUTOCAST_TYPES.get(precision)
            try:
                with torch.autocast(self._device.type, dtype=dtype) if dtype else contextlib.nullcontext():
                    loss = self._loss(model.train(training), inputs)
            finally:
                model.train(was_training)
            loss.backward()
            return float(loss.detach()), gradient_norm(model.parameters())

    def _loss(self, model: torch.nn.Module, inputs: Any) -> torch.Tensor:
        if self._loss_fn is not None:
            return self._loss_fn(model, inputs)
        out = model(**inputs)
        loss: torch.Tensor = out["loss"] if isinstance(out, dict) else out[0]
        return loss


def standing_out(clips: list[Replayed]) -> list[bool]:
    """Whether each clip is to blame for a batch that failed.

    Those are to blame that were not computed or are not finite; where there are none, those whose gradient norm is more
    than ``MOST_TIMES`` the median. A single finite clip never is.
    """
    if not all(clip.finite for clip in clips):
        return [not clip.finite for clip in clips]
    norms = [clip.gradient_norm or 0.0 for clip in clips]
    median = statistics.median(norms) if len(norms) > 1 else math.inf
    return [norm > MOST_TIMES * median for norm in norms]
