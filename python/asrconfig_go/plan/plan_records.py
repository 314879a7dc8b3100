"""Records of the library's answers, field by field; written by build/generate from their declarations in Go."""

from __future__ import annotations

from dataclasses import dataclass

from .._core.declared import (
    LengthHandling,
    LRScaling,
    MicroBatching,
    Optimizer,
    PlannedRule,
    Policy,
    Precision,
    Preset,
    RowKind,
    Strategy,
)
from .._core.settings import AttnImplementation
from ..predict.model_profile import ModelProfile


@dataclass(frozen=True)
class Range:
    """An estimate: low ≤ likely ≤ high."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True)
class PlannedStepParts:
    """Seconds of an optimizer step, as they add up."""

    compute: Range
    """Matrix products, convolutions and fused attention."""
    memory: Range
    """Tensors written and read by everything else."""
    launches: Range
    """What the GPU waits for the CPU's kernel launches beyond both."""
    optimizer: Range
    """Its step, and gradients added up over micro-batches."""
    exchange: Range
    """Gradients between GPUs."""
    overhead: Range
    """The Trainer's own work."""


@dataclass(frozen=True)
class PlannedRunParts:
    """Hours of a run, as they add up."""

    training: Range
    """All epochs, the loader's part in them."""
    evaluation: Range
    """All evaluations, generation in them."""
    checkpoints: Range
    """Written to disk."""
    start_up: Range
    """Before the first step, and what the first steps take longer."""


@dataclass(frozen=True)
class Price:
    """The dollars per hour of one GPU."""

    gpu: str
    """Key of the catalogue."""
    usd_per_hour: float
    provider: str
    date: str
    """When it was seen, year and month."""
    source: str
    """Where."""


@dataclass(frozen=True)
class Remedy:
    """A change, and the bytes that the training would then take of one GPU."""

    what: str
    peak_bytes: int
    fits: bool


@dataclass(frozen=True)
class GPUPlanRecord:
    """The plan for one GPU, or for several of them; sizes are bytes of one.

    The settings are those of the plan for that machine. Times, cost and energy are None when it does not fit.
    """

    gpu: str
    """Key of the catalogue."""
    count: int
    """GPUs."""
    memory_bytes: int
    """Of one GPU."""
    budget_bytes: int
    """Of it with the safety margin."""
    unverified: bool
    """Some of the card's published figures were not checked against a source."""
    fits: bool
    precision: str
    gradient_checkpointing: bool
    every_n_layers: int
    """With checkpointing: one of so many layers is computed again; 1, each."""
    offload_checkpoints: bool
    """What checkpointed layers save is kept in pinned host memory."""
    optimizer: str
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    micro_batching: str
    """``"fixed"``, or ``"memory"``: the guard splits each step (manager.attach)."""
    peak_bytes: int
    """Predicted for one GPU, context included, for a batch of the longest clips."""
    lora_rank: int
    effective_batch_size: int
    largest_batch: int
    """About the most clips, all of the longest, that fit in such a micro-batch."""
    length_handling: str
    """The order of clips: ``"random"``, ``"grouped"``, ``"stratified"`` or ``"bucketed"``."""
    parts: PlannedStepParts | None
    """Of the mean step, without the loader; None without published figures."""
    step_s: Range | None
    """Seconds."""
    epoch_hours: Range | None
    run_hours: Range | None
    """Of the whole run."""
    run_parts: PlannedRunParts | None
    """Hours that add up to it."""
    audio_rate: Range | None
    """Seconds of audio trained on per second."""
    bound: str
    """The largest part of the time, or ``"loader"``."""
    calibrated: bool
    """By measured steps."""
    measured: str
    """The day on which kernels of this card were measured that the times rest on; ``""`` for none."""
    cost_usd: Range | None
    """Of the run on all its GPUs; None without a price."""
    energy_kwh: Range | None
    """Of the run, GPUs alone; None where the board power is not known."""
    price: Price | None
    """None where none is known."""
    cheapest: bool
    """Of all machines, by the likely cost."""
    fastest: bool
    """Of all machines, by the likely hours."""
    notes: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    """What would make it fit, when it does not."""


@dataclass(frozen=True)
class HandTotal:
    """What runs take, one after another."""

    runs: int
    hours: Range
    cost_usd: Range | None
    """On all GPUs; None without a price."""


@dataclass(frozen=True)
class HandSettings:
    """The training with one set of settings. Rates, hours and dollars are None where it does not fit."""

    settings: str
    """``"aggressive"``, ``"published"``, ``"safe"`` or ``"plan"``."""
    precision: str
    gradient_checkpointing: bool
    every_n_layers: int
    """With checkpointing: one of so many layers is computed again; 1, each."""
    offload_checkpoints: bool
    """What checkpointed layers save is kept in pinned host memory."""
    optimizer: str
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    micro_batching: str
    """``"fixed"``, or ``"memory"``: the guard splits each step (manager.attach)."""
    peak_bytes: int
    """Predicted for one GPU, context included, for a batch of the longest clips."""
    fits: bool
    """Into all memory of the GPU, without a margin."""
    samples_per_second: Range | None
    """Clips trained on per second."""
    plan_speed: float | None
    """How many times faster the plan's run is."""
    totals: tuple[HandTotal, ...]
    """Of one run and of ten."""


@dataclass(frozen=True)
class Origin:
    """Where a figure comes from."""

    figure: str
    origin: str
    """``"predicted"``, ``"measured"``, ``"assumed"``, ``"published"`` or ``"given"``."""
    source: str


@dataclass(frozen=True)
class HandCase:
    """One training on one machine, with settings by hand and with the plan's.

    Seconds, hours of audio, bytes, dollars.
    """

    gpu: str
    """Key of the catalogue."""
    count: int
    """GPUs."""
    memory_bytes: int
    """Of one GPU."""
    model: str
    row_kind: RowKind
    """``"texts"``: 50 tokens count as a second."""
    clips: int
    hours: float
    """What the clips last."""
    longest_s: float
    """Seconds of the clip that memory is planned for."""
    target_batch_size: int
    epochs: float
    price: Price | None
    """None where none is known."""
    rows: tuple[HandSettings, ...]
    """The plan's the last; None where none fits."""
    origins: tuple[Origin, ...]
    """Of the figures."""


@dataclass(frozen=True)
class ComparisonRecord:
    """What one training takes on each of several machines. Bytes, dollars."""

    model: ModelProfile
    row_kind: RowKind
    """``"texts"``: 50 tokens count as a second."""
    clips: int
    hours: float
    """What the clips last."""
    longest_s: float
    """Seconds of the clip that memory is planned for."""
    target_batch_size: int
    epochs: float
    rows: tuple[GPUPlanRecord, ...]
    """In the order asked for."""
    assumptions: tuple[str, ...]
    """What the figures rest on."""
    by_hand: tuple[HandCase, ...]
    """Of each machine, where settings by hand were asked for."""


@dataclass(frozen=True)
class RunTime:
    """The time of a run."""

    gpu: str
    precision: str
    step_s: Range
    """Of an optimizer step, the loader's part in it."""
    run_hours: Range
    run_parts: PlannedRunParts
    """Hours that add up to it."""
    measured: str
    """The day, as of StepAnswer."""


@dataclass(frozen=True)
class StepCalibration:
    """Measured over predicted time of optimizer steps."""

    factor: float
    """The median."""
    low: float
    """The fastest tenth of the measured steps over predicted, with a twentieth to spare."""
    high: float
    """The slowest tenth, likewise."""
    steps: int
    """How many were measured."""
    kernels: str = ""
    """The day on which kernels of the card were measured that the predicted times rest on; ``""`` for none."""


@dataclass(frozen=True)
class StepTime:
    """The predicted time of one optimizer step, calibrated by the measured steps."""

    gpu: str
    """Key of the catalogue."""
    precision: str
    step_s: Range
    parts: PlannedStepParts
    """Before the calibration."""
    measured: str
    """The day on which the kernels of this card were measured that the times rest on; ``""`` for none."""
    calibration: StepCalibration | None
    """None without measured steps."""


@dataclass(frozen=True)
class Caution:
    """What to look out for before a training starts."""

    level: str
    """``"serious"`` (training would fail or go wrong), ``"warning"`` or ``"note"``."""
    code: str
    """Name of the rule."""
    what: str
    """The case."""
    why: str = ""
    """What it leads to; ``""`` where the case says it."""
    remedy: str = ""
    """What to do; ``""`` where the case says it."""


@dataclass(frozen=True)
class TraceRequestRecord:
    """A candidate to trace, and the figures that the planner needs of it."""

    precision: Precision
    gradient_checkpointing: bool
    every_n_layers: int
    """With checkpointing: one layer in so many is computed again."""
    offload_checkpoints: bool
    """What checkpointed layers save is kept in pinned host memory."""
    optimizer: Optimizer
    """The Trainer's name."""
    allocator: str
    """What the plan sets PYTORCH_CUDA_ALLOC_CONF to; ``""`` without a GPU."""
    devices: int
    """That share an optimizer step."""
    share: int
    """Clips of an optimizer step on one device."""
    budget_bytes: int
    """Of one device, context included."""
    beside_bytes: int
    """What a process holds beside its allocator's memory and the context, with several GPUs."""
    max_length_s: float | None
    """Longer clips are left out; None: no limit."""
    longest_s: float
    """The longest clip planned for; of a stream, one that may not have been measured."""
    high: bool
    """Whether to return the worst peak of whole runs, too."""
    generates: bool
    """Evaluations generate texts, if the model can, so that their keys and values must fit."""
    beams: int
    """Of a generation."""
    tokens: int
    """The most of a text."""
    sizes: tuple[int, ...]
    """Micro-batches of the longest clips whose peaks to return, whether they fit or not."""


@dataclass(frozen=True)
class Alternative:
    """An alternative to the plan."""

    name: str
    """``"published"``, "random order", "fixed micro-batches", "without checkpointing", …"""
    what: str
    """In words and numbers: "4 × 8, float16, checkpointing"."""
    fits: bool | None
    """None where that is not known."""
    peak_bytes: int | None
    """Predicted for a batch of the longest clips."""
    epoch_hours: Range | None
    """None where it does not fit, or nothing is known of the device's speed."""
    speed: float | None
    """Of the plan over this one: 1.5 is a plan 1.5 times as fast."""
    why: str = ""
    """Why it was not chosen although it is faster; ``""`` where it is not."""


@dataclass(frozen=True)
class Arithmetic:
    """The multiplications and additions of the model's products forward and backward, two for each multiply-add.

    What gradient checkpointing and fused attention compute again is left out, as model FLOPs utilization leaves it out.
    """

    clip_flops: tuple[float, ...]
    """Of a clip: a constant, for each unit, for its square."""
    unit: str
    """``"seconds"`` of the padded clip; ``"labels"``, tokens of its padded transcript, where audio is padded to a fixed
    length.
    """
    rate: float | None
    """FLOP/s of the slowest GPU in the plan's precision, as published; None where that is not known."""


@dataclass(frozen=True)
class PlannedBucket:
    """A range of durations whose clips share micro-batches."""

    up_to_s: float
    clips: int
    micro_batch: int | None
    """What fits for its longest clip; None where that is not known."""


@dataclass(frozen=True)
class PlannedMicroBatch:
    """Clips that are computed at once."""

    clips: int
    seconds: float
    """Of the longest of them."""


@dataclass(frozen=True)
class PlannedDevice:
    """What one GPU does in a step."""

    index: int
    """Among the visible ones: CUDA's, but of unlike GPUs perhaps not before CUDA runs."""
    uuid: str
    """``""`` when planned from the catalogue."""
    name: str
    samples: int
    """Of an optimizer step."""
    micro_batch_size: int
    """Clips of the longest length that are computed at once."""
    peak_bytes: int
    """Predicted, context included."""
    budget_bytes: int
    """Available memory with the margin."""


@dataclass(frozen=True)
class MemoryPart:
    """A share of the predicted memory."""

    name: str
    """``"parameters"``, ``"gradients"``, ``"optimizer"``, ``"activations"``, ``"workspaces"``, ``"cached"``,
    ``"context"``, …
    """
    bytes: int


@dataclass(frozen=True)
class Unguarded:
    """The fixed batch that is fastest by `trainer.train()` without the guard, in place of the plan's settings."""

    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    gradient_checkpointing: bool
    every_n_layers: int
    offload_checkpoints: bool
    micro_batch_size: int
    """Clips of the longest length that fit at once."""
    predicted_bytes: int
    """Peak of the tightest device."""
    times_longer: float
    """How many times as long as with the guard an epoch takes."""


@dataclass(frozen=True)
class PlannedTimes:
    """What training takes: estimates, each a range."""

    step_s: Range
    """Seconds of an optimizer step, an epoch's mean; the loader's part in it."""
    parts: PlannedStepParts
    """Of the mean step, without the loader: their likely times add up to it."""
    epoch_hours: Range
    """Of an epoch, on average."""
    run_hours: Range
    """Of the whole run."""
    run_parts: PlannedRunParts
    """Hours that add up to them."""
    audio_rate: Range
    """Seconds of audio trained on per second."""
    bound: str
    """The largest part of the time: ``"compute"``, ``"memory"``, ``"launches"``, ``"optimizer"``, ``"exchange"``,
    ``"overhead"`` or ``"loader"``.
    """
    calibrated: bool
    """By measured steps."""
    measured: str
    """The day on which kernels of this card were measured that the times rest on; ``""`` for the model's own."""
    cost_usd: Range | None
    """Of the run on all GPUs; None where no price is known."""
    energy_kwh: Range | None
    """Of the run, GPUs alone; None where the board power is not known."""


@dataclass(frozen=True)
class Decision:
    """One setting with the reason for its value, numbers and units included."""

    setting: str
    """JSON name of the field."""
    value: str
    """As shown to people."""
    reason: str
    """One sentence, with its numbers and units."""
    alternative: str = ""
    """The alternative, ``"on"``; ``""`` for none."""
    gain: str = ""
    """Of the value over the alternative: "1.4× faster", "needs 3.10 GiB less"."""


@dataclass
class ConfigRecord:
    """A whole training configuration. Field names are those of transformers.TrainingArguments where one exists."""

    schema_version: int
    policy: Policy
    """The rule set that made it: ``"fastest"`` or ``"published"``."""
    preset: Preset
    """``"balanced"``, ``"speed"`` or ``"reproducible"``."""
    row_kind: RowKind
    """``"clips"``, or ``"texts"``: 50 tokens count as a second."""
    target_batch_size: int
    """Samples per optimizer step that were asked for."""
    device_count: int
    """GPUs that share one optimizer step; 1 on a CPU."""
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    per_device_eval_batch_size: int
    micro_batching: MicroBatching
    """``"fixed"``: batches as the loader gives them; ``"memory"``: the guard splits each by predicted memory."""
    micro_batch_size: int
    """Clips of the longest length that are computed at once."""
    micro_batches: tuple[PlannedMicroBatch, ...]
    """The fullest of an epoch: of those with about the longest clips, and of all; one where all have one size."""
    micro_batch_overhead_s: float
    """What a micro-batch takes on the GPU besides its padded audio, in seconds of audio."""
    micro_batch_host_s: float
    """What the CPU takes to launch its kernels, likewise: a micro-batch takes no less."""
    rule: PlannedRule | None
    """What the loss divides by, where that was given: ``"mean"``, ``"token_mean"``, ``"shifted_token_mean"``,
    ``"sum"``, or ``"given"`` for a function, which is not saved.
    """
    length_handling: LengthHandling
    """Clips of a step: ``"random"``, ``"grouped"`` (the Trainer's), ``"stratified"`` or ``"bucketed"``."""
    length_buckets: tuple[PlannedBucket, ...]
    """Of steps by length; else empty."""
    max_length_s: float | None
    """Longer clips are left out; None when none is."""
    eval_steps: int | None
    """Optimizer steps between evaluations; None where none are planned."""
    save_steps: int | None
    """Optimizer steps between checkpoints; None: the Trainer's default."""
    eval_samples: int | None
    """Clips to evaluate with, drawn at random; None: all of the evaluation set."""
    eval_accumulation_steps: int | None
    """Evaluation batches after which predictions leave the GPU; None: at the end."""
    fp16: bool
    bf16: bool
    tf32: bool
    gradient_checkpointing: bool
    every_n_layers: int
    """With gradient checkpointing: one of so many layers is computed again; 1, each."""
    offload_checkpoints: bool
    """What checkpointed layers save for recomputation is kept in pinned host memory."""
    torch_compile: bool
    cudnn_benchmark: bool
    cudnn_attention: bool
    """Whether PyTorch may choose cuDNN's attention, which it prepares again for each new shape."""
    deterministic: bool
    """The Trainer's full_determinism."""
    attn_implementation: AttnImplementation
    """``"sdpa"``, ``"eager"``; ``""`` leaves the model's."""
    freeze_feature_encoder: bool
    """The convolutional front end does not train."""
    lora_rank: int
    """Of the adapters that train in place of the model; 0, the model itself trains."""
    alloc_conf: str
    """For PYTORCH_ALLOC_CONF, before CUDA starts; ``""`` leaves PyTorch's."""
    distributed: Strategy
    """``"none"``, ``"ddp"``, ``"zero1"``, ``"zero2"``, ``"zero3"`` or ``"fsdp"``."""
    devices: tuple[PlannedDevice, ...]
    """What each GPU does; empty on a CPU."""
    dataloader_num_workers: int
    dataloader_prefetch_factor: int | None
    """Batches per worker; None without workers."""
    dataloader_pin_memory: bool
    dataloader_persistent_workers: bool
    streaming: bool
    """Read the dataset as a stream instead of preparing it whole."""
    cache_dataset: bool
    """Keep decoded audio."""
    chunk_length_s: float | None
    """Split longer clips; None when no clip needs it."""
    group_by_length: bool
    """Batches of similar length."""
    learning_rate: float
    """After scaling."""
    lr_scaling: LRScaling
    """``"sqrt"``, ``"linear"`` or ``"none"``."""
    num_train_epochs: float
    """May be a fraction."""
    warmup_ratio: float
    """0 to 1 of all optimizer steps."""
    weight_decay: float
    max_grad_norm: float
    optimizer: Optimizer
    """Trainer's name: ``"adamw_torch_fused"``, ``"adamw_bnb_8bit"``, ``"adafactor"``, ``"sgd"``."""
    seed: int
    safety_margin: float
    """Share of GPU memory that the plan may use, 0.70 to 0.95."""
    gpu_name: str
    """``""`` on a CPU."""
    gpu_memory_bytes: int | None
    """Of the smallest GPU planned for; None on a CPU."""
    model_memory_bytes: int
    """Parameters + gradients + optimizer state, by the policy."""
    predicted_bytes: int
    """Peak of the tightest device at the chosen micro-batch, by the policy."""
    predicted_high_bytes: int | None
    """The worst over orders of clips that were simulated; None when none was."""
    budget_bytes: int
    """What the plan may use of the tightest device: available memory with the margin."""
    memory_parts: tuple[MemoryPart, ...]
    """Of ``predicted_bytes`` at its highest moment, in the order in which they are drawn."""
    unguarded: Unguarded | None
    """The settings of a Trainer without the guard; None where the guard splits nothing."""
    times: PlannedTimes | None
    """None where nothing is known of the device's speed."""
    arithmetic: Arithmetic | None
    """What clips need, for model FLOPs utilization; None where neither a config nor a trace tells."""
    alternatives: tuple[Alternative, ...]
    """Alternatives, the published rule's among them."""
    by_hand: Alternative | None
    """What settings without a planner take; None where nothing is known of them."""
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]
    """What the user should know before starting."""
