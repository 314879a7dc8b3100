"""Measure, plan, emit, step by step: ``ASRConfigManager``."""

from __future__ import annotations

import os
import shutil
import warnings
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._base.adapters import check_task_type
from ._base.choices import DurationUnit, Precision, WeightRule
from ._base.defaults import MAX_RETRIES, SAFETY_MARGIN, SAMPLING_RATE
from ._base.errors import AsrConfigError, InfeasiblePlanError, InvalidArgumentError
from ._base.input_units import InputUnit
from ._base.keywords import check_keywords
from ._base.records import to_json
from ._base.shared_memory import free_shared_memory
from ._base.weight_precision import IN_32_BIT, half_weights, half_words
from ._base.wrapped_model import lora_rank
from .config import TrainingConfig
from .data.durations import DurationSettings, add_durations
from .data.prepared_rows import examples_of, row_seconds
from .data.scan import DatasetProfile, ScanResult, ScanSettings, scan_audio
from .data.stream_sources import is_remote
from .machine.hardware import HardwareProfile, check_margin
from .machine.model import profile_model
from .machine.model_profile import ModelProfile
from .plan.plan_options import PlanOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .apply.argument_check import PlannedTraining
    from .compare.comparison_records import Comparison
    from .compare.gpu_comparison import CompareSettings, Prices
    from .data.labels import LabelReport
    from .explain import Explanation
    from .guard import Guard
    from .guard.guard import GuardSettings
    from .guard.training_report import TrainingReport
    from .loading.loader_rate import LoaderRate, LoaderSettings
    from .monitor.memory_callback import AdaptiveMemoryCallback
    from .monitor.watch_options import WatchSettings
    from .plan.planner import NotTraced, Tracer
    from .trace.collated_batches import CollatedExamples
    from .training.training_check import TrainingCheck


class ASRConfigManager:
    """Holds the measured profiles and the plan, and accompanies the training.

    ``gpu`` plans for a GPU of the catalogue (``"T4"``, ``"2xA100-40GB"``) instead of the local one.

    >>> manager = ASRConfigManager(gpu="T4")
    >>> dataset = manager.profile_dataset(CLIPS, progress=False)
    >>> model = manager.profile_model("wav2vec2-base")
    >>> manager.plan(trace=False).effective_batch_size
    32
    """

    def __init__(self, *, safety_margin: float = SAFETY_MARGIN, gpu: str | None = None) -> None:
        check_margin(safety_margin)
        self.hardware: HardwareProfile = HardwareProfile.detect(gpu, safety_margin)
        self._gpu = gpu
        self.dataset: DatasetProfile | None = None
        self.model: ModelProfile | None = None
        self.config: TrainingConfig | None = None
        self.report: TrainingReport | None = None
        self.durations: array[float] = array("d")
        """Seconds of every clip, not a number for bad ones; empty where a sample or a profile stands for them."""
        self.loader: LoaderRate | None = None
        """How fast one worker reads the profiled clips, once ``measure_loader`` was called."""
        self._prepared = False  # by a processor, when that was measured
        self._model: Any = None  # as it was given
        self._frozen = self._streamed = False
        self._examples: CollatedExamples | None = None  # rows that the given collator has made input
        self._unit: InputUnit | None = None  # of rows that hold a model's input
        self._batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None  # of the last plan
        self._rule: Callable[[Any], Any] | None = None  # of the last plan, where a function gives it
        self._checked: TrainingCheck | None = None  # once there was something to look at

    def profile_dataset(
        self, dataset: Any, sample_size: int | None = None, **options: Unpack[ScanSettings]
    ) -> DatasetProfile:
        """Measure ``dataset`` (see ``scan_audio``): every file, or a random sample of ``sample_size``.

        A ``collator`` makes the batches of the trace, too. ``model`` is the profiled one, if not given.
        The result of ``scan_audio`` is taken as it is.
        """
        check_keywords(options, ScanSettings.__annotations__, "profile_dataset")
        options.setdefault("model", self._model)
        source = dataset.source if isinstance(dataset, ScanResult) else dataset
        options["collator"] = self._examples = examples_of(source, options.get("collator"), options["model"])
        self.durations, self._unit = array("d"), None
        self._streamed = _is_stream(source)
        if isinstance(dataset, DatasetProfile):
            self.dataset = dataset
            return dataset
        scanned = scan_audio(dataset, sample_size=sample_size, **options)
        self._unit = scanned.unit
        if not scanned.profile.sampled:
            self.durations = scanned.durations
        self.dataset = scanned.profile
        return self.dataset

    def measure_loader(
        self, dataset: Any, *, processor: Any = None, remember: bool = False, **options: Unpack[LoaderSettings]
    ) -> LoaderRate | None:
        """Decode some clips of ``dataset`` to know how many workers keep the GPU fed (see ``measure_loader``).

        Without a ``processor`` only decoding is measured, and what the rest takes stays an assumption. None, with a
        warning where something went wrong, when nothing can be measured. ``remember`` takes what was found in the last
        day for the same path with the same clips, which must be the profiled ones, processor and machine.
        """
        from .loading import LoaderNotMeasuredWarning, measure_loader
        from .loading.loader_rate import LoaderSettings
        from .loading.remembered_rates import Measured

        check_keywords(options, LoaderSettings.__annotations__, "measure_loader")
        known = Measured(dataset, self.dataset, self.durations, self.hardware.cpu, processor, dict(options))
        if self._unit is not None:
            options.setdefault("row_seconds", partial(row_seconds, unit=self._unit, examples=self._examples))
        try:
            self.loader = known.find() if remember else None
            if self.loader is None:
                self.loader = measure_loader(dataset, processor=processor, **options)
                if self.loader is not None:
                    known.store(self.loader)
        except AsrConfigError as error:
            self.loader = None
            warnings.warn(f"the loader was not measured: {error.message}", LoaderNotMeasuredWarning, stacklevel=2)
        self._prepared = processor is not None
        return self.loader

    def add_durations(
        self, dataset: Any, column: str = "length", unit: DurationUnit = "samples", **options: Unpack[DurationSettings]
    ) -> Any:
        """``dataset`` with every clip's length in a ``column`` for ``group_by_length`` (see ``add_durations``)."""
        check_keywords(options, DurationSettings.__annotations__, "add_durations")
        return add_durations(dataset, column, unit, **options)

    def profile_model(
        self, model: Any, *, name: str | None = None, freeze_feature_encoder: bool = False
    ) -> ModelProfile:
        """Count the parameters of ``model`` (see ``profile_model``); ``name`` is only a label."""
        if half_weights(model) == "float16":
            raise InvalidArgumentError(half_words(model, "float16"), IN_32_BIT)
        found = profile_model(model, freeze_feature_encoder=freeze_feature_encoder)
        self._model, self._frozen = model, freeze_feature_encoder
        self.model = replace(found, name=name) if name else found
        return self.model

    def plan(
        self,
        options: PlanOptions | None = None,
        *,
        trace: bool | None = None,
        batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None,
        progress: bool = False,
    ) -> TrainingConfig:
        """Plan from the profiles measured before; raises ``InvalidArgumentError`` when one is missing.

        ``trace`` records a training step of the model on a GPU that need not be there, so that memory is known exactly.
        Of known models recordings come with the package: None takes one that shows what the installed packages do, and
        False records nothing else: other models are then planned by the published formula.
        ``batch_fn(batch, length, labels)`` makes the batches of a module whose input is not that of a speech model: its
        keyword arguments as tensors, for clips of ``length`` samples of audio at 16 kHz (of rows that hold a model's
        input, of its own frames or tokens) and texts of ``labels`` tokens. Without it, the collator that the dataset
        was profiled with makes them, if any.
        """
        from .apply.memory_savings import add_savings, savings_in_hint
        from .plan.known_loss import knows_loss
        from .plan.planner import Tracer, plan, usable

        if self.dataset is None or self.model is None:
            missing = "profile_dataset" if self.dataset is None else "profile_model"
            raise InvalidArgumentError("there is nothing to plan from yet", f"call manager.{missing}(…) first")
        options = options or PlanOptions(safety_margin=self.hardware.safety_margin)
        given = options.given() | self._adapters(options)
        tracer = self._tracer(trace, options, batch_fn := self._batches(batch_fn), progress)
        request = {
            "hardware": to_json(self.hardware),
            "dataset": to_json(self.dataset),
            "model": to_json(self.model),
            "options": {
                **self._found(options.precision, given["lora_rank"], "kernel_profile" in given),
                **given,
                "freeze_feature_encoder": self._frozen,
                "streamed": self._streamed,
                "loss_unknown": not knows_loss(self._model),
                **({"any_depth": False, "can_offload": False} if not self._records(trace) else {}),
            },
        }
        self._batch_fn = batch_fn
        try:
            made = plan(request, usable(self.durations), tracer)
        except InfeasiblePlanError as error:
            if isinstance(tracer, Tracer) and (settings := tracer.last_settings):
                savings_in_hint(error, self._model, batch_fn, settings, self._gpu)
            raise
        if stored := half_weights(self._model):
            made["warnings"] = [*made["warnings"], f"{half_words(self._model, stored)} → {IN_32_BIT}"]
        self.config = TrainingConfig.from_dict(made)
        self._rule = options.rule if callable(options.rule) else None
        if isinstance(tracer, Tracer):
            add_savings(self._model, batch_fn, self.config, self._gpu, options.lora_rank)
        return self.config

    def _adapters(self, options: PlanOptions) -> dict[str, Any]:
        """The LoRA of a model that is passed with its adapters; the published policy knows none."""
        check_task_type(self._model)
        rank = lora_rank(self._model)
        if rank and options.lora_rank:
            raise InvalidArgumentError(f"the model has adapters of rank {rank} already", "leave lora_rank out")
        return {"lora_rank": rank, "adapted": True} if rank and options.policy == "fastest" else {}

    def _batches(
        self, batch_fn: Callable[[int, int, int], dict[str, Any]] | None
    ) -> Callable[[int, int, int], dict[str, Any]] | None:
        """What makes the batches of a trace: the function that was given, or the collator; None for what fits."""
        if batch_fn is None and self._examples is not None:
            return self._examples.batches(() if self._unit else self.durations)
        if batch_fn is None or self._unit is None or self._unit.per_second == SAMPLING_RATE or not callable(batch_fn):
            return batch_fn
        from .trace import SpeechBatches

        return SpeechBatches(batch_fn, self._unit.per_second, self._unit.fixed)

    def _tracer(
        self,
        trace: bool | None,
        options: PlanOptions,
        batch_fn: Callable[[int, int, int], dict[str, Any]] | None,
        progress: bool,
    ) -> Tracer | NotTraced:
        """What traces the model, or why nothing does."""
        from .plan.planner import Tracer

        if (missing := self._untraced(trace, options)) is not None:
            return missing
        return Tracer(
            self._model,
            gpu=self._gpu,
            freeze=self._frozen,
            lora_rank=options.lora_rank,
            progress=progress,
            record=trace if self._records(trace) else False,
            batch_fn=batch_fn if self._records(trace) else None,
        )

    @staticmethod
    def _records(trace: bool | None) -> bool:
        """Whether a training step is recorded where no recording is known."""
        from .machine.model_source import can_trace

        return trace is not False and can_trace()

    def _untraced(self, trace: bool | None, options: PlanOptions) -> NotTraced | None:
        """Why the model is not traced; None where it is."""
        from .machine.model_source import is_module
        from .plan.planner import NotTraced

        if isinstance(self._model, ModelProfile):
            return NotTraced("only its counts are known", "Pass the model instead of its profile.")
        if trace is False and is_module(self._model):
            return NotTraced("trace=False was asked for", "Leave trace out.")
        return None

    def _found(self, precision: Precision | None, rank: int, profiled: bool) -> dict[str, Any]:
        """Values that no option sets: measured rates, the GPU's price, the disk space for checkpoints.

        Where the user names a table of kernels (``profiled``), no other measurement of the GPU stands in its way.
        """
        from .compare.gpu_comparison import price_of
        from .compare.step_calibration import known_calibrations
        from .machine.kernel_profile import known_kernel_profiles

        found: dict[str, Any] = {"disk_free_bytes": shutil.disk_usage(Path.cwd()).free, **self._rates()}
        found["shm_free_bytes"] = free_shared_memory()
        if self.hardware.gpus:
            found["kernel_profiles"] = known_kernel_profiles()
        if self.hardware.gpus and self.model is not None and not profiled:
            measured = known_calibrations(self.model, precision, rank).get(self.hardware.gpus[0].name)
            if measured is not None:
                found["calibration"] = to_json(measured)
        if self.hardware.gpus and (price := price_of(self.hardware.gpus[0])) is not None:
            found["price_usd_hour"] = price
        return found

    def _rates(self) -> dict[str, float]:
        """Seconds of audio a second of one loader worker, as far as it was measured."""
        return {} if self.loader is None else {"loader_rate" if self._prepared else "decode_rate": self.loader.rate}

    def what_if(
        self,
        gpus: Sequence[str] | None = None,
        *,
        prices: Prices | None = None,
        trace: bool | None = None,
        **options: Unpack[CompareSettings],
    ) -> Comparison:
        """Plan this training on other ``gpus`` (see ``compare_gpus``): memory, hours, cost, energy on each.

        The batch, the optimizer, the epochs and ``batch_fn`` are those of the plan, if there is one, and the CPU and
        RAM those of this machine. ``options`` are the others of ``compare_gpus``. Raises ``InvalidArgumentError``
        before both profiles are measured.
        """
        from .compare.gpu_comparison import TracedModel, compare_described
        from .plan.known_loss import knows_loss
        from .plan.planner import usable

        if self.dataset is None or self.model is None:
            missing = "profile_dataset" if self.dataset is None else "profile_model"
            raise InvalidArgumentError("there is nothing to compare yet", f"call manager.{missing}(…) first")
        if self.config is not None:
            planned = self.config
            asked: CompareSettings = {
                "target_batch_size": planned.target_batch_size,
                "optimizer": planned.optimizer,
                "epochs": planned.num_train_epochs,
                "lora_rank": 0 if lora_rank(self._model) else planned.lora_rank,
            }
            options = {**asked, **options}
        options.setdefault("safety_margin", self.hardware.safety_margin)
        unknown = self._planned_rule() is None and not knows_loss(self._model)
        adapted = {"adapted": True, "lora_rank": rank} if (rank := lora_rank(self._model)) else {}
        return compare_described(
            self.model,
            TracedModel(self._model, self._frozen, trace, self._batch_fn, options.get("lora_rank", 0)),
            {"profile": to_json(self.dataset)},
            gpus=gpus,
            prices=prices,
            measured={"hardware": to_json(self.hardware), **self._rates(), "loss_unknown": unknown, **adapted},
            durations=usable(self.durations),
            **options,
        )

    def _check_adapters(self, trainer: Any) -> None:
        """Raise ``InvalidArgumentError`` for adapters that cannot train, and where the plan's are not there."""
        check_task_type(trainer.model)
        rank = self.config.lora_rank if self.config else 0
        if rank and not lora_rank(trainer.model):
            raise InvalidArgumentError(
                f"the plan trains adapters of rank {rank}, and the Trainer's {type(trainer.model).__name__} has none",
                f"make them before the Trainer: model = asrconfig_go.apply.add_lora(model, {rank})",
            )

    def _planned_training(self) -> PlannedTraining | None:
        """The plan with what it was made for."""
        from .apply.argument_check import PlannedTraining

        longest = None if self.dataset is None else self.dataset.max_s
        return None if self.config is None else PlannedTraining(self.config, longest, self._batch_fn)

    def _training_check(self) -> TrainingCheck:
        """What looks at data, model and settings before the first step, and says each finding once."""
        from .training.training_check import TrainingCheck

        self._checked = self._checked or TrainingCheck()
        return self._checked

    def _check_arguments(self, trainer: Any) -> Callable[[], None]:
        """Say what of the Trainer's arguments is not as planned, unless that was said; gives the way back."""
        from ._base.override import CHECKED_KEY, override
        from .monitor.messages import say_unplanned

        planned, handler = self._planned_training(), trainer.callback_handler
        if planned is None or getattr(handler, CHECKED_KEY, False):
            return lambda: None
        if trainer.is_world_process_zero():
            say_unplanned(planned, trainer.args, trainer.model, planned.config.micro_batching == "memory")
        return override(handler, CHECKED_KEY, True)

    def save_config(self, config: TrainingConfig, path: str | os.PathLike[str]) -> None:
        """Write ``config`` as JSON, whole or not at all."""
        config.save(path)

    def load_config(self, path: str | os.PathLike[str]) -> TrainingConfig:
        """Read a configuration; unknown keys and newer schemas are refused with a hint."""
        self.config = TrainingConfig.load(path)
        return self.config

    def explain(self, labels: LabelReport | None = None, *, guarded: bool = True) -> Explanation:
        """The whole plan for people: ``print`` it, show it in a notebook, or ``save`` it as a page, JSON or text.

        ``labels`` is what ``check_labels`` found; clips whose texts do not fit are then named among the cautions.
        ``guarded=False`` warns of what ``trainer.train()`` without the guard does otherwise than the plan. Raises
        ``InvalidArgumentError`` before there is a plan.
        """
        from .explain import Explanation
        from .explain.loss_profile import config_of

        known = config_of(self._model)
        return Explanation(self._planned(), self.hardware, self.dataset, self.model, labels, known, guarded)

    def callback(self, **options: Unpack[WatchSettings]) -> AdaptiveMemoryCallback:
        """A ``TrainerCallback`` that watches memory, warns at 90 % and cleans up at 95 %.

        ``options`` are those of ``AdaptiveMemoryCallback``: ``warn_at``, ``clean_at``, ``cooldown_s``, ``progress``,
        ``panel``, ``memory`` and others. See docs/watching.md.
        """
        from .monitor.memory_callback import AdaptiveMemoryCallback

        callback = AdaptiveMemoryCallback(self.config, **options)
        callback.managed, callback.planned = True, self._planned_training()
        return callback

    def attach(self, trainer: Any, **options: Unpack[GuardSettings]) -> Guard:
        """Guard the training steps of a ``transformers.Trainer``: they survive running out of GPU memory, exactly.

        ``options`` are those of ``Guard``; ``preflight=True`` tries clips as long as the longest of the profiled
        dataset, and ``memory=True`` traces the model with the trainer's own settings, so that batches are split by
        predicted memory from the first step on, within the safety margin. A plan whose ``micro_batching`` is
        ``"memory"`` does so automatically, and makes the steps of its ``length_handling`` (see ``StepSampler``);
        ``memory=False`` keeps the Trainer's own batches, as does a loss whose rule is not known. The guard takes the
        plan's ``rule``, unless one is given here. A second call gives the same guard; its ``detach()`` leaves the
        Trainer as it was.
        """
        from .guard import attach, guard_of
        from .guard.guard import GuardSettings
        from .guard.memory_budget import traced_for
        from .streams.stream_training import use_stream
        from .training.length_groups import group_by_durations
        from .training.planned_batches import memory_limit, use_planned_batches

        check_keywords(options, GuardSettings.__annotations__, "attach")
        self._check_adapters(trainer)
        if guard_of(trainer) is None and (rule := self._planned_rule()) is not None:
            options.setdefault("rule", rule)
        asked, config = options.pop("memory", None), self.config
        planned = (
            asked is None and guard_of(trainer) is None and config is not None and config.micro_batching == "memory"
        )
        whole = planned and config is not None and _fits_whole(trainer, config)  # then nothing needs to be split
        if asked is True or (planned and not whole):
            options["memory"] = traced_for(trainer, self._gpu, whole_steps=planned, batch_fn=self._batch_fn)
            limit = memory_limit(options["memory"], trainer, config, self.hardware.safety_margin)
            options.setdefault("memory_limit_bytes", limit)
        elif asked:
            options["memory"] = asked
        if "preflight" in options:
            options["preflight"] = self._longest(options["preflight"])
        if planned and config is not None:
            options.setdefault("overhead_s", config.micro_batch_overhead_s)
            options.setdefault("split_batch_statistics", True)  # as planned; the guard names the layers
        guard = attach(trainer, **options)
        self._training_check().trainer(trainer, self.config, self.durations, strict=False)
        guard.on_detach(self._check_arguments(trainer))
        if planned and config is not None:
            memory, limit = options.get("memory"), options.get("memory_limit_bytes")
            guard.on_detach(use_planned_batches(trainer, config, self.durations, memory, limit))
        guard.on_detach(use_stream(trainer))
        guard.on_detach(group_by_durations(trainer, config, self.durations))
        return guard

    def train(
        self,
        trainer: Any,
        *,
        resume: bool | str | os.PathLike[str] = False,
        max_retries: int = MAX_RETRIES,
        preflight: bool | float = False,
        save_by: str | None = None,
        profile: int | None = None,
        verbose: bool = True,
        **train_arguments: Any,
    ) -> Any:
        """``trainer.train(…)`` that survives running out of GPU memory, and resumes exactly when it was killed.

        Attaches a guard for as long as it lasts (see ``attach``; ``preflight`` is handed to it). Where no step can be
        computed again, training restarts from the last complete checkpoint of this run, at most ``max_retries`` times.
        ``resume=True`` continues from the newest complete checkpoint in ``output_dir``, if there is one, with the run's
        effective batch; a path from that one. See ``GuardedTraining`` for what stays the same.
        ``save_by`` saves a checkpoint and stops before a moment, such as the end of a notebook's session: ``"11h30m"``
        from now, ``"17:45"`` today, or ``"2026-03-01T06:30"``; the same call with ``resume=True`` continues.

        ``profile``, 1 to 20, records that many optimizer steps by PyTorch's profiler, from the fourth on: a Chrome
        trace in ``output_dir/asrconfig_profile.pt.trace.json``, and beside it a table of operators by their own time.
        Raises ``InvalidArgumentError`` for other numbers, and where fewer steps are left than it needs.

        What was met is in ``report``, and printed in the end if ``verbose``, also when an exception ends it.
        """
        from .apply.torch_backends import TrainingSwitches
        from .guard import guard_of
        from .training.guarded_training import GuardedTraining
        from .training.length_groups import group_by_durations
        from .view.units import say

        self._check_adapters(trainer)
        self._training_check().trainer(trainer, self.config, self.durations, strict=True, saves=save_by is not None)
        switches = TrainingSwitches(self.config)
        options: GuardSettings = {"preflight": preflight} if preflight else {}
        split = self.config is not None and self.config.micro_batching == "memory"
        planned = guard_of(trainer) is None and (split or self._planned_rule() is not None)
        unchecked, guard = self._check_arguments(trainer), None
        ungrouped = group_by_durations(trainer, self.config, self.durations)
        try:
            guard = self.attach(trainer, **options) if planned else None
            tried = False if planned else self._longest(preflight)
            run = GuardedTraining(
                trainer,
                resume=resume,
                max_retries=max_retries,
                preflight=tried,
                save_by=save_by,
                profile=profile,
                **train_arguments,
            )
            switches.set()  # the callback does so too, but it may not be there
            try:
                return run.train()
            finally:
                self.report = run.report()
                say(verbose and trainer.is_world_process_zero(), "Training", self.report)
        finally:
            switches.put_back()
            if guard is not None:
                guard.detach()
            ungrouped()
            unchecked()

    def _planned_rule(self) -> WeightRule | Callable[[Any], Any] | None:
        """What the loss divides by, as the plan was given it; a function is only known to the manager that planned."""
        planned = self.config.rule if self.config is not None else None
        return self._rule if planned == "given" else planned

    def _longest(self, preflight: bool | float) -> bool | float:
        """What a requested pre-flight tries: the longest clip of the profiled dataset, if there is one."""
        return self.dataset.max_s if preflight is True and self.dataset is not None else preflight

    def _planned(self) -> TrainingConfig:
        if self.config is None:
            raise InvalidArgumentError("there is no plan yet", "call create_optimal_config, or manager.plan()")
        return self.config

    def __repr__(self) -> str:
        parts = [self.hardware, self.dataset, self.model, self.config]
        return "\n\n".join(repr(part) for part in parts if part is not None)


def _is_stream(dataset: Any) -> bool:
    """Whether clips can only be read one after the other, as of datasets' streams, their dictionaries and addresses."""
    if isinstance(dataset, str | list):
        first = dataset[0] if isinstance(dataset, list) and dataset else dataset
        return isinstance(first, str) and is_remote(first)
    parts = dataset.values() if isinstance(dataset, dict) else (dataset,)
    return any(hasattr(part, "__iter__") and not hasattr(part, "__len__") for part in parts)


def _fits_whole(trainer: Any, config: TrainingConfig) -> bool:
    """Whether every process's whole share of a step fits at once, by the plan."""
    even: int = trainer.args.train_batch_size * trainer.args.gradient_accumulation_steps
    return config.micro_batch_size >= max([even, *(device.samples for device in config.devices)])
