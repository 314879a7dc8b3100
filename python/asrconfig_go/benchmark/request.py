"""``benchmark_training``, which reads the original settings and checks its arguments before anything is measured."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import os
import platform
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core.checks import check_seed, checked, in_range
from .._core.files import read_object
from .._core.modules import versions
from .._core.out_of_memory import first_line
from .._core.output import kind_of, with_article
from .._core.requirements import imported, need
from .._core.settings import TARGET_BATCH_SIZE
from ..audio.collators import readable
from ..config import TrainingConfig
from ..errors import CorruptFileError, EmptyDatasetError, InvalidArgumentError, NotFoundError, UnsupportedError
from ..optimal import create_optimal_config
from ..plan.argument_names import named
from ..plan.training_arguments import arguments_of
from ..predict.hardware import HardwareProfile
from .benchmark_clips import checked_dataset, draw, durations_of, rows_of_arrays
from .benchmark_result import BenchmarkResult, Setting
from .measurements import ENOUGH_ROUNDS
from .sides import DEFAULTS, OPTIONS, PLAN, YOURS, Place, Side, batch_settings, most_workers

if TYPE_CHECKING:
    from datasets import Dataset
    from torch.nn import Module
    from transformers import DataCollator, ProcessorMixin, Trainer, TrainingArguments

    Original: TypeAlias = "TrainingArguments | TrainingConfig | Mapping[str, Any] | str | os.PathLike[str]"

_ROUNDS_OF_WORKERS = 2  # in a block; before that, each has handed over its first batch, all of which come at once
_FILE_HINT = "pass a plan's JSON, TrainingArguments.to_json_string in a file, or the training_args.bin of a checkpoint"
_TRUSTED = ("transformers.", "accelerate.")
_NOT_COMPARED = ("output_dir", "logging_dir", "overwrite_output_dir", "resume_from_checkpoint", "hub_token")
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
    """Measure the training of a model by a plan and by its original settings, with real Trainers.

    Both sides train the same ``steps`` × effective batch clips in blocks, each after ``warm_up`` steps that are not
    measured; blocks take turns, plan, original, plan, …, in ``rounds``. Then single changes to the plan are tried in
    the same way. Changes that run out of memory or fail are reported as such. Ctrl-C ends the benchmark with what was
    measured so far.

    Copies of the model are trained: its weights, random numbers and torch's switches stay.

    Args:
        model: The model to train.
        dataset: The Trainer's ``train_dataset``.
        collator: The Trainer's ``data_collator``; None for its default.
        original: What the model is trained with now: TrainingArguments, a plan, a dictionary of either's names, or a
            file of one (JSON, or ``training_args.bin``). None for the installed Trainer's defaults, with gradient
            accumulation where ``target_batch_size`` or ``plan`` asks for larger steps; where these run out of memory,
            the micro-batch is halved, and the result reports it.
        plan: The plan to measure; None to plan for this machine, with the original's effective batch.
        compare: Whether the original settings are measured.
        processor: The processor of the model, for the plan and the Trainers; None for none.
        target_batch_size: The clips of an optimizer step, 1 to 65536; None for those that ``plan`` or ``original``
            sets, else for the Trainer's default, or 32 without a comparison.
        steps: The optimizer steps of a block; more where they are too few for the loader's workers.
        rounds: The blocks of each side. Fewer than five draw no conclusion.
        warm_up: The steps before each block; more where they are too few for the loader's workers.
        loader: Whether the DataLoader is measured with other numbers of workers and of prefetched batches.
        sweep: The changes to try: names of ``OPTIONS`` as a list or separated by commas, ``"all"`` or ``"none"``. None
            for those that may help against the bottleneck of the plan.
        profile: A folder for traces by PyTorch's profiler; None for no traces.
        settings: TrainingArguments by name for both sides; None for none.
        trainer_class: The ``Trainer`` to use; None for that of transformers.
        seed: The seed by which clips are drawn, below 2**32.
        minutes: The limit of time in minutes from this call on, after which the benchmark ends with what was measured
            so far; None for no limit.
        name: The name of the model in the result; ``""`` for its class.
        progress: Whether to show progress.

    Returns:
        Both sides, the loader, the changes, and the bottleneck of the plan.

    Raises:
        InvalidArgumentError: A value is out of its range, the effective batches of plan and original differ, the plan
            is for several GPUs, the model has no trainable weights, or a step fails.
        NotFoundError: The file of ``original`` does not exist.
        CorruptFileError: The file of ``original`` has no settings.
        EmptyDatasetError: There are no usable clips.
        UnsupportedError: torch, transformers or accelerate is not installed, or too old to read ``original``.
    """
    from .runner import TimeBudget

    need("a benchmark", "torch", "transformers", "accelerate")
    trainer: type[Trainer] = trainer_class or imported("transformers", "a benchmark").Trainer
    from . import blocks
    from .runner import Benchmark, BenchmarkOptions

    _check_counts(steps=steps, rounds=rounds, warm_up=warm_up, target_batch_size=target_batch_size)
    choices = BenchmarkOptions(loader, _swept(sweep), blocks.checked_folder(profile), progress, TimeBudget(minutes))
    check_seed(seed)
    plan, durations = checked("plan", plan, TrainingConfig | None), None
    blocks.checked_model(model)
    checked_dataset(dataset)
    dataset = readable(dataset, collator)
    before = None
    if compare:
        wanted = target_batch_size if plan is None else plan.effective_batch_size
        before = default_side(wanted) if original is None else original_side(original)
    if plan is None:
        batch = (target_batch_size or TARGET_BATCH_SIZE) if before is None else before.effective_batch
        plan, durations = _planned(dataset, model, batch, processor, seed)
    _check_batches(plan, before, target_batch_size)
    both = named(settings or {})
    before = None if before is None else dataclasses.replace(before, settings={**before.settings, **both})
    hardware = HardwareProfile.detect()
    workers = most_workers(plan, before, choices.sweep, hardware.cpu.usable_cores)
    steps, warm_up = max(steps, _ROUNDS_OF_WORKERS * workers), max(warm_up, workers)
    sample = draw(dataset, durations_of(dataset, durations), steps, plan.effective_batch_size, plan.max_length_s, seed)
    options = blocks.processor_option(trainer, processor)
    bench = blocks.Bench(model, sample, collator, trainer, options, seed, warm_up)
    setting = Setting(
        model=name or type(model).__name__, device=_device(hardware),
        versions={"python": platform.python_version(), **versions(_PACKAGES)},
        date=datetime.datetime.now(tz=datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"), epoch_clips=sample.population,
        effective_batch=sample.effective_batch, steps=steps, rounds=rounds, warm_up=warm_up, seed=seed,
        minutes=minutes,
    )  # fmt: skip
    place = Place.here(hardware.cpu.usable_cores)
    with blocks.off_the_gpu(model), blocks.old_objects_aside(), blocks.nothing_left_behind():
        return Benchmark(bench, Side(PLAN, both, plan), before, setting, place, choices).run()


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None:
            in_range(name, value, 1, 65_536, "leave it out for the usual", int)


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


def _check_batches(plan: TrainingConfig, original: Side | None, wanted: int | None) -> None:
    if plan.device_count > 1:
        hint = "a benchmark is of one: plan with device_count=1"
        raise InvalidArgumentError(f"the plan is for {plan.device_count} GPUs", hint)
    if original is not None and original.effective_batch != plan.effective_batch_size:
        theirs, ours = original.effective_batch, plan.effective_batch_size
        raise InvalidArgumentError(
            f"a step of {original.name} has {theirs} clips, one of the plan {ours}",
            f"compare equal steps: plan with target_batch_size={theirs}",
        )
    if wanted not in (None, plan.effective_batch_size):
        raise InvalidArgumentError(
            f"target_batch_size = {wanted}, and a step has {plan.effective_batch_size} clips",
            "leave target_batch_size out: the steps are those of the settings or the plan",
        )


def default_side(effective_batch: int | None) -> Side:
    """The settings of the installed Trainer's defaults, accumulated to ``effective_batch`` where one is given.

    Raises ``InvalidArgumentError`` where only micro-batches of a single clip add up to that batch.
    """
    side = Side(DEFAULTS, {})
    usual, accumulated = side.batch
    if effective_batch in (None, side.effective_batch):
        return side
    batch = max(n for n in range(1, usual + 1) if effective_batch % n == 0)
    if batch == 1 < effective_batch:
        raise InvalidArgumentError(
            f"the Trainer's default batch of {usual} makes no steps of {effective_batch} clips, but one clip at a time",
            f"choose a multiple of {usual}, or pass the settings that you train with (--args FILE, original=…)",
        )
    new = batch_settings(batch, effective_batch // batch)
    reason = f"{usual} × {accumulated} makes no steps of {effective_batch} clips"
    return Side(DEFAULTS, new, adapted=reason)


def original_side(original: Original) -> Side:
    """The side of an original configuration.

    It is TrainingArguments, a plan, a dictionary with the names of either, or a file (JSON, ``training_args.bin``).
    Raises ``InvalidArgumentError`` for anything else and for unknown names, ``NotFoundError`` for a missing
    file and ``CorruptFileError`` for one that holds no settings.
    """
    if isinstance(original, str | os.PathLike):
        original = read_settings(original)
    if isinstance(original, Mapping) and "schema_version" in original:
        original = TrainingConfig.from_dict(dict(original))
    if isinstance(original, TrainingConfig):
        return Side(YOURS, {}, original)
    if isinstance(original, Mapping):
        usual = arguments_of({}, "out").to_dict()  # all of which to_json_string writes, some under two names
        return Side(YOURS, _changed(original, usual))
    if not dataclasses.is_dataclass(original) or not hasattr(original, "per_device_train_batch_size"):
        raise InvalidArgumentError(
            f"original = {type(original).__name__} holds no training settings",
            "pass TrainingArguments, a TrainingConfig, a dictionary of their names, or a file of one",
        )
    return Side(YOURS, _changed_arguments(original), arguments_class=type(original))


def _changed_arguments(arguments: TrainingArguments) -> dict[str, Any]:
    kind = type(arguments)
    try:
        usual = arguments_of({}, arguments.output_dir, kind)
    except TypeError as error:
        raise InvalidArgumentError(
            f"{with_article(kind.__name__)} cannot be made again: {error}", "pass a dictionary"
        ) from error
    names = [field.name for field in dataclasses.fields(arguments) if field.init and hasattr(arguments, field.name)]
    return _changed({name: getattr(arguments, name) for name in names}, vars(usual), kind)


def _changed(
    settings: Mapping[str, Any], usual: Mapping[str, Any], kind: type[TrainingArguments] | None = None
) -> dict[str, Any]:
    """What differs from the defaults, each setting once: newer versions keep some under an older name as well."""
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in _NOT_COMPARED and (name not in usual or value != usual[name]):
            changed |= named({name: value}, kind)
    return changed


def read_settings(path: str | os.PathLike[str]) -> Any:
    """A JSON object, or the TrainingArguments of a ``.bin`` file as the Trainer saves it.

    Raises ``NotFoundError`` for a file that cannot be read, ``CorruptFileError`` for one that holds something else.
    """
    if Path(path).suffix.lower() != ".bin":
        return read_object(path, "settings", _FILE_HINT)
    if not Path(path).is_file():
        raise NotFoundError(f"cannot read the settings {os.fspath(path)!r}: there is no such file", _FILE_HINT)
    return _unpickled(Path(path))


def _unpickled(path: Path) -> Any:
    """Only settings of transformers and accelerate are made of it: a pickle could run anything."""
    import torch

    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        hint = "save the settings by TrainingArguments.to_json_string"
        raise UnsupportedError(f"reading {path} requires torch 2.6", hint)
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        with torch.serialization.safe_globals([_settings_class(name) for name in names]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CorruptFileError(f"{path} holds no TrainingArguments: {first_line(error)}", _FILE_HINT) from error
    if not is_dataclass(arguments):
        raise CorruptFileError(f"{path} holds no TrainingArguments, but {kind_of(arguments)}", _FILE_HINT)
    return arguments


def _settings_class(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    kind = getattr(importlib.import_module(module), attribute) if module.startswith(_TRUSTED) else None
    if isinstance(kind, type) and (
        is_dataclass(kind) or issubclass(kind, enum.Enum) or name == "accelerate.state.PartialState"
    ):
        return kind
    raise ValueError(f"it names {name}, which holds no settings")


def _device(hardware: HardwareProfile) -> str:
    if hardware.gpus:
        return hardware.gpu_name
    model = hardware.cpu.model or platform.machine()
    return f"CPU {model}, {hardware.cpu.usable_cores:g} cores"
