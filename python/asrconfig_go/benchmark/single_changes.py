"""Single changes to a plan: those to try on this machine, and why others are skipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ..config import TrainingConfig
from ..errors import InvalidArgumentError

_WORKERS = (0, 1, 2, 4, 8)
_PREFETCH = (1, 2, 4, 8)
OPTIONS = (
    "precision", "workers", "prefetch", "persistent", "pin", "compile", "cudnn_benchmark", "tf32", "checkpointing",
    "attention", "order",
)  # fmt: skip
"""Names of what can be swept."""


@dataclass(frozen=True)
class Place:
    """The device of the training: a GPU with its compute capability, (8, 0) for an A100, or a CPU."""

    gpu: bool
    capability: tuple[int, int]
    bf16: bool
    cores: float

    @classmethod
    def here(cls, cores: float) -> Place:
        """This machine."""
        import torch

        if not torch.cuda.is_available():
            return cls(False, (0, 0), True, cores)
        return cls(True, torch.cuda.get_device_capability(), torch.cuda.is_bf16_supported(), cores)


@dataclass(frozen=True)
class Change:
    """``value`` of ``option`` by ``fields`` of the plan, unless ``why_not`` has a reason not to try it."""

    option: str
    value: str
    fields: dict[str, Any]
    why_not: str = ""

    @property
    def words(self) -> str:
        """The fields as keyword arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self.fields.items())

    def of(self, plan: TrainingConfig) -> TrainingConfig:
        """The plan with it."""
        return TrainingConfig.from_dict({**plan.to_dict(), **self.fields})


def changes(names: Iterable[str], plan: TrainingConfig, place: Place, attention: str) -> list[Change]:
    """The changes to try; ``attention`` is the model's now. Raises ``InvalidArgumentError`` for unknown names."""
    options = tuple(dict.fromkeys(names))
    for name in options:
        if name not in OPTIONS:
            raise InvalidArgumentError(f"there is no option {name!r} to sweep", f"choose among {', '.join(OPTIONS)}")
    candidates = list(_changes(plan, place, attention))
    if options == OPTIONS and not place.gpu:
        skipped = _skipped("compile", "on a CPU it compiles for minutes; name it in sweep to try it")
        candidates = [skipped if change.option == "compile" else change for change in candidates]
    return [change for name in options for change in candidates if change.option == name]


def _changes(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    refused = {
        "fp16": "" if place.gpu else "the Trainer refuses it on a CPU",
        "bf16": "" if place.bf16 else "the GPU does not support it",
        "fp32": "",
    }
    for value, reason in refused.items():
        if value != plan.precision:
            precision = {"fp16": value == "fp16", "bf16": value == "bf16"}
            yield _skipped("precision", reason, value) if reason else Change("precision", value, precision)

    workers = plan.dataloader_num_workers
    for count in _WORKERS:
        if count != workers and count <= max(1, place.cores):
            prefetch = None if count == 0 else plan.dataloader_prefetch_factor or 2
            loader = {"dataloader_num_workers": count, "dataloader_prefetch_factor": prefetch}
            yield Change("workers", f"{count}", loader)
    if workers == 0:
        yield _skipped("prefetch", "the plan has no workers, and nobody else prefetches")
        yield _skipped("persistent", "the plan has no workers")
    else:
        for count in _PREFETCH:
            if count != plan.dataloader_prefetch_factor:
                yield Change("prefetch", f"{count}", {"dataloader_prefetch_factor": count})
        yield _skipped("persistent", "counts once an epoch, not in a step: see the loader's time to start workers")

    if place.gpu:
        yield _toggled("pin", "dataloader_pin_memory", plan)
    else:
        yield _skipped("pin", "there is no GPU to copy to")
    yield _toggled("compile", "torch_compile", plan)
    if place.gpu and not plan.deterministic:
        yield _toggled("cudnn_benchmark", "cudnn_benchmark", plan)
    else:
        reason = "the plan is deterministic" if place.gpu else "cuDNN is for NVIDIA GPUs"
        yield _skipped("cudnn_benchmark", reason)
    if place.gpu and place.capability >= (8, 0):
        yield _toggled("tf32", "tf32", plan)
    else:
        yield _skipped("tf32", "requires compute capability 8.0 or newer")
    yield _toggled("checkpointing", "gradient_checkpointing", plan)

    reason = "" if place.gpu and find_spec("flash_attn") else "needs a GPU and the package flash-attn"
    reason = reason or ("" if plan.precision != "fp32" else "needs 16-bit arithmetic")
    for value, problem in (("eager", ""), ("sdpa", ""), ("flash_attention_2", reason)):
        if value != (plan.attn_implementation or attention):
            fields = {"attn_implementation": value}
            yield _skipped("attention", problem, value) if problem else Change("attention", value, fields)

    if plan.micro_batching != "memory":
        yield _skipped("order", "the Trainer makes the plan's batches")
        return
    for value in ("random", "bucketed"):
        if value != plan.length_handling:
            yield Change("order", value, {"length_handling": value, "group_by_length": False})


def _skipped(option: str, reason: str, value: str = "") -> Change:
    return Change(option, value, {}, reason)


def _toggled(option: str, field: str, plan: TrainingConfig) -> Change:
    value = not getattr(plan, field)
    return Change(option, "on" if value else "off", {field: value})
