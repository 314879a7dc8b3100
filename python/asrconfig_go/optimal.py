"""Measure, plan and print the plan in one call: ``create_optimal_config``.

What it needs is imported when it is called, so that ``from asrconfig_go import create_optimal_config`` takes
milliseconds: the records alone take a tenth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._core.settings import SAFETY_MARGIN, SAMPLING_RATE, TARGET_BATCH_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from .config import TrainingConfig
    from .manager import ASRConfigManager
    from .plan.plan_options import PlanSettings

_OF_PYTHON = ("settings", "return")  # among the annotations
_LOADER_S = 0.5  # for which clips are decoded


def create_optimal_config(
    dataset: Any,
    model: Any = None,
    model_name: str | None = None,
    target_batch_size: int = TARGET_BATCH_SIZE,
    safety_margin: float = SAFETY_MARGIN,
    *,
    gpu: str | None = None,
    freeze_feature_encoder: bool = False,
    trace: bool | None = None,
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None,
    collator: Callable[[list[Any]], Any] | None = None,
    processor: Any = None,
    sample_size: int | None = None,
    sampling_rate: int = SAMPLING_RATE,
    verbose: bool = True,
    progress: bool | None = None,
    **settings: Unpack[PlanSettings],
) -> tuple[TrainingConfig, ASRConfigManager]:
    """Measure the machine, the audio and the model, and plan the training.

    Unless ``loader_rate`` is passed, some clips are decoded for half a second, to find how many workers keep the GPU
    fed. The rate of the same files is reused for a day.

    Args:
        dataset: What ``scan_audio`` takes, also its result. Of files with splits the split train is planned for.
        model: What ``profile_model`` takes: a live module, a transformers config, a folder, or a known name.
        model_name: The name of a known model, in place of ``model``; together with ``model`` only a label.
        target_batch_size: The clips of an optimizer step, 1 to 65536.
        safety_margin: The share of GPU memory that the plan may use, 0.70 to 0.95.
        gpu: A GPU of the catalogue to plan for, such as ``"T4"`` or ``"2xA100-40GB"``; None for this machine's.
        freeze_feature_encoder: Whether the convolutional feature encoder does not train. Freeze that of a live module
            first, by ``model.freeze_feature_encoder()``.
        trace: Whether a training step of the model is recorded: see ``ASRConfigManager.plan``.
        batch_fn: Makes the batches of a recorded step, from clips, length and labels: see ``ASRConfigManager.plan``.
        collator: The Trainer's collator. It makes the batches of the recorded step from some rows of ``dataset``, and
            determines the length of rows that nothing else can read.
        processor: The model's processor. It prepares the clips whose loading is measured; without it they are only
            decoded. Without a ``collator`` it also makes the recorded batches, for an audio LLM with its chat template
            or prompt, of rows, a folder or a manifest with transcripts.
        sample_size: The number of randomly chosen clips to measure; None for all, of a stream for 200.
        sampling_rate: The sampling rate in hertz of the model's input, and of arrays in ``dataset``.
        verbose: Whether each stage and the plan are printed.
        progress: Whether progress bars are shown; None for the value of ``verbose``.
        settings: The other fields of ``PlanOptions``.

    Returns:
        The configuration, and the manager that made it.

    Raises:
        AsrConfigError: No plan can be made. The error names the input and the remedy; it is an ``InvalidArgumentError``
            for a value out of range, a ``NotFoundError`` for an unknown file, model or GPU, an ``EmptyDatasetError``
            without a usable clip, an ``InfeasiblePlanError`` where nothing fits into memory.

    Example:
        >>> config, manager = create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
        >>> config.effective_batch_size, config.precision
        (32, 'fp16')
    """
    from ._core.checks import check_keywords
    from ._core.output import first_process, show
    from ._core.records import json_fields, to_json
    from ._core.render import say, title
    from .data.splits import trained_part
    from .manager import ASRConfigManager
    from .plan.plan_options import PlanOptions, PlanSettings
    from .plan.plan_record import PlanRecord

    annotated = [*create_optimal_config.__annotations__, *PlanSettings.__annotations__]
    accepted = [name for name in annotated if name not in _OF_PYTHON]
    check_keywords(settings, accepted, "create_optimal_config", json_fields(PlanRecord))
    verbose = verbose and first_process()
    bars = verbose if progress is None else progress
    options = PlanOptions(target_batch_size, safety_margin, **settings)
    options.check()
    manager = ASRConfigManager(safety_margin=safety_margin, gpu=gpu)
    say(verbose, "Hardware", manager.hardware)
    # The model first: a wrong name should not come to light after a long scan.
    source, label = (model_name, None) if model is None else (model, model_name)
    profile = manager.profile_model(source, name=label, freeze_feature_encoder=freeze_feature_encoder)
    opened = trained_part(dataset)
    own_batches = collator is not None or batch_fn is not None
    batches: Any = collator
    if not own_batches and processor is not None:
        from .audio.processor_batches import processor_examples  # which needs numpy

        batches = processor_examples(opened.data, processor, model)
    measured = manager.profile_dataset(
        opened, sample_size, sampling_rate=sampling_rate, progress=bars, collator=batches
    )
    say(verbose, "Dataset", title("dataset", to_json(measured)))
    manager._training_check.plan(opened.data, model, processor, collator, manager.durations)
    say(verbose, "Model", profile)
    searched = options.policy == "fastest" and bool(manager.hardware.gpus)
    if searched and options.loader_rate is None and opened.kind != "profile":
        manager.measure_loader(
            opened.data, processor=processor, remember=True, seconds=_LOADER_S, sampling_rate=sampling_rate
        )
    config = manager.plan(options, trace=trace, batch_fn=batch_fn, progress=bars)
    if verbose:
        show(f"\n{manager.explain().brief(profiles=False)}")
    return config, manager
