"""A block: a few steps of a real Trainer with one side's settings, on a copy of the model."""

from __future__ import annotations

import copy
import inspect
import tempfile
import warnings
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._base.errors import AsrConfigError, InternalError, InvalidArgumentError, UnsupportedError
from .._base.out_of_memory import classify, clear_frames, first_line
from ..apply.model_preparation import prepare_model
from ..apply.torch_backends import TrainingSwitches
from ..apply.training_arguments import UnsupportedSettingWarning
from ..manager import ASRConfigManager
from ..training.planned_batches import PlanNotFollowedWarning
from .benchmark_clips import ClipSample, with_lengths
from .isolation import nothing_left_behind
from .measurements import OUT_OF_MEMORY, Block
from .step_phases import Phases
from .variants import Side
from .warm_up import warmed_up

_REPORTED = (UnsupportedSettingWarning, PlanNotFollowedWarning)


@dataclass(frozen=True)
class Bench:
    """What all blocks have in common. ``trainer_options`` go to the Trainer."""

    model: Any
    sample: ClipSample
    collator: Any
    trainer_class: Any
    trainer_options: Mapping[str, Any]
    seed: int
    warm_up: int


class BlockFailed(Exception):
    """A block could not be trained: whether for want of ``memory``, the error's ``text``, and its ``hint`` or ""."""

    def __init__(self, memory: bool, text: str, hint: str) -> None:
        super().__init__(text)
        self.memory, self.text, self.hint = memory, OUT_OF_MEMORY if memory else text, hint


@dataclass
class BlockRun:
    """A block that was trained, the settings that it had, and what could not be done as planned."""

    block: Block
    settings: dict[str, Any]
    notes: tuple[str, ...]


def run_block(
    bench: Bench, side: Side, steps: int, *, warm_up: int | None = None, on_step: Callable[[int], None] = lambda n: None
) -> BlockRun:
    """Train ``steps`` steps behind those that warm up. Raises ``BlockFailed``; Ctrl-C goes through."""
    failed = None
    with nothing_left_behind():
        try:
            return _run(bench, side, steps, bench.warm_up if warm_up is None else warm_up, on_step)
        except Exception as error:
            failure = classify(error)
            memory = failure["class"] in ("gpu_oom", "host_oom")
            text, hint = f"{type(error).__name__}: {first_line(error)}", failure["advice"] if memory else ""
            if isinstance(error, AsrConfigError):
                text, hint = error.message, error.hint or hint
            failed = BlockFailed(memory, text, hint)
            clear_frames(error)
            failed.__cause__ = error
    raise failed


def _run(bench: Bench, side: Side, steps: int, warm_up: int, on_step: Callable[[int], None]) -> BlockRun:
    switches = TrainingSwitches(side.plan)
    place = tempfile.TemporaryDirectory(prefix="asrconfig-benchmark-")
    with place as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        for kind in _REPORTED:
            warnings.simplefilter("always", kind)
        trainer = _trainer(bench, side, folder, warm_up + steps)
        phases = Phases(trainer, warm_up, steps, on_step)
        guard = None
        if side.plan is not None:
            manager = ASRConfigManager(safety_margin=side.plan.safety_margin)
            manager.config = side.plan
            manager.durations = array("d") if bench.sample.seconds is None else bench.sample.seconds
            guard = manager.attach(trainer)
        switches.set()
        with warmed_up(trainer, warm_up * trainer.args.gradient_accumulation_steps):
            trainer.train()
    if phases.block is None:
        raise InternalError(f"{side.name}: the Trainer made {trainer.state.global_step} steps of {warm_up + steps}")
    block = replace(phases.block, out_of_memory=0 if guard is None else len(guard.events))
    return BlockRun(block, side.shown(trainer.args), tuple(dict.fromkeys(str(warning.message) for warning in caught)))


def _trainer(bench: Bench, side: Side, folder: str, steps: int) -> Any:
    from transformers.trainer_callback import PrinterCallback

    model = copy.deepcopy(bench.model)
    if side.plan is not None:
        prepare_model(model, side.plan)
    args = side.arguments(folder, steps, bench.seed, model)
    if args.world_size > 1 or args.n_gpu > 1:
        hint = "set CUDA_VISIBLE_DEVICES=0 before starting Python, and do not use torchrun"
        raise UnsupportedError("a benchmark is of one device", hint)
    if bench.collator is not None:  # which reads columns that the model does not know
        args.remove_unused_columns = False
    options = {"data_collator": bench.collator, **bench.trainer_options}
    rows = with_lengths(bench.sample, side.plan)
    trainer = bench.trainer_class(model=model, args=args, train_dataset=rows, **options)
    trainer.remove_callback(PrinterCallback)
    return trainer


def processor_option(trainer_class: Any, processor: Any) -> dict[str, Any]:
    """The processor under the name that the installed Trainer has for it."""
    if processor is None:
        return {}
    names = inspect.signature(trainer_class.__init__).parameters
    older = "tokenizer" in names and "processing_class" not in names
    return {"tokenizer" if older else "processing_class": processor}


def checked_model(model: Any) -> None:
    """Raise ``InvalidArgumentError`` for what is not a torch module with weights to train."""
    import torch

    if not isinstance(model, torch.nn.Module):
        hint = "load it first, with from_pretrained or load_model"
        raise InvalidArgumentError(f"model = {type(model).__name__} is not a torch module", hint)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidArgumentError("the model has no weights to train", "unfreeze some: parameter.requires_grad = True")
