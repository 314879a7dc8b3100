"""Measure, plan and train, step by step: ``ASRConfigManager``."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ._core.checks import check_keywords
from ._core.modules import IN_32_BIT, adapter_options, half_weights, half_words
from ._core.records import to_json
from ._core.settings import DurationUnit
from .config import TrainingConfig
from .data.scan import DurationSettings, ScanSettings, add_durations, scan_audio
from .data.scan_result import DatasetProfile, usable_seconds
from .data.scan_rows import examples_of, row_seconds
from .data.source import open_source
from .errors import InfeasiblePlanError, InvalidArgumentError
from .managed_training import ManagedTraining
from .plan.plan_options import PlanOptions
from .predict.model_profile import ModelProfile, profile_model

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .audio.loader_rate import LoaderRate, LoaderSettings


class ASRConfigManager(ManagedTraining):
    """Measures, plans and accompanies one training, and holds the profiles and the plan.

    ``create_optimal_config`` makes one and calls its methods in this order.

    Args:
        safety_margin: The share of GPU memory that plans may use, 0.70 to 0.95.
        gpu: A GPU of the catalogue to plan for, such as ``"T4"`` or ``"2xA100-40GB"``; None for this machine's.

    Attributes:
        hardware: The profile of the machine that is planned for.
        dataset: The profile of the dataset; None before ``profile_dataset``.
        model: The profile of the model; None before ``profile_model``.
        config: The plan; None before ``plan`` or ``load_config``.
        report: The report of the last training; None before ``train``.

    Raises:
        InvalidArgumentError: ``safety_margin`` is out of range.
        NotFoundError: ``gpu`` is not in the catalogue.

    Example:
        >>> manager = ASRConfigManager(gpu="T4")
        >>> dataset = manager.profile_dataset(CLIPS, progress=False)
        >>> model = manager.profile_model("wav2vec2-base")
        >>> manager.plan(trace=False).effective_batch_size
        32
    """

    def profile_dataset(
        self, dataset: Any, sample_size: int | None = None, **options: Unpack[ScanSettings]
    ) -> DatasetProfile:
        """Measure the clips of a dataset, without decoding them.

        Args:
            dataset: What ``scan_audio`` takes. Its result and a ``DatasetProfile`` are taken as they are.
            sample_size: The number of randomly chosen clips to measure; None for all, of a stream for 200.
            options: Options of ``scan_audio``. ``model`` defaults to the profiled one. ``collator``, the Trainer's,
                makes the batches of the recorded training step, too.

        Returns:
            The profile, also held as ``manager.dataset``.

        Raises:
            NotFoundError: The dataset does not exist.
            EmptyDatasetError: No clip is usable.
            InvalidArgumentError: An option is unknown or out of range.
        """
        check_keywords(options, ScanSettings.__annotations__, "profile_dataset")
        options.setdefault("model", self._model)
        source = open_source(dataset)
        options["collator"] = self._examples = examples_of(source.data, options.get("collator"), options["model"])
        self.durations, self._unit, self._scan = array("d"), None, None
        self._streamed = source.is_stream
        if source.kind == "profile":
            self.dataset = source.data
        else:
            scanned = scan_audio(dataset, sample_size=sample_size, **options)
            self._scan = (source.data, scanned) if len(scanned) else None
            self.dataset, self._unit = scanned.profile, scanned.unit
            self.durations = array("d") if scanned.profile.sampled else scanned.durations
        return self.dataset

    def measure_loader(
        self, dataset: Any, *, processor: Any = None, remember: bool = False, **options: Unpack[LoaderSettings]
    ) -> LoaderRate | None:
        """Decode some clips of a dataset, to find how many workers keep the GPU fed.

        Plans that are made afterwards use the rate.

        Args:
            dataset: The dataset: see the function ``measure_loader``.
            processor: The feature extractor, or a processor that has one, which makes the model's input. Without it
                only decoding is measured.
            remember: Whether a rate that was measured in the last day is reused, for the same path, clips, processor
                and machine.
            options: Further options of the function ``measure_loader``.

        Returns:
            The rate of one worker, also held as ``manager.loader``. None where there is nothing to measure, and after
            any other error, which is reported by a ``LoaderNotMeasuredWarning``.

        Raises:
            NotFoundError: The dataset does not exist.
            InvalidArgumentError: An option is unknown.
        """
        from .audio.loader_rate import LoaderSettings, Measured

        check_keywords(options, LoaderSettings.__annotations__, "measure_loader")
        source = open_source(dataset)
        if source.scan is None and self._scan is not None and self._scan[0] is source.data:
            source = replace(source, scan=self._scan[1])
        measured = Measured(source, self.dataset, self.durations, self.hardware.cpu, processor, dict(options))
        if self._unit is not None:
            options.setdefault("row_seconds", partial(row_seconds, unit=self._unit, examples=self._examples))
        self.loader, self._prepared = measured.measure(remember, options), processor is not None
        return self.loader

    def add_durations(
        self, dataset: Any, column: str = "length", unit: DurationUnit = "samples", **options: Unpack[DurationSettings]
    ) -> Any:
        """Add a column with the length of every clip, by which a Trainer can group clips.

        See the function ``add_durations``.

        Args:
            dataset: A ``datasets.Dataset`` or ``DatasetDict``.
            column: The name of the new column.
            unit: ``"samples"`` of the audio, or ``"seconds"``.
            options: ``sampling_rate`` in hertz, ``workers`` and ``progress``, as ``scan_audio`` takes them.

        Returns:
            The dataset with the column.

        Raises:
            InvalidArgumentError: The dataset is of another kind, or has this column.
        """
        check_keywords(options, DurationSettings.__annotations__, "add_durations")
        return add_durations(dataset, column, unit, **options)

    def profile_model(
        self, model: Any, *, name: str | None = None, freeze_feature_encoder: bool = False
    ) -> ModelProfile:
        """Count the parameters of a model.

        Args:
            model: What the function ``profile_model`` takes: a live module, a transformers config, a folder, or a known
                name.
            name: A label for the model; None for its own name.
            freeze_feature_encoder: Whether the convolutional feature encoder does not train. Freeze that of a live
                module first, by ``model.freeze_feature_encoder()``.

        Returns:
            The profile, also held as ``manager.model``.

        Raises:
            NotFoundError: There is no model of this name.
            UnsupportedError: Transformers cannot build the model of this config.
            InvalidArgumentError: The trained weights are stored in float16, or ``model`` is no model.
        """
        if half_weights(model) == "float16":
            raise InvalidArgumentError(half_words(model, "float16"), IN_32_BIT)
        profile = profile_model(model, freeze_feature_encoder=freeze_feature_encoder)
        self._model, self._frozen = model, freeze_feature_encoder
        self.model = replace(profile, name=name) if name else profile
        return self.model

    def plan(
        self,
        options: PlanOptions | None = None, *, trace: bool | None = None,
        batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None, progress: bool = False,
    ) -> TrainingConfig:  # fmt: skip
        """Plan the training from the measured profiles.

        With a recorded training step memory is exact. It is recorded for a GPU that need not be there, and kept for
        later plans; recordings of known models come with the package.

        Args:
            options: What is asked of the plan; None for the defaults, with the manager's safety margin.
            trace: Whether a training step of the model is recorded. None does so only where no recording of the package
                matches the installed packages. False never does: models without a recording are planned by the
                published formula.
            batch_fn: ``batch_fn(batch, length, labels)`` makes the batches of a module whose input is not that of a
                speech model. It returns the module's keyword arguments as tensors, for ``batch`` clips of ``length``
                samples of audio at 16 kHz (of rows that hold a model's input, of its own frames or tokens) with texts
                of ``labels`` tokens. None for batches of the collator that the dataset was profiled with, if any.
            progress: Whether a progress bar is shown while a step is recorded.

        Returns:
            The configuration, also held as ``manager.config``.

        Raises:
            InvalidArgumentError: A profile is missing, or options are out of range or exclude each other.
            EmptyDatasetError: No clip is short enough.
            InfeasiblePlanError: Nothing fits into memory; the hint lists what would.
        """
        from .guard.loss_table import knows_loss
        from .plan.memory_savings import add_savings, savings_in_hint
        from .plan.planner import Tracer, measured_values, plan, records_steps, traced_batches, tracer_for

        dataset, model = self._profiles("plan from")
        options = options or PlanOptions(safety_margin=self.hardware.safety_margin)
        settings = options.given() | adapter_options(self._model, options.lora_rank, options.policy)
        batches = traced_batches(batch_fn, self._examples, self._unit, self.durations)
        tracer = tracer_for(
            self._model, trace, batches, freeze=self._frozen, lora_rank=options.lora_rank, progress=progress
        )
        own_kernels, published = "kernel_profile" in settings, options.policy == "published"
        settings = {
            **measured_values(self.hardware, model, options.precision, settings["lora_rank"], own_kernels, published),
            **({} if published else self._rates()), **settings,
            "freeze_feature_encoder": self._frozen, "streamed": self._streamed,
            "loss_unknown": not knows_loss(self._model),
        }  # fmt: skip
        if not records_steps(trace):
            settings |= {"any_depth": False, "can_offload": False}
        records = {"hardware": to_json(self.hardware), "dataset": to_json(dataset), "model": to_json(model)}
        self._batch_fn = batches
        try:
            planned = plan({**records, "options": settings}, usable_seconds(self.durations), tracer, self._gpu)
        except InfeasiblePlanError as error:
            if isinstance(tracer, Tracer) and (traced := tracer.last_settings):
                savings_in_hint(error, self._model, batches, traced)
            raise
        if stored := half_weights(self._model):
            planned["warnings"] = [*planned["warnings"], f"{half_words(self._model, stored)} → {IN_32_BIT}"]
        self.config = TrainingConfig.from_dict(planned)
        self._rule = options.rule if callable(options.rule) else None
        if isinstance(tracer, Tracer):
            add_savings(self._model, batches, self.config, self._gpu, options.lora_rank)
        return self.config

    def save_config(self, config: TrainingConfig, path: str | os.PathLike[str]) -> None:
        """Write a configuration as JSON, completely or not at all.

        Args:
            config: The configuration.
            path: The file to write.

        Raises:
            NotFoundError: The file cannot be written.
        """
        config.save(path)

    def load_config(self, path: str | os.PathLike[str]) -> TrainingConfig:
        """Read a configuration, and use it as the plan.

        Args:
            path: A file that ``save_config`` wrote, or the output folder of a training.

        Returns:
            The configuration, also held as ``manager.config``.

        Raises:
            NotFoundError: The file does not exist.
            CorruptFileError: The file is no JSON object.
            InvalidArgumentError: A setting is unknown, missing or out of range.
            VersionMismatchError: A newer version of the package wrote the file.
        """
        self.config = TrainingConfig.load(path)
        return self.config
