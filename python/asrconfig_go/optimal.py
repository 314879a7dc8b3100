"""Measure, plan and print the plan in one call: ``create_optimal_config``.

What it needs is imported when it is called, so that ``from asrconfig_go import create_optimal_config`` takes
milliseconds: the records alone take a tenth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._core.defaults import SAFETY_MARGIN, SAMPLING_RATE, TARGET_BATCH_SIZE

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

    ``dataset``: see ``scan_audio``, whose result it may be; of files with splits train is planned for; ``model``:
    see ``profile_model`` (without one, ``model_name`` is looked up in the catalogue). ``target_batch_size`` is the
    number of samples per optimizer step, 1 to 65536; ``safety_margin``, 0.70 to 0.95, the share of GPU memory that the
    plan may use. ``settings`` are the other fields of ``PlanOptions``; ``trace`` and ``batch_fn`` are those of
    ``ASRConfigManager.plan``; ``collator``, the Trainer's, makes the traced batches of some rows of ``dataset``, and
    tells how long rows are that nothing else can read; without one, the call of ``processor`` makes them, with its chat
    template or prompt for an audio LLM, of rows, a folder or a manifest with transcripts. ``gpu`` plans for a GPU of
    the catalogue such as ``"T4"`` or ``"2xA100-40GB"``. For half a second some clips are decoded, and made to the
    model's input by ``processor``, if there is one, to know how many workers keep the GPU fed; what was found of the
    same files in the last day is taken again. ``verbose`` prints each stage and the plan, ``progress`` (None: as
    ``verbose``) shows bars while it works.

    Returns the configuration and the manager that made it. Raises an ``AsrConfigError`` that names the input and the
    remedy.

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

    accepted = [*create_optimal_config.__annotations__, *PlanSettings.__annotations__]
    check_keywords(
        settings,
        [name for name in accepted if name not in _OF_PYTHON],
        "create_optimal_config",
        json_fields(PlanRecord),
    )
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
