"""Memory, time, cost and energy of a training on other GPUs, without a GPU.

Times are estimates: each is a ``Range``, and docs/timing.md says what it rests on.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from .._core import native
from .._core.checks import check_keywords, checked
from .._core.declared import LengthHandling, Optimizer, Precision
from .._core.files import read_json
from .._core.modules import can_offload_checkpoints, has_any_depth
from .._core.records import from_json, to_json
from .._core.render import Shown
from .._core.settings import EPOCHS, OPTIMIZER, SAFETY_MARGIN, TARGET_BATCH_SIZE
from ..errors import InvalidArgumentError, LibraryError
from ..guard.loss_table import knows_loss
from ..predict.hardware import HardwareProfile, known_kernel_profiles, read_kernel_profile
from ..predict.model_profile import ModelProfile, profile_model
from .compared_rows import read_rows
from .plan_options import EvaluationSettings
from .plan_records import ComparisonRecord, GPUPlanRecord, Price, StepCalibration
from .planner import Tracer
from .step_calibrations import known_calibrations
from .traced_answers import Answer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..trace.made_up_batches import BatchFunction

_ROUNDS = 12  # at most this many settings are traced for a GPU: those of a plan, for each form of an optimizer
Prices = Mapping[str, float] | str | os.PathLike[str]


@dataclass(frozen=True)
class GPUPlan(GPUPlanRecord):
    """The plan for one GPU, or for ``count`` of them; sizes are bytes of one GPU."""

    @property
    def name(self) -> str:
        """The GPU with its count: ``"T4"``, ``"2 × T4"``."""
        return self.gpu if self.count == 1 else f"{self.count} × {self.gpu}"


@dataclass(frozen=True, repr=False)
class Comparison(Shown, ComparisonRecord, kind="comparison"):
    """One training on several GPUs.

    Sizes are bytes, durations seconds, ``hours`` hours of audio, prices dollars. Of texts (``row_kind`` is
    ``"texts"``), ``clips`` is the number of texts, and 50 tokens count as a second.
    """

    rows: tuple[GPUPlan, ...]
    """The GPUs in the order requested."""

    @property
    def cheapest(self) -> GPUPlan | None:
        """The plan with the lowest likely cost; None where no price is known, or nothing fits."""
        return next((row for row in self.rows if row.cheapest), None)

    @property
    def fastest(self) -> GPUPlan | None:
        """The plan that likely ends first; None where none fits."""
        return next((row for row in self.rows if row.fastest), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return dict(to_json(self))


def compare_gpus(
    model: object,
    dataset: object = None,
    *,
    gpus: Sequence[str] | None = None,
    hours: float | None = None,
    mean_s: float | None = None,
    max_s: float | None = None,
    texts: int | None = None,
    mean_tokens: int | None = None,
    max_tokens: int | None = None,
    prices: Prices | None = None,
    freeze_feature_encoder: bool = False,
    trace: bool | None = None,
    batch_fn: BatchFunction | None = None,
    collator: Callable[[list[Any]], Any] | None = None,
    by_hand: bool = False,
    progress: bool = False,
    **options: Unpack[CompareSettings],
) -> Comparison:
    """Plan one training on each of several GPUs, and return its memory, time and cost there.

    Each row is what ``create_optimal_config`` plans for that GPU, from a recorded training step, which is kept for
    later questions; recordings of known models come with the package. Pass a dataset, ``hours`` of audio, or a number
    of ``texts``. Times are estimates (docs/timing.md).

    Args:
        model: A known name, a folder with ``config.json``, a transformers config, or a live module.
        dataset: A ``DatasetProfile``, or what ``scan_audio`` takes; of files with splits the split train counts.
        gpus: Names of the catalogue such as ``"T4"`` and ``"2xT4"``, at most 256; None for the whole catalogue, and
            with ``by_hand`` for those of the published scenarios.
        hours: Hours of audio that are assumed without a dataset.
        mean_s: The mean seconds of the clips of these hours; None for 8.
        max_s: The seconds of the longest of them; None for three times the mean.
        texts: The number of texts that are assumed without a dataset, for a model of text.
        mean_tokens: The mean tokens of these texts; None for ``max_tokens``, as where all are padded.
        max_tokens: The tokens of the longest of them; None for 128.
        prices: Dollars per hour and GPU by name, or a JSON file of them, in place of those of ``gpu_prices``.
        freeze_feature_encoder: Whether the convolutional feature encoder does not train. Freeze that of a live module
            first, by ``model.freeze_feature_encoder()``.
        trace: Whether a training step of the model is recorded: see ``ASRConfigManager.plan``.
        batch_fn: Makes the batches of a recorded step, from clips, length and labels: see ``ASRConfigManager.plan``.
        collator: The Trainer's collator, which makes these batches from rows of ``dataset``.
        by_hand: Whether settings that are chosen without a planner are judged, too, in ``comparison.by_hand``.
        progress: Whether a progress bar is shown while a step is recorded.
        options: How the training runs, besides the fields of ``EvaluationOptions``:

            - ``target_batch_size``: The clips of an optimizer step; 32.
            - ``epochs``: The passes over the data; 3.
            - ``precision``: ``"fp32"``, ``"fp16"`` or ``"bf16"``; None for what suits each GPU.
            - ``optimizer``: By the Trainer's name; ``"adamw_torch_fused"``.
            - ``lora_rank``: The rank of adapters that train in place of the model; 0 for none.
            - ``length_handling``: The order of clips, as in ``PlanOptions``; None for the planner's choice.
            - ``safety_margin``: The share of GPU memory to use, 0.70 to 0.95.
            - ``loader_rate``: The seconds of audio that a loader worker prepares per second; None for an assumed rate.
            - ``workers``: The loader workers of each GPU, 0 to 1024; None for 4.
            - ``calibrations``: The ``StepCalibration`` of GPUs by name, as ``estimate_step_time`` returns it for
              measured steps. None for those that earlier trainings on this machine left (see
              ``find_step_calibration``), an empty mapping for none.
            - ``gpu_profile``: The file of ``asrconfig profile-gpu`` with the measured kernels of a GPU; None for those
              in the cache folder, which all other GPUs use in any case.

    Returns:
        The plan on each GPU.

    Raises:
        NotFoundError: A GPU or the model is not known.
        UnsupportedError: No training step of the model is recorded, or can be.
        InvalidArgumentError: A value is out of range, or there is neither a dataset nor an amount.

    Example:
        >>> found = compare_gpus("wav2vec2-base", hours=10, mean_s=5, max_s=20, gpus=["T4", "L4"])
        >>> found.cheapest.gpu, found.fastest.gpu
        ('T4', 'L4')
    """
    counted = profile_model(model, freeze_feature_encoder=freeze_feature_encoder)
    rows, collated = read_rows(
        dataset, model, collator,
        hours=hours, mean_s=mean_s, max_s=max_s, texts=texts, mean_tokens=mean_tokens, max_tokens=max_tokens,
    )  # fmt: skip
    tracer = Tracer(
        model, trace, batch_fn or collated, freeze=freeze_feature_encoder, lora_rank=options.get("lora_rank", 0),
        progress=progress,
    )  # fmt: skip
    return compare_described(
        counted, tracer, rows, gpus=gpus, prices=prices, scenario={} if by_hand else None,
        measured={"loss_unknown": not knows_loss(model)}, **options,
    )  # fmt: skip


class CompareSettings(EvaluationSettings, total=False):
    """The options of ``compare_gpus``; see there."""

    target_batch_size: int
    epochs: float
    precision: Precision | None
    optimizer: Optimizer
    lora_rank: int
    length_handling: LengthHandling | None
    safety_margin: float
    loader_rate: float | None
    workers: int | None
    calibrations: Mapping[str, StepCalibration] | None
    gpu_profile: str | os.PathLike[str] | None


_DEFAULTS: CompareSettings = {
    "target_batch_size": TARGET_BATCH_SIZE, "epochs": EPOCHS, "optimizer": OPTIMIZER, "lora_rank": 0,
    "safety_margin": SAFETY_MARGIN,
}  # fmt: skip


def _given(options: CompareSettings) -> dict[str, Any]:
    """The options that are not None by the library's names, with defaults; raise an error for one of the wrong type."""
    check_keywords(options, CompareSettings.__annotations__, "compare_gpus")
    hints = get_type_hints(CompareSettings)
    given: dict[str, Any] = {}
    for name, value in {**_DEFAULTS, **options}.items():
        # A table of kernels is checked when it is read.
        value = value if name == "gpu_profile" else checked(name, value, hints[name])
        given |= {} if value is None else {name: value}
    for name, calibration in given.get("calibrations", {}).items():
        checked(f"calibrations[{name!r}]", calibration, StepCalibration)
    for name in ("target_batch_size", "epochs", "safety_margin"):
        if not given[name]:  # zero would mean the default in the library
            raise InvalidArgumentError(f"{name} = {given[name]!r} is too small", "pass a number above 0")
    return given | {"num_train_epochs": given.pop("epochs")}


def compare_described(
    model: ModelProfile,
    tracer: Tracer,
    data: dict[str, Any],
    *,
    gpus: Sequence[str] | None = None,
    prices: Prices | None = None,
    measured: Mapping[str, Any] | None = None,
    durations: array[float] | None = None,
    scenario: Mapping[str, Any] | None = None,
    **options: Unpack[CompareSettings],
) -> Comparison:
    """Compare GPUs for a model that was counted: see ``compare_gpus``.

    ``data`` are the rows as ``timing.compare`` takes them, ``measured`` what is known of the hardware around the GPUs,
    the loader and the loss, ``durations`` the seconds of every clip of a profile, where they are known, and
    ``scenario`` one of ``timing.scenarios``, or an empty mapping, to compare with settings by hand, too.
    """
    settings, kernels = _given(options), known_kernel_profiles()
    trained: dict[str, StepCalibration] = {}
    if "calibrations" not in settings:
        trained = known_calibrations(model, settings.get("precision"), settings["lora_rank"])
    if (file := settings.pop("gpu_profile", None)) is not None:  # which earlier trainings do not stand in the way of
        named = read_kernel_profile(file)
        kernels.insert(0, named)
        trained.pop(HardwareProfile.detect(named["gpu"]).gpu_name, None)
    calibrations = settings.pop("calibrations", trained)
    request = {
        **(measured or {}),
        **settings,
        "calibrations": {name: to_json(calibration) for name, calibration in calibrations.items()},
        "kernel_profiles": kernels,
        "any_depth": tracer.records and has_any_depth(),
        "can_offload": tracer.records and can_offload_checkpoints(),
        "model": to_json(model),
        "gpus": _names(gpus),
        "prices": _prices(prices),
        "data": data,
    }
    request |= {} if scenario is None else {"by_hand": dict(scenario)}
    return from_json(Comparison, _compared(request, durations, tracer))


def _compared(request: dict[str, Any], durations: array[float] | None, tracer: Tracer) -> dict[str, Any]:
    """The comparison as a JSON object, after tracing what it asks for.

    Raises ``UnsupportedError`` for a model that cannot be traced.
    """
    attached = b"" if durations is None else durations.tobytes()
    traced: list[list[Answer]] = []
    for _ in range(_ROUNDS):
        answer = native.call("timing.compare", {**request, "traced": traced}, attached)
        if answer["wanted"] is None:
            return dict(answer["comparison"])
        machines, seconds = answer["wanted"]["machines"], durations or answer["wanted"]["seconds"]
        traced = traced or [[] for _ in machines]
        for answers, machine in zip(traced, machines, strict=True):
            if machine["trace"] is not None:
                answers.append(tracer.ask(machine["trace"], machine["gpu"], seconds, required=not answers))
    raise LibraryError(f"more than {_ROUNDS} settings of one GPU were to be traced", "please report this as a defect")


def gpu_prices() -> tuple[Price, ...]:
    """Return the built-in prices of GPUs.

    Returns:
        The prices, each with its date and source.

    Example:
        >>> {price.gpu: price.usd_per_hour for price in gpu_prices()}["T4"]
        0.2
    """
    return tuple(from_json(Price, row) for row in native.call("timing.prices"))


def _names(gpus: Sequence[str] | None) -> list[str]:
    if gpus is None:
        return []
    names = [gpus] if isinstance(gpus, str) or not hasattr(gpus, "__iter__") else list(gpus)
    if not names:
        raise InvalidArgumentError("no GPU to compare", 'name some, such as gpus=["T4", "L4"], or leave it out for all')
    return [checked("gpus", name, str) for name in names]


def _prices(prices: Prices | None) -> dict[str, float]:
    """Dollars per hour by card, from a mapping or a JSON file: an object, or rows as the built-in table has them."""
    hint, table = 'write {"T4": 0.35, "L4": 0.7}, dollars per hour and GPU', {} if prices is None else prices
    if isinstance(table, str | os.PathLike):
        table = read_json(Path(table), "prices", hint)
    try:
        rows = {row["gpu"]: row["usd_per_hour"] for row in table} if isinstance(table, list) else dict(table)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError(f"prices = {prices!r:.80} are not prices: {error}", hint) from error
    return {str(name): checked(f"the price of {name}", hour, float) for name, hour in rows.items()}
