"""Inputs of a memory estimate: training settings, shape of a batch, GPU, allocator, measured factors."""

from __future__ import annotations

import datetime
import json
import os
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from .._core import native
from .._core.checks import check_seconds, checked, in_range
from .._core.declared import WORDS, Precision, RowKind
from .._core.files import cache_folder, fingerprint, read_object, write_whole
from .._core.modules import installed_version
from .._core.records import from_json, to_json
from .._core.settings import ACCUMULATION, ALLOCATOR, OPTIMIZER, PRECISION, Checkpointing
from ..errors import AsrConfigError, InvalidArgumentError
from .hardware import HardwareProfile
from .predict_records import GPU


@dataclass(frozen=True)
class Calibration:
    """A measurement of real training steps beside their prediction. Sizes are bytes.

    Attributes:
        model: The name of the model, and the traced class.
        gpu: The name of the GPU.
        torch: The version of torch.
        day: The UTC date, as YYYY-MM-DD.
        batch: The clips of the micro-batch.
        seconds: The seconds of its longest clip.
        factor: The measured over the predicted peak of reserved memory.
        context_bytes: What the process had on the GPU besides the allocator's memory; None where the driver does not
            report it.
    """

    model: str
    gpu: str
    torch: str
    day: str
    batch: int
    seconds: float
    factor: float
    measured_allocated: int
    measured_reserved: int
    predicted_allocated: int
    predicted_reserved: int
    context_bytes: int | None

    def words(self) -> str:
        """Return the calibration in one line.

        Returns:
            The text, for people.
        """
        return f"calibrated on {self.gpu}, torch {self.torch}, {self.day}: factor {self.factor:.3f}"


def find_calibration(model_key: str | None, gpu: str) -> Calibration | None:
    """The calibration of this model on this GPU with the installed torch; None if there is none, or it is broken."""
    if model_key is None or not gpu:
        return None
    try:
        content = read_object(calibration_file(model_key, gpu, installed_version("torch")), "calibration", "")
        calibration = from_json(Calibration, content)
    except AsrConfigError:
        return None
    return calibration if 0.1 < calibration.factor < 10 else None


def store_calibration(model_key: str, calibration: Calibration) -> Path:
    """Keep a measurement for later estimates, in place of an earlier one."""
    path = calibration_file(model_key, calibration.gpu, calibration.torch)
    write_calibration(path, asdict(calibration))
    return path


def write_calibration(path: Path, content: object) -> None:
    """Replace the file's content. Raises ``OSError`` where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=2).encode())


def utc_day() -> str:
    """The UTC date, as YYYY-MM-DD."""
    return datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()


def calibration_file(*key: str) -> Path:
    """The file of a calibration, of memory or of time, with this key."""
    return cache_folder("calibrations") / f"{fingerprint(*key)}.json"


NEW, OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"


@lru_cache(maxsize=4)
def alloc_conf_names(folder: Path | None = None) -> tuple[str, ...]:
    """The variables from which the installed torch reads allocator settings, the preferred one first.

    The names are read from the library that uses them. torch 2.9 has the new name in libc10 only, and CUDA's allocator
    ignores it, so CUDA's own library is checked first. Without torch the new name is returned. ``folder`` holds torch's
    libraries.
    """
    spec = find_spec("torch")
    if folder is None and spec and spec.origin:
        folder = Path(spec.origin).parent / "lib"
    for pattern in ("*c10_cuda.*", "*c10_hip.*", "*c10.*"):
        for path in sorted(folder.glob(pattern)) if folder else ():
            content = b"\0" + path.read_bytes()
            names = tuple(name for name in (NEW, OLD) if b"\0" + name.encode() + b"\0" in content)
            if names:
                return names
    return (NEW,)


def allocator_in_force() -> str:
    """The allocator settings that torch reads in this process; "" for the defaults and for other allocator backends."""
    text = next((os.environ[name] for name in alloc_conf_names() if os.environ.get(name)), "")
    return text if (parse_alloc_conf(text) or {}).get("backend", "native") == "native" else ""


def parse_alloc_conf(text: str) -> dict[str, str] | None:
    """Parse ``key:value`` pairs, separated by commas outside brackets; None for malformed texts."""
    pairs, depth, start = [], 0, 0
    for i, letter in enumerate(text + ","):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            pairs.append(text[start:i].strip())
            start = i + 1
    split = [pair.partition(":") for pair in pairs if pair]
    if depth != 0 or any(not (key.strip() and mark and value.strip()) for key, mark, value in split):
        return None
    return {key.strip(): value.strip() for key, _, value in split}


MAX_BATCH = 65_536
MAX_LABELS = 1_000_000
MAX_ACCUMULATION = 65_536
MAX_LAYERS = 65_536
MAX_RANK = 4096
_DEFAULT_CAPABILITY = "8.0"  # of an unnamed GPU: Ampere, with every attention kernel


def positive(name: str, value: object, limit: int) -> int:
    """Return a whole number from 1 to ``limit``, else raise ``InvalidArgumentError``."""
    number: int = in_range(name, value, 1, limit, f"pass a whole number from 1 to {limit}", int)
    return number


@dataclass(frozen=True)
class MemorySettings:
    """The settings of a training that decide on its memory.

    Attributes:
        precision: ``"fp32"``, or ``"fp16"`` or ``"bf16"`` for mixed precision with fp32 weights.
        gradient_checkpointing: False, True, ``"reentrant"`` or ``"non_reentrant"``.
        optimizer: The Trainer's name of an optimizer.
        accumulation: The micro-batches of an optimizer step, 1 to 65536.
        freeze_feature_encoder: Whether the convolutional front end is frozen.
        allocator: The value of PYTORCH_CUDA_ALLOC_CONF. The default is that of a plan; ``""`` for PyTorch's own
            settings.
        every_n_layers: Every n-th layer is checkpointed, as transformers counts them; above 1 with transformers from
            5.23 on.
        offload_checkpoints: Whether checkpoints are saved in pinned host memory, with transformers from 5.23 on.
        lora_rank: Above 0, adapters of this rank are trained (see ``add_lora``).

    Raises:
        InvalidArgumentError: A value is out of its range, or a setting of checkpoints is passed without checkpointing.
    """

    precision: Precision = PRECISION
    gradient_checkpointing: bool | Checkpointing = False
    optimizer: str = OPTIMIZER
    accumulation: int = ACCUMULATION
    freeze_feature_encoder: bool = False
    allocator: str = ALLOCATOR
    every_n_layers: int = 1
    offload_checkpoints: bool = False
    lora_rank: int = 0

    def __post_init__(self) -> None:
        checked("precision", self.precision, Precision)
        checked("gradient_checkpointing", self.gradient_checkpointing, bool | Checkpointing)
        positive("accumulation", self.accumulation, MAX_ACCUMULATION)
        if positive("every_n_layers", self.every_n_layers, MAX_LAYERS) > 1 and self.gradient_checkpointing is False:
            raise InvalidArgumentError(
                f"every_n_layers = {self.every_n_layers} without checkpointing", "pass gradient_checkpointing=True, too"
            )
        if checked("offload_checkpoints", self.offload_checkpoints, bool) and self.gradient_checkpointing is False:
            raise InvalidArgumentError(
                "offload_checkpoints without checkpointing", "pass gradient_checkpointing=True, too"
            )
        checked("freeze_feature_encoder", self.freeze_feature_encoder, bool)
        if self.lora_rank != 0:
            positive("lora_rank", self.lora_rank, MAX_RANK)
        checked("allocator", self.allocator, str)
        checked("optimizer", self.optimizer, str)
        if not self.optimizer:
            raise InvalidArgumentError(
                "optimizer is empty", 'name one as the Trainer does, such as "adamw_torch_fused"'
            )

    @property
    def checkpointing(self) -> str:
        """``"off"``, ``"on"``, ``"reentrant"`` or ``"non_reentrant"``."""
        kind = self.gradient_checkpointing
        return kind if isinstance(kind, str) else "on" if kind else "off"

    def step_words(self) -> str:
        """Return the settings that decide how a step is computed, in words."""
        parts = [self.precision, self.optimizer, f"gradient checkpointing {self.checkpointing}"]
        parts += [f"every {self.every_n_layers} layers"] if self.every_n_layers > 1 else []
        parts += ["offloaded"] if self.offload_checkpoints else []
        parts += [f"LoRA of rank {self.lora_rank}"] if self.lora_rank else []
        return ", ".join(parts)

    def words(self) -> str:
        """Return all settings in one line."""
        parts = [self.step_words()]
        parts += [f"accumulation {self.accumulation}"] if self.accumulation > 1 else []
        parts += ["feature encoder frozen"] if self.freeze_feature_encoder else []
        parts += [self.allocator or "PyTorch's allocator settings"]
        return ", ".join(parts)


@dataclass(frozen=True)
class Shape:
    """The shape of a micro-batch.

    Attributes:
        batch: The clips, 1 to 65536.
        seconds: The seconds of the longest clip, above 0 and up to a day.
        labels: The tokens of the longest text, up to a million; None for the usual number of that duration.

    Raises:
        InvalidArgumentError: A value is out of its range.
    """

    batch: int
    seconds: float
    labels: int | None = None

    def __post_init__(self) -> None:
        positive("batch", self.batch, MAX_BATCH)
        check_seconds("seconds", self.seconds)
        if self.labels is not None:
            check_labels("labels", self.labels)

    def words(self, row_kind: RowKind = "clips") -> str:
        """``8 × 15 s`` or ``8 × 128 tokens``, with the labels where they were given."""
        labels = "" if self.labels is None else f", {self.labels} labels"
        return f"{self.batch} × {WORDS[row_kind].length(self.seconds)}{labels}"


def check_labels(name: str, labels: object) -> int:
    """Return a label length from 0 to a million tokens, else raise ``InvalidArgumentError``."""
    value: int = in_range(name, labels, 0, MAX_LABELS, "pass the tokens of the longest text", int)
    return value


@dataclass(frozen=True)
class Target:
    """The GPU that an estimate is for. Sizes are bytes.

    Without a GPU, all fields but ``compute_capability`` are None or ``""``.

    Attributes:
        total_bytes: The memory of the GPU.
        available_bytes: What this process may use in all.
        context_bytes: What the driver's context and, with several GPUs, NCCL take of it; the allocator gets the rest.
        context_high_bytes: What they may take at most.
        context_source: ``"measured"`` or ``"table"``.
        multiprocessors: Their number, which decides how large some kernels' buffers are.
        threads_per_multiprocessor: The threads that each holds, likewise.
    """

    name: str = ""
    compute_capability: str = _DEFAULT_CAPABILITY
    total_bytes: int | None = None
    available_bytes: int | None = None
    context_bytes: int | None = None
    context_high_bytes: int | None = None
    context_source: str = ""
    multiprocessors: int | None = None
    threads_per_multiprocessor: int | None = None

    @classmethod
    def find(cls, gpu: str | None, devices: int | None = None) -> Target:
        """Find a GPU of the catalogue, or this machine's; empty without one. An unknown name is a ``NotFoundError``.

        ``devices`` share a step: None for as many as ``gpu`` names, or one of this machine's.
        """
        gpus = HardwareProfile.detect(gpu).gpus[: devices or (None if gpu else 1)]
        if not gpus:
            return cls()
        devices = devices or len(gpus)
        index, card = min(enumerate(gpus), key=lambda item: _available(item[1], 0))
        request = {"gpu": to_json(card), "nccl": devices > 1, "gpus": devices}
        device = native.call("memory.device", request)
        context = device["context_bytes"] + device["nccl_bytes"]
        available = _available(card, _torch_bytes(index, context))
        return cls(
            card.name, card.compute_capability, card.memory_total_bytes, available, context, device["high"],
            "table", device["multiprocessors"], device["threads_per_multiprocessor"],
        )  # fmt: skip

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as two numbers."""
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)

    @property
    def limit_bytes(self) -> int | None:
        """The bytes that the allocator may reserve in total."""
        if self.available_bytes is None or self.context_bytes is None:
            return None
        return max(0, self.available_bytes - self.context_bytes)


def _available(gpu: GPU, reserved: int) -> int:
    """Free memory, and this process's own, which its training will use again.

    In a container the driver's process ids differ from the system's; ``reserved`` is then torch's figure.
    """
    if gpu.memory_free_bytes is None:
        return gpu.memory_total_bytes
    own = sum(p.memory_bytes or 0 for p in gpu.processes if p.pid == os.getpid())
    return min(gpu.memory_total_bytes, gpu.memory_free_bytes + (own or reserved))


def _torch_bytes(place: int, context: int) -> int:
    """The memory that torch uses on the GPU in this process; 0 before CUDA is initialized."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    reserved = int(torch.cuda.memory_reserved(place))
    return reserved + context if reserved else 0
