"""Measure, plan, emit: ``create_optimal_config`` in one call, ``ASRConfigManager`` for the steps one by one."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from . import _lib
from ._checks import checked
from ._errors import InvalidArgumentError
from ._records import to_json
from .config import TrainingConfig
from .dataset import DatasetProfile, scan_audio
from .hardware import HardwareProfile, check_margin, hardware_json
from .lengths import add_durations
from .model import ModelProfile, profile_model

if TYPE_CHECKING:
    from .callback import AdaptiveMemoryCallback
    from .guard import Guard


@dataclass(frozen=True)
class PlanOptions:
    """What the user asked for; ranges are checked when the plan is made.

    ``policy`` ``"published"``; ``preset`` ``"balanced"``, ``"speed"`` or ``"reproducible"``; ``optimizer`` by the
    Trainer's name; ``lr_scaling`` ``"sqrt"``, ``"linear"`` or ``"none"`` from ``base_learning_rate`` at
    ``base_batch_size``; ``preprocessing`` ``"light"`` or ``"heavy"`` decides on workers. None leaves it to the policy.
    """

    target_batch_size: int = 32
    safety_margin: float = 0.85
    policy: str = "published"
    preset: str = "balanced"
    optimizer: str = "adamw_torch"
    lr_scaling: str = "sqrt"
    base_learning_rate: float | None = None
    base_batch_size: int | None = None
    num_train_epochs: float | None = None
    seed: int | None = None
    device_count: int | None = None
    preprocessing: str = "light"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            checked(name, getattr(self, name), hint)
        check_margin(self.safety_margin)

    def check(self) -> None:
        """Raise ``InvalidArgumentError`` for a value that no plan can be made with."""
        _lib.call("plan.check", self.given())

    def given(self) -> dict[str, Any]:
        """What is not left to the policy."""
        return {name: value for name, value in vars(self).items() if value is not None}


class ASRConfigManager:
    """Holds the measured profiles and the plan, and accompanies the training.

    ``gpu`` plans for a GPU of the catalogue (``"T4"``, ``"2xA100-40GB"``) instead of what is here.
    """

    def __init__(self, *, safety_margin: float = 0.85, gpu: str | None = None) -> None:
        check_margin(safety_margin)
        self.hardware = HardwareProfile.detect(gpu, safety_margin)
        self.dataset: DatasetProfile | None = None
        self.model: ModelProfile | None = None
        self.config: TrainingConfig | None = None

    def profile_dataset(self, dataset: Any, sample_size: int | None = None, **options: Any) -> DatasetProfile:
        """Measure ``dataset`` (see ``scan_audio``): every file, or a random sample of ``sample_size``."""
        if isinstance(dataset, DatasetProfile):
            self.dataset = dataset
        else:
            self.dataset = scan_audio(dataset, sample_size=sample_size, clips=False, **options).profile
        return self.dataset

    def add_durations(self, dataset: Any, column: str = "length", unit: str = "samples", **options: Any) -> Any:
        """``dataset`` with every clip's length in a ``column`` for ``group_by_length`` (see ``add_durations``)."""
        return add_durations(dataset, column, unit, **options)

    def profile_model(
        self, model: Any, *, name: str | None = None, freeze_feature_encoder: bool = False
    ) -> ModelProfile:
        """Count the parameters of ``model`` (see ``profile_model``); ``name`` is only a label."""
        found = profile_model(model, freeze_feature_encoder=freeze_feature_encoder)
        self.model = replace(found, name=name) if name else found
        return self.model

    def plan(self, options: PlanOptions | None = None) -> TrainingConfig:
        """Plan from the profiles measured before; raises ``InvalidArgumentError`` when one is missing."""
        if self.dataset is None or self.model is None:
            missing = "profile_dataset" if self.dataset is None else "profile_model"
            raise InvalidArgumentError("there is nothing to plan from yet", f"call manager.{missing}(…) first")
        options = options or PlanOptions(safety_margin=self.hardware.safety_margin)
        request = {
            "hardware": hardware_json(self.hardware),
            "dataset": to_json(self.dataset),
            "model": to_json(self.model),
            "options": options.given(),
        }
        self.config = TrainingConfig.from_dict(_lib.call("plan.make", request))
        return self.config

    def save_config(self, config: TrainingConfig, path: str | os.PathLike[str]) -> None:
        """Write ``config`` as JSON, whole or not at all."""
        config.save(path)

    def load_config(self, path: str | os.PathLike[str]) -> TrainingConfig:
        """Read a configuration; unknown keys and newer schemas are refused with a hint."""
        self.config = TrainingConfig.load(path)
        return self.config

    def explain(self) -> str:
        """Every decision of the plan with its reason, as text."""
        return self._planned().explain()

    def callback(self, **options: Any) -> AdaptiveMemoryCallback:
        """A ``TrainerCallback`` that watches memory, warns at 90 % and cleans up at 95 % (see its class)."""
        from .callback import AdaptiveMemoryCallback

        return AdaptiveMemoryCallback(self.config, **options)

    def attach(self, trainer: Any, **options: Any) -> Guard:
        """Guard the training steps of a ``transformers.Trainer``: they survive running out of GPU memory, exactly.

        ``options`` are those of ``Guard``. A second call gives the same guard; its ``detach()`` leaves the Trainer as
        it was.
        """
        from .guard import attach

        return attach(trainer, **options)

    def train(self, trainer: Any, *, max_retries: int = 3, **train_arguments: Any) -> Any:
        """``trainer.train(…)`` that survives running out of GPU memory.

        The micro-batch is halved and accumulation doubled, at most ``max_retries`` times, and training goes on from the
        last checkpoint of this run with the same effective batch.
        """
        from .recovery import train_with_recovery

        return train_with_recovery(trainer, max_retries=max_retries, **train_arguments)

    def _planned(self) -> TrainingConfig:
        if self.config is None:
            raise InvalidArgumentError("there is no plan yet", "call create_optimal_config, or manager.plan()")
        return self.config

    def __repr__(self) -> str:
        parts = [self.hardware, self.dataset, self.model, self.config]
        return "\n\n".join(repr(part) for part in parts if part is not None)


def create_optimal_config(
    dataset: Any,
    model: Any = None,
    model_name: str | None = None,
    target_batch_size: int = 32,
    safety_margin: float = 0.85,
    *,
    preset: str = "balanced",
    policy: str = "published",
    gpu: str | None = None,
    optimizer: str = "adamw_torch",
    lr_scaling: str = "sqrt",
    base_learning_rate: float | None = None,
    base_batch_size: int | None = None,
    num_train_epochs: float | None = None,
    seed: int | None = None,
    device_count: int | None = None,
    preprocessing: str = "light",
    freeze_feature_encoder: bool = False,
    sample_size: int | None = None,
    sampling_rate: int = 16_000,
    verbose: bool = True,
) -> tuple[TrainingConfig, ASRConfigManager]:
    """Measure the machine, the audio and the model, and plan the training.

    ``dataset``: see ``scan_audio``; ``model``: see ``profile_model`` (without one, ``model_name`` is looked up in the
    catalogue). ``target_batch_size`` is the number of samples per optimizer step, 1 to 65536; ``safety_margin``, 0.70
    to 0.95, the share of GPU memory that the plan may use. The other settings are those of ``PlanOptions``.
    ``verbose`` prints a line per stage and the plan.

    Returns the configuration and the manager that made it. Raises an ``AsrConfigError`` that names the input and the
    remedy.
    """
    from .display import say

    options = PlanOptions(
        target_batch_size, safety_margin, policy, preset, optimizer, lr_scaling,
        base_learning_rate, base_batch_size, num_train_epochs, seed, device_count, preprocessing,
    )  # fmt: skip
    options.check()
    manager = ASRConfigManager(safety_margin=safety_margin, gpu=gpu)
    say(verbose, "Hardware", manager.hardware)
    # The model first: a wrong name should not come to light after a long scan.
    source, label = (model_name, None) if model is None else (model, model_name)
    found = manager.profile_model(source, name=label, freeze_feature_encoder=freeze_feature_encoder)
    say(
        verbose, "Dataset", manager.profile_dataset(dataset, sample_size, sampling_rate=sampling_rate, progress=verbose)
    )
    say(verbose, "Model", found)
    config = manager.plan(options)
    say(verbose, "Planning", config)
    return config, manager
