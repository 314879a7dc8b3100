"""``benchmark_training``, which checks its arguments before anything is measured."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
from array import array
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .._core.checks import check_seed, checked
from .._core.defaults import TARGET_BATCH_SIZE
from ..audio.collators import readable
from ..config import TrainingConfig
from ..errors import EmptyDatasetError, InvalidArgumentError, UnsupportedError
from ..optimal import create_optimal_config
from ..plan.training_arguments import named
from ..predict.hardware import HardwareProfile
from .benchmark_clips import checked_dataset, draw, durations_of, rows_of_arrays
from .benchmark_result import BenchmarkResult, Setting
from .measurements import ENOUGH_ROUNDS
from .sides import OPTIONS, PLAN, Place, Side, default_side, most_workers, original_side

if TYPE_CHECKING:
    from datasets import Dataset
    from torch.nn import Module
    from transformers import DataCollator, ProcessorMixin, Trainer

    from .sides import Original

_ROUNDS_OF_WORKERS = 2  # in a block; before that, each has handed over its first batch, all of which come at once
_PACKAGES = ("torch", "transformers", "accelerate", "asrconfig-go")


def benchmark_training(
    model: Module,
    dataset: Dataset,
    *,
    collator: DataCollator | None = None,
    original: Original | None = None,
    plan: TrainingConfig | None = None,
    compare: bool = True,
    processor: ProcessorMixin | None = None,
    target_batch_size: int | None = None,
    steps: int = 4,
    rounds: int = ENOUGH_ROUNDS,
    warm_up: int = 2,
    loader: bool = True,
    sweep: str | Iterable[str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    trainer_class: type[Trainer] | None = None,
    seed: int = 0,
    minutes: float | None = None,
    name: str = "",
    progress: bool = True,
) -> BenchmarkResult:
    """Measure the training of ``model`` on ``dataset`` by a plan and by the original settings, with real Trainers.

    ``dataset`` and ``collator`` are the Trainer's ``train_dataset`` and ``data_collator``. ``original`` is what it is
    trained with now: TrainingArguments, a plan, a dictionary of either's names or a file of one (JSON, or
    ``training_args.bin``). None means the installed Trainer's defaults, with gradient accumulation where
    ``target_batch_size`` or ``plan`` asks for larger steps; where they run out of memory, the micro-batch is halved,
    and the result says so. ``compare=False`` leaves it out. ``plan`` is made for this machine when None, with the
    original's effective batch.

    Both sides train the same ``steps`` × effective batch clips, drawn by ``seed``, in blocks behind ``warm_up`` steps
    that are not measured (more where that is too few for the loader's workers); blocks take turns, plan, original,
    plan, …, in ``rounds``. Then single changes to the plan are tried in the same way: ``sweep`` names them (see
    ``OPTIONS``), ``"all"``, ``"none"``; None tries what may help against what holds the plan back. ``loader`` tries
    workers × prefetching of the DataLoader. ``profile`` is a folder for traces by PyTorch's profiler. ``settings`` are
    TrainingArguments for both sides, ``trainer_class`` a ``Trainer`` of your own.

    Copies of the model are trained: its weights, random numbers and torch's switches stay. Changes that run out of
    memory or fail are reported as such. ``minutes`` (from this call on) and Ctrl-C end the benchmark with what was
    measured so far.

    Raises ``InvalidArgumentError`` for what cannot be, for effective batches that differ, and when a step fails;
    ``EmptyDatasetError`` without clips; ``UnsupportedError`` without torch and transformers.
    """
    from .runner import TimeBudget

    trainer_class = trainer_class or _trainer()
    from .blocks import (
        Bench,
        checked_folder,
        checked_model,
        nothing_left_behind,
        off_the_gpu,
        old_objects_aside,
        processor_option,
    )
    from .runner import Benchmark, BenchmarkOptions

    _check_counts(steps=steps, rounds=rounds, warm_up=warm_up, target_batch_size=target_batch_size)
    choices = BenchmarkOptions(loader, _swept(sweep), checked_folder(profile), progress, TimeBudget(minutes))
    check_seed(seed)
    plan, durations = checked("plan", plan, TrainingConfig | None), None
    checked_model(model)
    checked_dataset(dataset)
    dataset = readable(dataset, collator)
    before = None
    if compare:
        wanted = target_batch_size if plan is None else plan.effective_batch_size
        before = default_side(wanted) if original is None else original_side(original)
    if plan is None:
        batch = (target_batch_size or TARGET_BATCH_SIZE) if before is None else before.effective_batch
        plan, durations = _planned(dataset, model, batch, processor, seed)
    _check_batches(plan, before)
    both = named(settings or {})
    before = None if before is None else dataclasses.replace(before, settings={**before.settings, **both})
    hardware = HardwareProfile.detect()
    workers = most_workers(plan, before, choices.sweep, hardware.cpu.usable_cores)
    steps, warm_up = max(steps, _ROUNDS_OF_WORKERS * workers), max(warm_up, workers)
    sample = draw(dataset, durations_of(dataset, durations), steps, plan.effective_batch_size, plan.max_length_s, seed)
    options = processor_option(trainer_class, processor)
    bench = Bench(model, sample, collator, trainer_class, options, seed, warm_up)
    setting = Setting(
        model=name or type(model).__name__, device=_device(hardware), versions=_versions(),
        date=datetime.datetime.now(tz=datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"), epoch_clips=sample.population,
        effective_batch=sample.effective_batch, steps=steps, rounds=rounds, warm_up=warm_up, seed=seed,
        minutes=minutes,
    )  # fmt: skip
    place = Place.here(hardware.cpu.usable_cores)
    with off_the_gpu(model), old_objects_aside(), nothing_left_behind():
        return Benchmark(bench, Side(PLAN, both, plan), before, setting, place, choices).run()


def _trainer() -> type[Trainer]:
    try:
        from transformers import Trainer as installed
    except ImportError as error:
        raise UnsupportedError(
            f"a benchmark trains, which needs transformers, torch and accelerate: {error}",
            "pip install transformers torch accelerate",
        ) from error
    trainer_class: type[Trainer] = installed
    return trainer_class


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (checked(name, value, int) < 1 or value > 65_536):
            raise InvalidArgumentError(f"{name} = {value} is not between 1 and 65536", "leave it out for the usual")


def _swept(sweep: str | Iterable[str] | None) -> Sequence[str] | None:
    if sweep is None:
        return None
    names = [name.strip() for name in sweep.split(",")] if isinstance(sweep, str) else list(sweep)
    names = [name for name in names if name and name != "none"]
    if "all" in names:
        return OPTIONS
    unknown = [name for name in names if name not in OPTIONS]
    if unknown:
        hint = f"choose among {', '.join(OPTIONS)}, or all"
        raise InvalidArgumentError(f"there is no option {unknown[0]!r} to sweep", hint)
    return names


def _planned(
    dataset: Dataset, model: Module, batch: int, processor: ProcessorMixin | None, seed: int
) -> tuple[TrainingConfig, array[float] | None]:
    source = rows_of_arrays(dataset) or dataset
    try:
        config, manager = create_optimal_config(
            source, model, verbose=False, target_batch_size=batch, processor=processor, seed=seed
        )
    except (EmptyDatasetError, InvalidArgumentError) as error:
        raise type(error)(
            f"no plan can be made of this data and model: {error.message}", f"{error.hint}; or pass plan=…"
        ) from error
    return config, manager.durations or None


def _check_batches(plan: TrainingConfig, original: Side | None) -> None:
    if plan.device_count > 1:
        hint = "a benchmark is of one: plan with device_count=1"
        raise InvalidArgumentError(f"the plan is for {plan.device_count} GPUs", hint)
    if original is not None and original.effective_batch != plan.effective_batch_size:
        theirs, ours = original.effective_batch, plan.effective_batch_size
        raise InvalidArgumentError(
            f"a step of {original.name} has {theirs} clips, one of the plan {ours}",
            f"compare equal steps: plan with target_batch_size={theirs}",
        )


def _device(hardware: HardwareProfile) -> str:
    if hardware.gpus:
        return hardware.gpu_name
    model = hardware.cpu.model or platform.machine()
    return f"CPU {model}, {hardware.cpu.usable_cores:g} cores"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
