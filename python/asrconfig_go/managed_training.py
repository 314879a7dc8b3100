"""What a manager does with its plan: compare and explain it, guard and run its training."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ._core.batches import InputUnit
from ._core.checks import check_keywords
from ._core.declared import WeightRule
from ._core.modules import check_planned_adapters, lora_rank
from ._core.records import to_json
from ._core.settings import MAX_RETRIES, SAFETY_MARGIN
from .config import TrainingConfig
from .data.scan_result import DatasetProfile, ScanResult, usable_seconds
from .data.source import open_source
from .errors import InvalidArgumentError
from .predict.hardware import HardwareProfile, check_margin
from .predict.model_profile import ModelProfile

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .audio.loader_rate import LoaderRate
    from .data.labels import LabelReport
    from .guard.guard import Guard
    from .guard.guard_options import GuardSettings
    from .guard.training_report import TrainingReport
    from .plan.argument_check import PlannedTraining
    from .plan.explanation import Explanation
    from .plan.gpu_comparison import CompareSettings, Comparison, Prices
    from .trace.collated_batches import CollatedExamples
    from .trace.made_up_batches import BatchFunction
    from .train.training_check import TrainingCheck
    from .watch.callback import AdaptiveMemoryCallback
    from .watch.watch import WatchSettings


class ManagedTraining:
    """The profiles and the plan of one training, and what is done with them."""

    def __init__(self, *, safety_margin: float = SAFETY_MARGIN, gpu: str | None = None) -> None:
        check_margin(safety_margin)
        self._gpu, self.hardware = gpu, HardwareProfile.detect(gpu, safety_margin)
        self.dataset: DatasetProfile | None = None
        self.model: ModelProfile | None = None
        self.config: TrainingConfig | None = None
        self.report: TrainingReport | None = None
        self.durations: array[float] = array("d")
        """Seconds of every clip, not a number for bad ones; empty where a sample or a profile stands for them."""
        self.loader: LoaderRate | None = None
        """How fast one worker reads the profiled clips, once ``measure_loader`` was called."""
        self._prepared = False  # whether the loader was measured with a processor
        self._model: Any = None  # as the user passed it
        self._frozen = self._streamed = False
        self._examples: CollatedExamples | None = None  # rows collated by the user's collator
        self._unit: InputUnit | None = None  # of rows that hold a model's input
        self._scan: tuple[object, ScanResult] | None = None  # the profiled dataset, and its clips
        self._batch_fn: BatchFunction | None = None  # of the last plan
        self._rule: Callable[[Any], Any] | None = None  # of the last plan, if it is a function

    def what_if(
        self,
        gpus: Sequence[str] | None = None, *, prices: Prices | None = None, trace: bool | None = None,
        **options: Unpack[CompareSettings],
    ) -> Comparison:  # fmt: skip
        """Plan this training on other GPUs: memory, hours, cost and energy on each.

        Batch, optimizer, epochs and ``batch_fn`` are those of the plan, if there is one; CPU and RAM are those of this
        machine, and loader workers are as many as its cores allow.

        Args:
            gpus: Names of the catalogue such as ``"T4"`` and ``"2xT4"``; None for the whole catalogue.
            prices: Dollars per hour and GPU by name, or a JSON file of them; None for the built-in table.
            trace: Whether a training step of the model is recorded: see ``plan``.
            options: Options of ``compare_gpus``, which replace the settings of the plan.

        Returns:
            The plan on each GPU, as ``compare_gpus`` returns it.

        Raises:
            InvalidArgumentError: A profile is missing, or an option is out of range.
            NotFoundError: A GPU is not in the catalogue.
            UnsupportedError: No training step of the model is recorded, or can be.
        """
        from .guard.loss_table import knows_loss
        from .plan.gpu_comparison import compare_described
        from .plan.planner import Tracer

        dataset, model = self._profiles("compare")
        rank = lora_rank(self._model)
        if (planned := self.config) is not None:
            settings: CompareSettings = {
                "target_batch_size": planned.target_batch_size, "optimizer": planned.optimizer,
                "epochs": planned.num_train_epochs, "lora_rank": 0 if rank else planned.lora_rank,
            }  # fmt: skip
            options = {**settings, **options}
        options.setdefault("safety_margin", self.hardware.safety_margin)
        measured = {"hardware": to_json(self.hardware), **self._rates()}
        measured["loss_unknown"] = self._planned_rule() is None and not knows_loss(self._model)
        measured |= {"adapted": True, "lora_rank": rank} if rank else {}
        new_rank = options.get("lora_rank", 0)
        tracer = Tracer(self._model, trace, self._batch_fn, freeze=self._frozen, lora_rank=new_rank)
        return compare_described(
            model, tracer, {"profile": to_json(dataset)}, gpus=gpus, prices=prices, measured=measured,
            durations=usable_seconds(self.durations), **options,
        )  # fmt: skip

    def _profiles(self, purpose: str) -> tuple[DatasetProfile, ModelProfile]:
        if self.dataset is None or self.model is None:
            missing = "profile_dataset" if self.dataset is None else "profile_model"
            raise InvalidArgumentError(f"there is nothing to {purpose} yet", f"call manager.{missing}(…) first")
        return self.dataset, self.model

    def _rates(self) -> dict[str, float]:
        return {} if self.loader is None else {"loader_rate" if self._prepared else "decode_rate": self.loader.rate}

    def _planned_training(self) -> PlannedTraining | None:
        from .plan.argument_check import PlannedTraining

        longest = None if self.dataset is None else self.dataset.max_s
        return None if self.config is None else PlannedTraining(self.config, longest, self._batch_fn)

    @cached_property
    def _training_check(self) -> TrainingCheck:
        from .train.training_check import TrainingCheck

        return TrainingCheck()

    def explain(self, labels: LabelReport | None = None, *, guarded: bool = True) -> Explanation:
        """Explain the plan: ``print`` it, show it in a notebook, or ``save`` it as a page, JSON or text.

        Args:
            labels: The result of ``check_labels``. Clips whose texts do not fit are then among the cautions.
            guarded: Whether the training will have the guard, as by ``train`` and ``attach``. With False the cautions
                warn of what ``trainer.train()`` does differently from the plan.

        Returns:
            The explanation.

        Raises:
            InvalidArgumentError: There is no plan yet, or ``labels`` is something else.
        """
        from .plan.explanation import Explanation, config_of

        if self.config is None:
            raise InvalidArgumentError("there is no plan yet", "call create_optimal_config, or manager.plan()")
        model_config = config_of(self._model)
        return Explanation(self.config, self.hardware, self.dataset, self.model, labels, model_config, guarded)

    def callback(self, **options: Unpack[WatchSettings]) -> AdaptiveMemoryCallback:
        """Return a ``TrainerCallback`` that watches memory, warns at 90 % and cleans up at 95 %.

        Args:
            options: Options of ``AdaptiveMemoryCallback``, such as ``warn_at``; see docs/watching.md.

        Returns:
            The callback, to pass to the Trainer.

        Raises:
            InvalidArgumentError: An option is unknown or out of range.
        """
        from .watch.callback import AdaptiveMemoryCallback

        callback = AdaptiveMemoryCallback(self.config, **options)
        callback.managed, callback.planned = True, self._planned_training()
        return callback

    def attach(self, trainer: Any, **options: Unpack[GuardSettings]) -> Guard:
        """Guard the training steps of a Trainer: they recover from out-of-memory errors without changing the result.

        A plan whose ``micro_batching`` is ``"memory"`` has its batches split by predicted memory from the first step
        on, within the safety margin, with the steps of its ``length_handling`` (see ``StepSampler``). Where it is not
        known what the loss divides by, the Trainer's own batches stay. The guard takes the plan's ``rule``, unless one
        is passed. The plan's switches of cuDNN and of determinism are set. A second call returns the same guard; its
        ``detach()`` leaves the Trainer and the switches as they were.

        Args:
            trainer: The ``transformers.Trainer``.
            options: Options of ``Guard``. ``preflight=True`` tries clips as long as the longest profiled one.
                ``memory=True`` traces the model with the Trainer's settings and splits batches by predicted memory also
                without a plan that does so; ``memory=False`` keeps the Trainer's own batches.

        Returns:
            The guard.

        Raises:
            InvalidArgumentError: An option is unknown or out of range, there are options and the Trainer is guarded
                already, the plan trains adapters that the model does not have, or processes have different plans.
        """
        from .guard.attachment import attach, guard_of
        from .guard.guard_options import GuardSettings
        from .guard.micro_batches import traced_for
        from .plan.environment import TrainingSwitches
        from .train.planned_batches import check_same_plan, group_by_durations, memory_limit, use_planned_batches
        from .train.stream_training import use_stream
        from .train.trainer_reset import use_planned_checkpointing
        from .watch.watch_setup import check_arguments

        check_keywords(options, GuardSettings.__annotations__, "attach")
        first, config, durations = guard_of(trainer) is None, self.config, self._durations_of(trainer)
        check_planned_adapters(trainer.model, config.lora_rank if config else 0)
        if first:
            check_same_plan(trainer.args, config)
            if (rule := self._planned_rule()) is not None:
                options.setdefault("rule", rule)
        memory = options.pop("memory", None)
        split = config if memory is None and first and config and config.micro_batching == "memory" else None
        planned = self._planned_training()
        if options.get("preflight") is True and self.dataset is not None:
            options["preflight"] = self.dataset.max_s  # as long as the longest profiled clip
        with ExitStack() as undo, ExitStack() as unfinished:
            if split is not None:
                undo.callback(use_planned_checkpointing(trainer, split))
                options.setdefault("overhead_s", split.micro_batch_overhead_s)
                options.setdefault("host_s", split.micro_batch_host_s)
                options.setdefault("split_batch_statistics", True)  # as planned; the guard names the layers
            if memory is True or (split is not None and not split.fits_whole(trainer.args)):
                memory = traced_for(trainer, self._gpu, whole_steps=split is not None, batch_fn=self._batch_fn)
                longest_s = planned.longest_trained_s() if planned and split is not None else None
                limit = memory_limit(memory, trainer, config, self.hardware.safety_margin, longest_s)
                options.setdefault("memory_limit_bytes", limit)
            if memory:
                options["memory"] = memory
            guard = attach(trainer, **options)
            if first:
                unfinished.callback(guard.detach)
            if guard.knows_rule:  # else the Trainer's own batches stay, which may not fit with other checkpointing
                guard.on_detach(undo.pop_all().close)
            switches = TrainingSwitches(config)
            switches.set()
            guard.on_detach(switches.put_back)
            self._training_check.trainer(trainer, config, durations, strict=False)
            guard.on_detach(check_arguments(planned, trainer))
            if split is not None:
                guard.on_detach(use_planned_batches(guard, split, durations))
            guard.on_detach(use_stream(trainer))
            guard.on_detach(group_by_durations(trainer, config, durations))
            unfinished.pop_all()
        return guard

    def train(
        self,
        trainer: Any, *, resume: bool | str | os.PathLike[str] = False, max_retries: int = MAX_RETRIES,
        preflight: bool | float = False, save_by: str | None = None, profile: int | None = None, verbose: bool = True,
        **train_arguments: Any,
    ) -> Any:  # fmt: skip
        """Call ``trainer.train(…)`` so that it recovers from out-of-memory errors, and resumes exactly after a kill.

        A guard is attached for this call (see ``attach``). Where a step cannot be retried, training restarts from the
        last complete checkpoint of this run. See ``GuardedTraining`` for what stays the same. Afterwards, also after an
        exception, ``manager.report`` holds what happened.

        Args:
            trainer: The ``transformers.Trainer``.
            resume: Where to continue: True from the newest complete checkpoint in ``output_dir``, if there is one, with
                the run's effective batch; a path from that checkpoint; False to begin anew.
            max_retries: The most restarts from a checkpoint, 0 to 100.
            preflight: Whether the worst batches are tried before the first step: True with clips as long as the longest
                profiled one, a number with clips of so many seconds.
            save_by: The moment before which a checkpoint is saved and training stops: ``"11h30m"`` from now,
                ``"17:45"`` today, or ``"2026-03-01T06:30"``, by the clock of this machine where no time zone is named;
                None for no limit.
            profile: The number of optimizer steps that PyTorch's profiler records, 1 to 20, from the fourth on. It
                writes a Chrome trace, ``output_dir/asrconfig_profile.pt.trace.json``, and beside it a table of
                operators. None for no recording.
            verbose: Whether the report is printed at the end, also after an exception.
            train_arguments: Further arguments of ``trainer.train``.

        Returns:
            What ``trainer.train`` returns, a ``TrainOutput``.

        Raises:
            InvalidArgumentError: An argument is unknown or out of range, fewer steps remain than ``profile`` needs, or
                data, model and settings do not go together, so that no step could succeed.
            NotFoundError: The checkpoint to continue from does not exist, or the disk is full.
            StorageError: The disk or mount of ``output_dir`` does not answer.
            CorruptFileError: The checkpoint to continue from is damaged.
            InfeasiblePlanError: GPU memory ran out, and no smaller micro-batch or no restart is left.
        """
        from ._core.render import say
        from .guard.attachment import guard_of
        from .train.guarded_training import GuardedTraining
        from .train.resume import use_run_batch

        durations = self._durations_of(trainer)
        self._training_check.trainer(trainer, self.config, durations, strict=True, saves=save_by is not None)
        options: GuardSettings = {"preflight": preflight} if preflight else {}
        with ExitStack() as undo:
            if first := guard_of(trainer) is None:
                use_run_batch(trainer, resume)  # a plan's steps are made of it
            guard = self.attach(trainer, **options)
            if first:
                undo.callback(guard.detach)
            run = GuardedTraining(
                trainer, resume=resume, max_retries=max_retries, save_by=save_by, profile=profile, **train_arguments
            )
            try:
                return run.train()
            finally:
                self.report = run.report()
                say(verbose and trainer.is_world_process_zero(), "Training", self.report)

    def _durations_of(self, trainer: Any) -> array[float]:
        """The measured durations; none where the training set has its clips in another order."""
        from .train.planned_batches import is_in_order

        if not hasattr(trainer, "train_dataset"):
            raise InvalidArgumentError(f"{type(trainer).__name__} is not a Trainer", "pass a transformers.Trainer")
        if self._scan is None:  # the durations that are there were set for this training set
            return self.durations
        measured = open_source(self._scan[0]).train.data
        return self.durations if is_in_order(trainer.train_dataset, measured) else array("d")

    def _planned_rule(self) -> WeightRule | Callable[[Any], Any] | None:
        """What the loss divides by, as the plan has it; a function is only known to the manager that planned."""
        planned = self.config.rule if self.config is not None else None
        return self._rule if planned == "given" else planned

    def __repr__(self) -> str:
        parts = [self.hardware, self.dataset, self.model, self.config]
        return "\n\n".join(repr(part) for part in parts if part is not None)
