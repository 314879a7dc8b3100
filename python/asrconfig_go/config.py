"""The training configuration: every field can be overridden by attribute, and every override is checked."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._checks import MARGIN_RANGE, checked
from ._errors import InvalidArgumentError, NotFoundError, VersionMismatchError
from ._files import write_whole
from ._records import from_json, json_fields, to_json
from .compare_records import Range

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from .applied import Applied
    from .explain import Explanation
    from .launch import LaunchFiles
    from .selection import Selection

SCHEMA_VERSION = 2


@dataclasses.dataclass(frozen=True)
class Decision:
    """One setting with the reason for its value, numbers and units included."""

    setting: str
    value: str
    reason: str
    alternative: str = ""
    """What else it might be; empty when there is nothing to tell."""
    gain: str = ""
    """Of the value over the alternative: ``"1.4× faster"``, ``"needs 3.1 GB less"``."""


@dataclasses.dataclass(frozen=True)
class PlannedBucket:
    """A range of durations whose clips share micro-batches."""

    up_to_s: float
    clips: int
    micro_batch: int | None
    """What fits for its longest clip; None where that is not known."""


@dataclasses.dataclass(frozen=True)
class PlannedDevice:
    """What one GPU does in a step."""

    index: int
    name: str
    samples: int
    """Clips of an optimizer step."""
    micro_batch_size: int
    """Clips of the longest length that are computed at once."""
    peak_bytes: int
    """Predicted, context included."""
    budget_bytes: int
    """Available memory with the safety margin."""


@dataclasses.dataclass(frozen=True)
class MemoryPart:
    """A share of the predicted memory."""

    name: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class PlannedTimes:
    """What training takes: estimates, each a range."""

    step_s: Range
    """Seconds of an optimizer step."""
    epoch_hours: Range
    run_hours: Range
    """Hours of all epochs; evaluations and checkpoints are not counted."""
    audio_rate: Range
    """Seconds of audio trained on per second."""
    bound: str
    """The largest part of the time: compute, memory, launches, optimizer, exchange, overhead or loader."""
    calibrated: bool
    """By measured steps."""
    cost_usd: Range | None
    """Of the run on all GPUs; None where no price is known."""
    energy_kwh: Range | None
    """Of the run, GPUs alone; None where the board power is not known."""


@dataclasses.dataclass(frozen=True)
class Alternative:
    """Another way to train, beside the plan."""

    name: str
    what: str
    """In words and numbers: ``4 × 8, float16, checkpointing``."""
    fits: bool | None
    """None where that is not known."""
    peak_bytes: int | None
    """Predicted for a batch of the longest clips."""
    epoch_hours: Range | None
    """None where it does not fit, or nothing is known of the device's speed."""
    speed: float | None
    """Of the plan over this one: 1.5 is a plan 1.5 times as fast."""


def _between(low: float, high: float) -> Callable[[Any], str]:
    return lambda value: "" if low <= value <= high else f"must be between {low:g} and {high:g}"


def _one_of(*choices: str) -> Callable[[Any], str]:
    return lambda value: "" if value in choices else f"must be one of {', '.join(choices)}"


# Ranges of the fields that have one; each rule gives "" or what is wrong.
_RULES: dict[str, Callable[[Any], str]] = {
    "schema_version": _between(SCHEMA_VERSION, SCHEMA_VERSION),
    "preset": _one_of("balanced", "speed", "reproducible"),
    "target_batch_size": _between(1, 65536),
    "device_count": _between(1, 1024),
    "per_device_train_batch_size": _between(1, 65536),
    "gradient_accumulation_steps": _between(1, 65536),
    "per_device_eval_batch_size": _between(1, 65536),
    "dataloader_num_workers": _between(0, 256),
    "dataloader_prefetch_factor": _between(1, 256),
    "chunk_length_s": _between(0.1, 86400),
    "learning_rate": _between(1e-12, 10),
    "lr_scaling": _one_of("sqrt", "linear", "none"),
    "num_train_epochs": _between(1e-6, 1e6),
    "warmup_ratio": _between(0, 1),
    "weight_decay": _between(0, 1),
    "max_grad_norm": _between(0, 1e6),
    "seed": _between(0, 2**32 - 1),
    "safety_margin": _between(*MARGIN_RANGE),
    "micro_batching": _one_of("fixed", "memory"),
    "micro_batch_size": _between(1, 65536),
    "length_handling": _one_of("random", "grouped", "bucketed", "packed"),
    "max_length_s": _between(0.1, 86400),
    "eval_accumulation_steps": _between(1, 65536),
    "attn_implementation": _one_of("", "sdpa", "eager", "flash_attention_2"),
    "distributed": _one_of("none", "ddp", "zero1", "zero2", "zero3", "fsdp"),
}


@dataclasses.dataclass(repr=False)
class TrainingConfig:
    """A whole training configuration, named as in ``transformers.TrainingArguments`` where a name exists there.

    Assigning an attribute checks its type and range and raises ``InvalidArgumentError``; unknown names are refused with
    the nearest known one. An override changes nothing but its own field: ``effective_batch_size`` shows what results.
    Sizes are bytes, durations seconds.
    """

    schema_version: int
    policy: str
    preset: str
    target_batch_size: int
    device_count: int
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    per_device_eval_batch_size: int
    fp16: bool
    bf16: bool
    tf32: bool
    gradient_checkpointing: bool
    torch_compile: bool
    cudnn_benchmark: bool
    deterministic: bool
    dataloader_num_workers: int
    dataloader_prefetch_factor: int | None
    dataloader_pin_memory: bool
    dataloader_persistent_workers: bool
    streaming: bool
    cache_dataset: bool
    chunk_length_s: float | None
    group_by_length: bool
    learning_rate: float
    lr_scaling: str
    num_train_epochs: float
    warmup_ratio: float
    weight_decay: float
    max_grad_norm: float
    optimizer: str
    seed: int
    safety_margin: float
    gpu_name: str
    gpu_memory_bytes: int | None
    model_memory_bytes: int
    predicted_bytes: int
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]
    # Newer than schema version 1: what a plan of that version does.
    micro_batching: str = "fixed"
    micro_batch_size: int = 1
    length_handling: str = "random"
    length_buckets: tuple[PlannedBucket, ...] = ()
    max_length_s: float | None = None
    eval_accumulation_steps: int | None = None
    attn_implementation: str = ""
    freeze_feature_encoder: bool = False
    alloc_conf: str = ""
    distributed: str = "none"
    devices: tuple[PlannedDevice, ...] = ()
    predicted_high_bytes: int | None = None
    budget_bytes: int = 0
    memory_parts: tuple[MemoryPart, ...] = ()
    times: PlannedTimes | None = None
    alternatives: tuple[Alternative, ...] = ()

    @property
    def effective_batch_size(self) -> int:
        """Samples per optimizer step: micro-batch × accumulation × devices."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * self.device_count

    @property
    def precision(self) -> str:
        """``"bf16"``, ``"fp16"`` or ``"fp32"``."""
        return "bf16" if self.bf16 else "fp16" if self.fp16 else "fp32"

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in json_fields(TrainingConfig):
            raise InvalidArgumentError(f"TrainingConfig has no setting {name!r}", _nearest(name))
        object.__setattr__(self, name, _checked(name, value))

    def to_training_arguments(
        self,
        output_dir: str | os.PathLike[str],
        *,
        arguments_class: type[TrainingArguments] | None = None,
        model: Any = None,
        **overrides: Any,
    ) -> TrainingArguments:
        """Build ``transformers.TrainingArguments`` for the installed transformers (4.46 or newer).

        ``arguments_class`` is a subclass to build instead, such as ``Seq2SeqTrainingArguments``. ``model`` is
        looked at for ``ddp_find_unused_parameters``, which is True without it. ``overrides`` are
        TrainingArguments' own names and win over the plan. Settings that the installed version does not know are
        reported by an ``UnsupportedSettingWarning`` each, overrides it does not know are refused.
        """
        from .training_arguments import build

        return build(self, output_dir, overrides, arguments_class, model)

    def apply(self, model: Any = None, *, environment: bool = True, backends: bool = True) -> Applied:
        """Put in force what is not the Trainer's matter; call it first, before anything uses the GPU.

        ``environment``: PyTorch's allocator settings (``alloc_conf``), and what loader workers and deterministic
        kernels need; variables that are set already win, key by key. ``backends``: cuDNN's benchmark, deterministic
        kernels and TF32. ``model``: see ``prepare_model``.

        Gives what was done, what could not be done and why. A setting that comes too late is told by a
        ``TooLateWarning``, one that the model's class cannot do by an ``UnsupportedSettingWarning``.
        """
        from .apply import apply

        return apply(self, model, environment, backends, stacklevel=2)

    def loader_settings(self, *, start_method: str | None = None) -> dict[str, Any]:
        """Keywords for a ``torch.utils.data.DataLoader`` of one's own: workers, prefetching, pinned memory.

        ``start_method`` of the workers: None is Python's own, ``"fork"`` on Linux before Python 3.14. Take ``"spawn"``
        or ``"forkserver"`` where workers use CUDA or call this package (a forked child can do neither); what they load
        must then be picklable, and a script needs ``if __name__ == "__main__"``. Raises ``InvalidArgumentError`` for
        one that this system does not have.
        """
        from .loader import loader_settings

        return loader_settings(self, start_method)

    def select(self, dataset: Any, durations: Sequence[float] | None = None) -> tuple[Any, Selection]:
        """``dataset`` without the clips that the plan leaves out, and what was left out (see ``select_clips``).

        ``dataset`` is a ``datasets.Dataset``, a list or a torch dataset with a length; ``durations`` are its clips'
        seconds, measured by ``scan_audio`` if None. Where nothing is left out, the dataset itself is given. Raises
        ``InvalidArgumentError`` for streams and dictionaries, ``EmptyDatasetError`` when nothing is left.
        """
        from .selection import select

        return select(dataset, durations, self)

    def max_steps(self, clips: int) -> int:
        """Optimizer steps of ``num_train_epochs`` over ``clips`` clips, the last of each epoch not always whole.

        So newer Trainers count; transformers 4.46 leaves out an epoch's last step if it is not whole. A streamed
        dataset has no length, so the Trainer wants ``max_steps=config.max_steps(clips)``.
        """
        from .loader import max_steps

        return max_steps(self, clips)

    def launch_files(self, folder: str | os.PathLike[str], **options: Any) -> LaunchFiles:
        """Write the plan for torchrun, accelerate and DeepSpeed: see ``asrconfig_go.launch.launch_files``."""
        from .launch import launch_files

        return launch_files(self, folder, **options)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of ``save``."""
        return dict(to_json(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainingConfig:
        """The inverse of ``to_dict``; unknown or missing keys and newer schemas are refused with a hint."""
        version = data.get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise VersionMismatchError(
                f"the configuration has schema version {version}, this package reads up to {SCHEMA_VERSION}",
                "upgrade: pip install -U asrconfig-go",
            )
        for name in data:
            if name not in json_fields(TrainingConfig):
                raise InvalidArgumentError(f"the configuration has an unknown setting {name!r}", _nearest(name))
        if version == 1:
            data = {**_since_version_2(data), **data, "schema_version": SCHEMA_VERSION}
        missing = [name for name in json_fields(TrainingConfig) if name not in data]
        if missing:
            raise InvalidArgumentError(
                f"the configuration lacks {', '.join(missing)}", "save it again with save_config"
            )
        return from_json(cls, {name: data[name] for name in json_fields(TrainingConfig)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON to ``path``, whole or not at all."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        try:
            write_whole(Path(path), text.encode())
        except OSError as error:
            raise NotFoundError(
                f"cannot write {path}: {error}", "choose a folder that exists and can be written"
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrainingConfig:
        """Read what ``save`` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise NotFoundError(f"cannot read the configuration {path}: {error.strerror}", "check the path") from error
        except ValueError as error:
            raise InvalidArgumentError(f"{path} is not JSON: {error}", "save it again with save_config") from error
        if not isinstance(data, dict):
            raise InvalidArgumentError(f"{path} holds no JSON object", "save it again with save_config")
        return cls.from_dict(data)

    def explain(self) -> Explanation:
        """The whole plan with its reasons, alternatives and cautions; ``manager.explain()`` knows the machine, too."""
        from .explain import Explanation

        return Explanation(self)

    def __repr__(self) -> str:
        from .display import config_text

        return config_text(self)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


def _since_version_2(data: dict[str, Any]) -> dict[str, Any]:
    """What a plan of schema version 1 did without saying so."""
    newer = {
        f.name: to_json(f.default) for f in dataclasses.fields(TrainingConfig) if f.default is not dataclasses.MISSING
    }
    newer["micro_batch_size"] = data.get("per_device_train_batch_size", 1)
    newer["length_handling"] = "grouped" if data.get("group_by_length") else "random"
    newer["distributed"] = "ddp" if data.get("device_count") not in (None, 1) else "none"
    return newer


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, json_fields(TrainingConfig), n=1)
    return f"did you mean {near[0]!r}?" if near else "see dataclasses.fields(TrainingConfig) for the settings there are"


def _checked(name: str, value: Any) -> Any:
    value = checked(name, value, json_fields(TrainingConfig)[name])
    wrong = _RULES[name](value) if name in _RULES and value is not None else ""
    if wrong:
        raise InvalidArgumentError(f"{name} = {value!r} {wrong}", "choose a value in that range")
    return value
