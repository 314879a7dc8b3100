"""What held a run back, each with what shows it and one thing to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .._core import native
from .._core.records import from_json, to_json
from ..train.run_record import RunRecord
from .watch_records import Finding

if TYPE_CHECKING:
    from .run_log import RunLog


def diagnose(run_log: RunLog, run: Mapping[str, object] | None = None) -> tuple[Finding, ...]:
    """Findings about what a monitor saw, the gravest first; ``run`` is what is known of the training's settings."""
    findings = native.call("diagnosis.of", {"run_log": to_json(run_log), "run": dict(run or {})})
    return tuple(from_json(Finding, finding) for finding in findings or ())


# Of each the name in TrainingArguments and in a configuration, and its type.
_NAMES: dict[str, tuple[str, type]] = {
    "per_device_batch": ("per_device_train_batch_size", int),
    "accumulation": ("gradient_accumulation_steps", int),
    "workers": ("dataloader_num_workers", int),
    "prefetch": ("dataloader_prefetch_factor", int),
    "persistent_workers": ("dataloader_persistent_workers", bool),
    "pin_memory": ("dataloader_pin_memory", bool),
    "logging_steps": ("logging_steps", int),
    "eval_steps": ("eval_steps", int),
    "save_steps": ("save_steps", int),
}


def settings_of(sources: Iterable[object], record: RunRecord | None) -> dict[str, object]:
    """Of ``told``, objects with attributes or keys, each before those that know less; and of the guard's record."""
    settings: dict[str, object] = {}
    for one in sources:
        settings = _of(one) | settings
    if record is not None:
        size, accumulation, devices = record.batch
        settings |= {"per_device_batch": size, "accumulation": accumulation, "devices": devices}
    return settings


def _of(source: object) -> dict[str, object]:
    def value(name: str) -> object:
        return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)

    # A share of all steps, which some of them may be, is none of them.
    settings: dict[str, object] = {
        key: value(name) for key, (name, kind) in _NAMES.items() if type(value(name)) is kind
    }
    devices = value("world_size") or value("device_count")
    if type(devices) is int:
        settings["devices"] = devices
    if type(value("bf16")) is bool and type(value("fp16")) is bool:
        settings["precision"] = "bf16" if value("bf16") else "fp16" if value("fp16") else "fp32"
    return settings
