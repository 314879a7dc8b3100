"""Measure, plan and say so in one call: ``create_optimal_config``.

What it needs is imported when it is called, so that ``from asrconfig_go import create_optimal_config`` takes
milliseconds: the records alone take a tenth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import TrainingConfig
    from .manager import ASRConfigManager

_LOADER_S = 0.5  # for which clips are decoded


def create_optimal_config(
    dataset: Any,
    model: Any = None,
    model_name: str | None = None,
    target_batch_size: int = 32,
    safety_margin: float = 0.85,
    *,
    preset: str = "balanced",
    policy: str = "fastest",
    gpu: str | None = None,
    optimizer: str = "adamw_torch_fused",
    lr_scaling: str = "sqrt",
    base_learning_rate: float | None = None,
    base_batch_size: int | None = None,
    num_train_epochs: float | None = None,
    seed: int | None = None,
    device_count: int | None = None,
    preprocessing: str = "light",
    precision: str | None = None,
    gradient_checkpointing: bool | None = None,
    length_handling: str | None = None,
    max_length_s: float | None = None,
    distributed: str | None = None,
    loader_rate: float | None = None,
    price_usd_hour: float | None = None,
    freeze_feature_encoder: bool = False,
    trace: bool | None = None,
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None,
    processor: Any = None,
    sample_size: int | None = None,
    sampling_rate: int = 16_000,
    verbose: bool = True,
) -> tuple[TrainingConfig, ASRConfigManager]:
    """Measure the machine, the audio and the model, and plan the training.

    ``dataset``: see ``scan_audio``; ``model``: see ``profile_model`` (without one, ``model_name`` is looked up in the
    catalogue). ``target_batch_size`` is the number of samples per optimizer step, 1 to 65536; ``safety_margin``, 0.70
    to 0.95, the share of GPU memory that the plan may use. The other settings are those of ``PlanOptions``; ``trace``
    and ``batch_fn`` are those of ``ASRConfigManager.plan``. For half a second some clips are decoded, and made to the
    model's input by ``processor``, if there is one, to know how many workers keep the GPU fed. ``verbose`` prints a
    line per stage and the plan.

    Returns the configuration and the manager that made it. Raises an ``AsrConfigError`` that names the input and the
    remedy.
    """
    from .data.scan import DatasetProfile
    from .manager import ASRConfigManager
    from .plan.plan_options import PlanOptions
    from .view.units import say

    options = PlanOptions(
        target_batch_size, safety_margin, policy, preset, optimizer, lr_scaling,
        base_learning_rate, base_batch_size, num_train_epochs, seed, device_count, preprocessing, precision,
        gradient_checkpointing, length_handling, max_length_s, distributed, loader_rate, price_usd_hour,
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
    searched = policy == "fastest" and bool(manager.hardware.gpus)
    if searched and loader_rate is None and not isinstance(dataset, DatasetProfile):
        manager.measure_loader(dataset, processor=processor, seconds=_LOADER_S, sampling_rate=sampling_rate)
    config = manager.plan(options, trace=trace, batch_fn=batch_fn, progress=verbose)
    say(verbose, "Planning", config)
    return config, manager
