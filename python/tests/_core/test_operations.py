"""Records made of the library's answers have the fields and types that Go declares, by ``capi/operations.json``."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from importlib import import_module
from typing import Any

import pytest

from asrconfig_go._core import native
from asrconfig_go._core.records import json_fields
from locations import REPOSITORY

CONTRACT = json.loads((REPOSITORY / "capi" / "operations.json").read_text("utf-8"))
SCALARS = {bool: ("boolean",), int: ("integer",), float: ("number", "integer"), str: ("string",)}
# Which record of the library each dataclass is made of.
RECORDS = {
    "guard.training_report.HeldRow": "peak.Row",
    "guard.training_report.PredictedMoment": "memory.Moment",
    "benchmark.measurements.Readings": "diagnosis.Readings",
    "watch.memory_monitor.MemoryCheck": "monitor.Check",
    "watch.memory_monitor.MemoryHistory": "monitor.History",
    "watch.run_log.Alert": "runlog.Alert",
    "watch.run_log.RunLog": "runlog.Log",
    "watch.diagnosis.Finding": "diagnosis.Finding",
    "watch.run_report.Band": "view.Band",
    "watch.run_report.GPUFigures": "view.GPUFigures",
    "watch.run_report.HostFigures": "view.HostFigures",
    "watch.run_report.Moment": "view.Moment",
    "watch.run_report.StepFigures": "view.StepFigures",
}
LEFT_OUT = {"view.Moment": "x"}  # not given on


def differences(hint: Any, declared: str, where: str) -> list[str]:
    """What Go's type may hold and the type hint does not."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return []
    if declared.startswith("list of ") and origin in (tuple, list):
        return [
            d
            for argument in arguments
            if argument is not Ellipsis
            for d in differences(argument, declared[8:], f"{where}[]")
        ]
    if declared.startswith("object of ") and dict in (origin, hint):
        return differences(arguments[1], declared[10:], f"{where}{{}}") if arguments else []
    if origin in (types.UnionType, typing.Union):
        (inner,) = (a for a in arguments if a is not type(None))
        return differences(inner, declared.removesuffix(" | null"), where)
    if origin is typing.Literal:
        return [d for kind in {type(a) for a in arguments} for d in differences(kind, declared, where)]
    if dataclasses.is_dataclass(hint) and declared in CONTRACT["records"]:
        return of_record(hint, declared, where)
    return [] if declared in SCALARS.get(hint, ()) else [f"{where}: {hint} is {declared} in Go"]


def of_record(cls: Any, declared: str, where: str) -> list[str]:
    fields, declared_fields = json_fields(cls), CONTRACT["records"][declared]
    declared_fields.pop(LEFT_OUT.get(declared), None)
    if fields.keys() != declared_fields.keys():
        return [f"{where}: {sorted(fields.keys() ^ declared_fields.keys())} in one of {cls.__name__} and {declared}"]
    return [d for name, hint in fields.items() for d in differences(hint, declared_fields[name], f"{where}.{name}")]


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_what_go_declares(name: str) -> None:
    module, _, cls = name.rpartition(".")
    record = getattr(import_module(f"asrconfig_go.{module}"), cls)
    assert of_record(record, RECORDS[name], cls) == []


def test_every_operation_of_the_library_is_described() -> None:
    assert sorted(CONTRACT["operations"]) == native.call("library.info")["operations"]
