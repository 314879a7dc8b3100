"""Blocks: a few steps of a real Trainer with one side's settings, on a copy of the model, in isolation."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import logging
import os
import re
import tempfile
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.out_of_memory import classify, clear_frames, first_line, free_memory
from .._core.random_state import rng_state, set_rng_state
from .._core.training_session import override
from ..errors import AsrConfigError, InternalError, InvalidArgumentError, NotFoundError, UnsupportedError
from ..manager import ASRConfigManager
from ..plan.environment import TrainingSwitches, backends_kept
from ..plan.model_preparation import prepare_model
from ..plan.training_arguments import UnsupportedSettingWarning
from ..train.planned_batches import PlanNotFollowedWarning
from ..train.stream_training import with_batches
from .benchmark_clips import ClipSample, with_lengths
from .measurements import OUT_OF_MEMORY, Block
from .sides import Side
from .step_phases import Phases

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.utils.data import BatchSampler
    from transformers import DataCollator, ProcessorMixin, Trainer


class WarmedUp:
    """A batch sampler that repeats its first ``extra`` batches before all of them."""

    def __init__(self, batches: BatchSampler, extra: int) -> None:
        self._batches, self._extra = batches, extra

    def __iter__(self) -> Iterator[Any]:
        yield from islice(cycle(self._batches), self._extra)
        yield from self._batches

    def __len__(self) -> int:
        return len(self._batches) + self._extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # looked up by pickle and copy before __init__
            raise AttributeError(name)
        return getattr(self._batches, name)


@contextlib.contextmanager
def warmed_up(trainer: Trainer, batches: int) -> Iterator[None]:
    """Prepend ``batches`` warm-up batches to those of ``trainer``, and end its loader's workers afterwards.

    The garbage collector would take 5 s to end them, since it destroys their queues first.
    """
    make, made = trainer.get_train_dataloader, list[Any]()

    def with_more() -> Any:
        loader = make()
        made.append(with_batches(loader, WarmedUp(loader.batch_sampler, batches)))
        return made[-1]

    override(trainer, "get_train_dataloader", with_more)
    try:
        yield
    finally:
        for loader in made:
            base = getattr(loader, "base_dataloader", loader)  # accelerate's loaders are around torch's
            if hasattr(base, "_iterator"):
                base._iterator = None


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Restore everything that a training has changed in this process."""
    state, environment = rng_state(), dict(os.environ)
    with backends_kept(), _accelerate_kept(), _quiet():
        try:
            yield
        finally:
            set_rng_state(state)
            for name in set(os.environ) - set(environment):
                del os.environ[name]
            os.environ.update(environment)
            free_memory()


@contextlib.contextmanager
def _accelerate_kept() -> Iterator[None]:
    """Restore the state, such as precision, that all accelerators of a process share, as another Trainer uses it."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    shared = [kind._shared_state for kind in (AcceleratorState, GradientState, PartialState)]
    before = [dict(state) for state in shared]
    try:
        yield
    finally:
        for state, saved in zip(shared, before, strict=True):
            state.clear()
            state.update(saved)


@contextlib.contextmanager
def off_the_gpu(model: Module) -> Iterator[None]:
    """Move ``model`` to host memory: a copy of it is trained, and a real training has only one model on the GPU."""
    first = next(model.parameters(), None)
    device = None if first is None or not first.is_cuda else first.device
    if device is not None:
        try:
            model.to("cpu")
        except (NotImplementedError, RuntimeError, ValueError):  # quantized models stay where they were loaded
            device = None
        free_memory()
    try:
        yield
    finally:
        if device is not None:
            model.to(device)


@contextlib.contextmanager
def old_objects_aside() -> Iterator[None]:
    """Let the garbage collector leave out what was there before: every block collects, which then takes milliseconds
    instead of up to a second. Where others have put objects aside, that stays as it is.
    """
    frozen = gc.get_freeze_count()
    if not frozen:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Mute what transformers and the guard print at the beginning of each of dozens of trainings."""
    with contextlib.ExitStack() as undo:
        for logger in map(logging.getLogger, ("transformers", "asrconfig_go", "accelerate")):
            undo.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield


_REPORTED = (UnsupportedSettingWarning, PlanNotFollowedWarning)


@dataclass(frozen=True)
class Bench:
    """What all blocks have in common. ``trainer_options`` are passed to the Trainer."""

    model: Module
    sample: ClipSample
    collator: DataCollator | None
    trainer_class: type[Trainer]
    trainer_options: Mapping[str, Any]
    seed: int
    warm_up: int


class BlockFailed(Exception):
    """A block could not be trained. ``memory``: whether memory ran out; ``text`` and ``hint`` are the error's."""

    def __init__(self, memory: bool, text: str, hint: str) -> None:
        super().__init__(text)
        self.memory, self.text, self.hint = memory, OUT_OF_MEMORY if memory else text, hint


@dataclass
class BlockRun:
    """A trained block, its settings, and notes on what could not be done as planned."""

    block: Block
    settings: dict[str, Any]
    notes: tuple[str, ...]


def run_block(
    bench: Bench, side: Side, steps: int, *, warm_up: int | None = None, on_step: Callable[[int], None] = lambda n: None
) -> BlockRun:
    """Train ``steps`` steps after the warm-up. Raises ``BlockFailed``; Ctrl-C interrupts it."""
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
        raise InternalError(f"{side.name}: the Trainer ran {trainer.state.global_step} of {warm_up + steps} steps")
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
        raise UnsupportedError("a benchmark uses one device", hint)
    if bench.collator is not None:  # a collator may read columns that the model does not take
        args.remove_unused_columns = False
    options = {"data_collator": bench.collator, **bench.trainer_options}
    rows = with_lengths(bench.sample, side.plan)
    trainer = bench.trainer_class(model=model, args=args, train_dataset=rows, **options)
    trainer.remove_callback(PrinterCallback)
    return trainer


def processor_option(trainer_class: type[Trainer], processor: ProcessorMixin | None) -> dict[str, object]:
    """The processor as the keyword argument of the installed Trainer."""
    if processor is None:
        return {}
    names = inspect.signature(trainer_class.__init__).parameters
    older = "tokenizer" in names and "processing_class" not in names
    return {"tokenizer" if older else "processing_class": processor}


def checked_model(model: Module) -> None:
    """Raise ``InvalidArgumentError`` unless ``model`` is a torch module with trainable weights."""
    import torch

    if not isinstance(model, torch.nn.Module):
        hint = "load it first, with from_pretrained or load_model"
        raise InvalidArgumentError(f"model = {type(model).__name__} is not a torch module", hint)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidArgumentError(
            "the model has no trainable weights", "unfreeze some: parameter.requires_grad = True"
        )


_STEPS = 2


def profile_side(bench: Bench, side: Side, folder: Path) -> str:
    """Train two steps of ``side`` under the profiler; returns the path of the trace. A table is written beside it.

    Raises ``BlockFailed`` like ``run_block``.
    """
    from ..train.train_options import step_profiler, write_profile

    file = folder / (re.sub(r"[^a-z0-9]+", "-", side.name.lower()).strip("-") + ".pt.trace.json")
    with step_profiler(bench.warm_up - 1, _STEPS, lambda recorded: write_profile(recorded, file)) as profiler:
        run_block(bench, side, _STEPS, on_step=lambda n: profiler.step())
    return str(file)


def checked_folder(name: str | os.PathLike[str] | None) -> Path | None:
    """The folder for traces, created if missing. Raises ``NotFoundError`` if it is not writable."""
    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise NotFoundError(f"cannot write to {folder}: {error}", "choose a folder that can be written") from error
