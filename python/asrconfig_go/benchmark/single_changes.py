"""Single changes to a plan: those to try on this machine, and why others are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from .._base.errors import InvalidArgumentError
from ..config import TrainingConfig

_WORKERS = (0, 1, 2, 4, 8)
_PREFETCH = (1, 2, 4, 8)


@dataclass(frozen=True)
class Place:
    """Where it is trained: a GPU with its compute capability, (8, 0) for an A100, or a CPU."""

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
    """``value`` of ``option``; ``fields`` of the plan are set so, unless ``why_not`` has a reason not to try it."""

    option: str
    value: str
    fields: dict[str, Any]
    why_not: str = ""

    @property
    def words(self) -> str:
        """As one writes it."""
        return ", ".join(f"{name}={value!r}" for name, value in self.fields.items())

    def of(self, plan: TrainingConfig) -> TrainingConfig:
        """The plan with it."""
        return TrainingConfig.from_dict({**plan.to_dict(), **self.fields})


def changes(names: Iterable[str], plan: TrainingConfig, place: Place, attention: str) -> list[Change]:
    """What there is to try; ``attention`` is what the model has now. ``InvalidArgumentError`` for unknown names."""
    asked, found = tuple(dict.fromkeys(names)), list[Change]()
    for name in asked:
        if name not in OPTIONS:
            raise InvalidArgumentError(f"there is no option {name!r} to sweep", f"choose among {', '.join(OPTIONS)}")
        if name == "compile" and asked == OPTIONS and not place.gpu:
            found.append(_not(name, "on a CPU it compiles for minutes; name it in sweep to try it"))
        else:
            found += _OF[name](plan, place, attention)
    return found


def _not(option: str, why: str, value: str = "") -> Change:
    return Change(option, value, {}, why)


def _precision(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    cannot = {
        "fp16": "" if place.gpu else "the Trainer refuses it on a CPU",
        "bf16": "" if place.bf16 else "the GPU does not support it",
        "fp32": "",
    }
    for value, why in cannot.items():
        if value != plan.precision:
            fields = {"fp16": value == "fp16", "bf16": value == "bf16"}
            yield _not("precision", why, value) if why else Change("precision", value, fields)


def _workers(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    for value in _WORKERS:
        if value != plan.dataloader_num_workers and value <= max(1, place.cores):
            prefetch = None if value == 0 else plan.dataloader_prefetch_factor or 2
            fields = {"dataloader_num_workers": value, "dataloader_prefetch_factor": prefetch}
            yield Change("workers", f"{value}", fields)


def _prefetch(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    if plan.dataloader_num_workers == 0:
        yield _not("prefetch", "the plan has no workers, and nobody else prefetches")
        return
    for value in _PREFETCH:
        if value != plan.dataloader_prefetch_factor:
            yield Change("prefetch", f"{value}", {"dataloader_prefetch_factor": value})


def _persistent(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    if plan.dataloader_num_workers == 0:
        yield _not("persistent", "the plan has no workers")
    else:
        yield _not("persistent", "counts once an epoch, not in a step: see what starting workers takes, at the loader")


def _pin(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    if not place.gpu:
        yield _not("pin", "there is no GPU to copy to")
    else:
        yield _turned("pin", "dataloader_pin_memory", plan)


def _compile(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    yield _turned("compile", "torch_compile", plan)


def _cudnn(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    if not place.gpu:
        yield _not("cudnn_benchmark", "cuDNN is for NVIDIA GPUs")
    elif plan.deterministic:
        yield _not("cudnn_benchmark", "the plan is deterministic")
    else:
        yield _turned("cudnn_benchmark", "cudnn_benchmark", plan)


def _tf32(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    if place.gpu and place.capability >= (8, 0):
        yield _turned("tf32", "tf32", plan)
    else:
        yield _not("tf32", "requires compute capability 8.0 or newer")


def _checkpointing(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    yield _turned("checkpointing", "gradient_checkpointing", plan)


def _attention(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    flash = "flash_attention_2"
    cannot = "" if place.gpu and find_spec("flash_attn") else "needs a GPU and the package flash-attn"
    cannot = cannot or ("" if plan.precision != "fp32" else "needs 16-bit arithmetic")
    now = plan.attn_implementation or attention
    for value, why in (("eager", ""), ("sdpa", ""), (flash, cannot)):
        if value != now:
            fields = {"attn_implementation": value}
            yield _not("attention", why, value) if why else Change("attention", value, fields)


def _order(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    if plan.micro_batching != "memory":
        yield _not("order", "the Trainer makes the plan's batches")
        return
    for value in ("random", "bucketed"):
        if value != plan.length_handling:
            yield Change("order", value, {"length_handling": value, "group_by_length": False})


def _turned(option: str, field: str, plan: TrainingConfig) -> Change:
    value = not getattr(plan, field)
    return Change(option, "on" if value else "off", {field: value})


_OF: dict[str, Callable[[TrainingConfig, Place, str], Iterator[Change]]] = {
    "precision": _precision, "workers": _workers, "prefetch": _prefetch, "persistent": _persistent, "pin": _pin,
    "compile": _compile, "cudnn_benchmark": _cudnn, "tf32": _tf32, "checkpointing": _checkpointing,
    "attention": _attention, "order": _order,
}  # fmt: skip
OPTIONS = tuple(_OF)
"""Names of what can be swept."""
