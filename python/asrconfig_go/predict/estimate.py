"""Records of memory estimates; all sizes are bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core.checks import checked
from .._core.declared import WORDS, RowKind
from .._core.records import to_json
from .._core.render import Record, Shown, plot
from ..errors import InvalidArgumentError, UnsupportedError
from .memory_settings import Calibration, MemorySettings, Shape, Target
from .predict_records import EstimateRecord
from .snapshot import PredictedRun, SavedSnapshot, snapshot_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .opened_trace import OpenedTrace


_LOCAL = {"local": True}


@dataclass(frozen=True)
class EvaluationMemory:
    """The memory of evaluating the same model, as ``Trainer.evaluate`` does.

    Attributes:
        batch: The clips of a batch.
        seconds: The seconds of its longest clip.
        peak_allocated: The peak of allocated bytes in one batch, without outputs of earlier batches.
        peak_reserved: The peak of reserved bytes in one batch, likewise.
        resident_bytes: The bytes on the GPU between batches: weights, buffers and the optimizer's state.
        outputs_bytes_per_sample: The bytes that the Trainer keeps of each clip: logits, and a Whisper model's last
            encoder states.
        generation_cache_bytes: The bytes of the key-value cache of generating for one batch; None for a model that does
            not generate.
    """

    batch: int
    seconds: float
    peak_allocated: int
    peak_reserved: int
    resident_bytes: int
    outputs_bytes_per_sample: int
    generation_cache_bytes: int | None

    def gpu_bytes(self, samples: int, eval_accumulation_steps: int | None = None) -> int:
        """Return the peak of allocated GPU memory in an evaluation.

        Without ``eval_accumulation_steps`` the outputs of all clips stay on the GPU, and each batch's are appended by a
        copy of all (transformers.trainer_pt_utils.nested_concat), which doubles them for a moment.

        Args:
            samples: The clips of the evaluation, at least 1.
            eval_accumulation_steps: The batches after which outputs are moved to the host, as in TrainingArguments;
                None for never.

        Returns:
            The bytes.

        Raises:
            InvalidArgumentError: A value is below 1.
        """
        outputs = self._samples_at_once(samples, eval_accumulation_steps) * self.outputs_bytes_per_sample
        return max(self.peak_allocated + outputs, self.resident_bytes + 2 * outputs)

    def host_bytes(self, samples: int, eval_accumulation_steps: int | None = None) -> int:
        """Return the host memory of an evaluation's outputs, in fp32.

        With ``eval_accumulation_steps`` the arrays grow on the host, and appending doubles them for a moment
        (EvalLoopContainer.to_cpu_and_numpy). ``preprocess_logits_for_metrics`` makes both figures small.

        Args:
            samples: The clips of the evaluation, at least 1.
            eval_accumulation_steps: The batches after which outputs are moved to the host, as in TrainingArguments;
                None for never.

        Returns:
            The bytes.

        Raises:
            InvalidArgumentError: A value is below 1.
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

    Sizes are bytes. No safety margin is applied. Where the training does not fit, the peaks are those of a GPU that is
    large enough.

    Attributes:
        estimator: ``"trace"`` (a recorded training step, replayed through a simulation of the allocator) or
            ``"published"`` (a tenth of the model's memory per clip).
        peak_allocated: What tensors take.
        peak_reserved: What PyTorch's allocator takes from the driver for them.
        peak_device: ``peak_reserved`` and the driver's context; None without a GPU.
        pinned_bytes: The host memory that offloaded checkpoints pin for one micro-batch; None where it is not known.
        fits: Whether the GPU has that much; None without a GPU.
        out_of_memory: Where the run would stop; None where it fits.
        fragmentation: The share of the reserved memory that no tensor holds at the peak, 0 to 1.
        approximate: The number of tensors whose size is not an exact polynomial of the shape.
        model: The name of the model, and the traced class.
        shape: The micro-batch; None for a loop recorded without shapes.
        settings: The training settings.
        target: The GPU, with its memory; empty without one.
        calibration: The measurement that corrected the reserved bytes; None if there was none.
        evaluation: The memory of an evaluation; None unless asked for.
        remedies: Changes with which the training would fit, in words, or that none does.
        warnings: What the estimate could not answer, in words.
        row_kind: ``"clips"`` or ``"texts"``.
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
        """The bytes of the GPU that are left at the peak; negative when it is too small, None without a GPU."""
        if self.peak_device is None or self.target.available_bytes is None:
            return None
        return self.target.available_bytes - self.peak_device

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON object.

        Returns:
            The fields by their names; ``gpu`` is the target, None without one.
        """
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

        It holds the allocations, frees and segments of the steps that the estimate is about, the newest 200 000 of
        them, with operation, modules and phase as their stacks. The peak of its events is ``peak_requested``, as sizes
        in PyTorch's own events are not rounded; the peak of its segments is ``peak_reserved``, without the correction
        of a calibration. For a run that does not fit, it is the run on a GPU that is large enough.

        Args:
            path: The file to write, whose name ends in .pickle.

        Returns:
            The path, and how many events were written.

        Raises:
            InvalidArgumentError: The suffix is not .pickle, the estimate is by a formula or was copied, or its
                ``MemoryModel`` is closed.
            NotFoundError: The file cannot be written.
        """
        file = snapshot_path(path)
        if self._run is None:
            raise InvalidArgumentError(
                f"cannot save a snapshot to {file}: estimator={self.estimator!r} has no allocations",
                'ask with estimator="trace", which needs torch and transformers',
            )
        return self._run.save(file)

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the timeline by component with matplotlib.

        Args:
            ax: The axes to draw on; None for a new figure.

        Returns:
            The axes.

        Raises:
            InvalidArgumentError: The estimate has no timeline.
            UnsupportedError: matplotlib is not installed.
        """
        if self.timeline is None or len(self.timeline.event) < 2:
            raise InvalidArgumentError("the estimate has no timeline", 'only estimator="trace" has one')
        return plot("memory", self._shown(), ax)


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
