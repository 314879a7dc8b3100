"""Records of memory estimates, all sizes in bytes, and remedies for a training that does not fit."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core.checks import checked
from .._core.declared import WORDS, RowKind
from .._core.records import to_json
from .._core.render import Record, Shown, gib, plot
from ..errors import AsrConfigError, InvalidArgumentError, UnsupportedError
from .memory_settings import Calibration, MemorySettings, Shape, Target
from .predict_records import EstimateRecord
from .snapshot import PredictedRun, SavedSnapshot, snapshot_path

if TYPE_CHECKING:
    from .opened_trace import OpenedTrace


_LOCAL = {"local": True}


@dataclass(frozen=True)
class EvaluationMemory:
    """The evaluation of the same model with ``batch`` samples at a time, as ``Trainer.evaluate`` runs it.

    ``peak_allocated`` and ``peak_reserved`` are of one batch, with nothing kept of the batches before it;
    ``resident_bytes`` is what lies on the GPU between batches (weights, buffers and the optimizer's state).
    ``outputs_bytes_per_sample`` is what the Trainer keeps of each sample: logits, and a Whisper model's last encoder
    states. ``generation_cache_bytes`` is the key-value cache of generating for one batch, None for models that do not
    generate.
    """

    batch: int
    seconds: float
    peak_allocated: int
    peak_reserved: int
    resident_bytes: int
    outputs_bytes_per_sample: int
    generation_cache_bytes: int | None

    def gpu_bytes(self, samples: int, eval_accumulation_steps: int | None = None) -> int:
        """Peak of allocated GPU memory in an evaluation of ``samples`` samples.

        Without ``eval_accumulation_steps`` the outputs of all samples stay on the GPU, and each batch's are appended
        by a copy of all (transformers.trainer_pt_utils.nested_concat), which doubles them for a moment.
        """
        outputs = self._samples_at_once(samples, eval_accumulation_steps) * self.outputs_bytes_per_sample
        return max(self.peak_allocated + outputs, self.resident_bytes + 2 * outputs)

    def host_bytes(self, samples: int, eval_accumulation_steps: int | None = None) -> int:
        """Host memory of the outputs of ``samples`` samples, in fp32.

        With ``eval_accumulation_steps`` the arrays grow on the host, and appending doubles them for a moment
        (EvalLoopContainer.to_cpu_and_numpy). ``preprocess_logits_for_metrics`` makes both figures small.
        """
        copies = 1 if self._samples_at_once(samples, eval_accumulation_steps) == samples else 2
        return copies * samples * self.outputs_bytes_per_sample

    def _samples_at_once(self, samples: int, eval_accumulation_steps: int | None) -> int:
        for name, value in (("samples", samples), ("eval_accumulation_steps", eval_accumulation_steps)):
            if value is not None and checked(name, value, int) < 1:
                raise InvalidArgumentError(f"{name} = {value} is not positive", "pass a whole number of at least 1")
        return samples if eval_accumulation_steps is None else min(samples, self.batch * eval_accumulation_steps)


@dataclass(frozen=True, repr=False)
class MemoryEstimate(Shown, EstimateRecord, kind="memory"):
    """The GPU memory of a training: peaks, what holds them, when, and whether a GPU has that much.

    ``peak_allocated`` is what tensors take, ``peak_reserved`` what PyTorch's allocator takes from the driver for them,
    ``peak_device`` that and the driver's context (None without a GPU in mind). ``pinned_bytes`` is host memory: what
    offloaded checkpoints pin for one micro-batch, None where it is not known. ``fits`` is None without a GPU; no
    safety margin is applied. When it does not fit, ``out_of_memory`` is where the run would stop, and the peaks are
    those of a GPU that is large enough.

    ``estimator`` is ``"trace"`` (a recorded training step, replayed through a simulation of the allocator) or
    ``"published"`` (a tenth of the model's memory per sample).
    ``approximate`` counts tensors whose size is not an exact polynomial of the shape; ``fragmentation`` is the share of
    the reserved memory that no tensor holds at the peak.
    """

    model: str = field(default="", metadata=_LOCAL)
    shape: Shape | None = field(default=None, metadata=_LOCAL)
    settings: MemorySettings = field(default=MemorySettings(), metadata=_LOCAL)
    target: Target = field(default=Target(), metadata=_LOCAL)
    calibration: Calibration | None = field(default=None, metadata=_LOCAL)
    evaluation: EvaluationMemory | None = field(default=None, metadata=_LOCAL)
    remedies: tuple[str, ...] = field(default=(), metadata=_LOCAL)
    warnings: tuple[str, ...] = field(default=(), metadata=_LOCAL)
    row_kind: RowKind = field(default="clips", metadata=_LOCAL)
    _run: PredictedRun | None = field(default=None, metadata=_LOCAL, compare=False)

    @property
    def headroom_bytes(self) -> int | None:
        """What is left of the GPU at the peak, negative when it is too small; None without a GPU."""
        if self.peak_device is None or self.target.available_bytes is None:
            return None
        return self.target.available_bytes - self.peak_device

    def to_dict(self) -> dict[str, Any]:
        """Everything as a JSON object."""
        return {
            "model": self.model,
            "shape": None if self.shape is None else vars(self.shape),
            "settings": vars(self.settings),
            "gpu": vars(self.target) if self.target.name else None,
            **to_json(self),
            "headroom_bytes": self.headroom_bytes,
            "calibration": None if self.calibration is None else vars(self.calibration),
            "evaluation": None if self.evaluation is None else vars(self.evaluation),
            "remedies": list(self.remedies),
            "warnings": list(self.warnings),
        }

    def _shown(self) -> Record:
        v = self.evaluation
        return self.to_dict() | {
            "shape_words": "" if self.shape is None else self.shape.words(self.row_kind),
            "row_kind": self.row_kind,
            "settings_words": self.settings.words(),
            "target": {**vars(self.target), "limit_bytes": self.target.limit_bytes},
            "calibration_words": "" if self.calibration is None else self.calibration.words(),
            "evaluation": v and vars(v) | {"gpu_bytes_1000": v.gpu_bytes(1000), "host_bytes_1000": v.host_bytes(1000)},
        }

    def save_snapshot(self, path: str | os.PathLike[str]) -> SavedSnapshot:
        """Write the predicted run as a memory snapshot for pytorch.org/memory_viz and ``torch.cuda._memory_viz``.

        It holds the allocations, frees and segments of the steps that the estimate is about, with operation, modules
        and phase as their stacks, the newest 200 000 of them. The peak of its events is ``peak_requested``, as sizes
        in PyTorch's own events are not rounded; segments at their most are ``peak_reserved``, without the correction
        of a calibration. Of a run that does not fit, it is the one on a large enough GPU.

        Raises ``InvalidArgumentError`` for another suffix than .pickle, for an estimate by a formula and where the
        ``MemoryModel`` is closed, ``NotFoundError`` where it cannot be written.
        """
        file = snapshot_path(path)
        if self._run is None:
            raise InvalidArgumentError(
                f"cannot save a snapshot to {file}: estimator={self.estimator!r} has no allocations",
                'ask with estimator="trace", which needs torch and transformers',
            )
        return self._run.save(file)

    def plot(self, ax: Any = None) -> Any:
        """Draw the timeline by component with matplotlib, into ``ax`` or a new figure; returns the axes."""
        if self.timeline is None or len(self.timeline.event) < 2:
            raise InvalidArgumentError("the estimate has no timeline", 'only estimator="trace" has one')
        return plot("memory", self._shown(), ax)


Change = tuple[str, Any]  # a setting and its value
Asked = Callable[[MemorySettings], "MemoryEstimate"]

_CHANGES: tuple[Change, ...] = (
    ("optimizer", "adamw_torch_fused"),
    ("gradient_checkpointing", True),
    ("precision", "fp16"),
    ("freeze_feature_encoder", True),
    ("optimizer", "adafactor"),
)


def smaller_batch(model: OpenedTrace, shape: Shape) -> str:
    """The largest batch that fits, in words."""
    try:
        largest = model.largest_batch(shape.seconds, labels=shape.labels)
    except UnsupportedError:  # too few shapes were traced
        return "a smaller batch: trace more shapes to learn which one fits"
    if largest == 0:
        rows = WORDS[model.row_kind]
        return f"not even one {rows.noun} of {rows.length(shape.seconds)} fits with these settings"
    return f"batch={largest} is the largest that fits"


def changes_that_fit(settings: MemorySettings, ask: Asked) -> tuple[str, ...]:
    """Single settings with which it would fit; if there is none, as many together as it takes.

    ``ask`` returns the estimate for settings; changes that the model cannot train with are left out.
    """
    changes, fitting = [], []
    for change in _CHANGES:
        if not _applies(settings, change):
            continue
        with contextlib.suppress(AsrConfigError):
            words, fits = _tried(settings, [change], ask)
            changes.append(change)
            fitting += [words] if fits else []
    if fitting:
        return tuple(fitting)
    for count in range(2, len(changes) + 1):
        words, fits = _tried(settings, changes[:count], ask)  # of two optimizers the later one counts
        if fits or count == len(changes):
            return (words if fits else f"not even {words} would fit",)
    return ()


def _tried(settings: MemorySettings, changes: list[Change], ask: Asked) -> tuple[str, bool]:
    """The changes in words with the memory that they need, and whether it fits."""
    estimate = ask(dataclasses.replace(settings, **dict(changes)))
    words = " and ".join(f"{name}={value!r}" for name, value in dict(changes).items())
    return f"{words}: {gib(estimate.peak_device or 0)}", bool(estimate.fits)


def _applies(settings: MemorySettings, change: Change) -> bool:
    """Whether the current setting needs more memory than the change."""
    more: dict[Change, tuple[Any, ...]] = {
        ("precision", "fp16"): ("fp32",),
        ("optimizer", "adamw_torch_fused"): ("adamw_torch",),
        ("optimizer", "adafactor"): ("adamw_torch", "adamw_torch_fused"),
    }
    return getattr(settings, change[0]) in more.get(change, (False,))
