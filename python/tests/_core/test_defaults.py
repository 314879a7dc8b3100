"""Shared defaults are those of the library, and each is declared once; values outside a closed set are refused."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go
from asrconfig_go._core import declared, native, settings
from asrconfig_go._core.checks import checked
from asrconfig_go._core.records import to_json
from asrconfig_go.audio.loader_rate import LoaderSettings, measure_loader
from asrconfig_go.data.scan import DurationSettings, ScanSettings, add_durations, scan_audio
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.plan.launch_script import LaunchSettings, launch_files
from asrconfig_go.plan.plan_options import PlanOptions, PlanSettings
from asrconfig_go.predict.model_profile import profile_model
from asrconfig_go.watch.watch import WatchOptions, WatchSettings

MODEL = "wav2vec2-base"
_PRODUCT = {"name": "product", "kind": "gemm", "dtype": "float16", "batch": 1, "m": 400, "n": 1024, "k": 1024}
WORK: dict[str, Any] = {
    "operations": [{**_PRODUCT, "phase": phase, "kernels": 1, "times": 100} for phase in ("forward", "backward")],
    "trained_parameters": 94_396_320,
    "trained_tensors": 213,
}
TRACED: dict[str, Any] = {
    "precision": "fp16", "gradient_checkpointing": False, "every_n_layers": 1, "offload_checkpoints": False,
    "optimizer": settings.OPTIMIZER, "budget_bytes": 13_690_208_256, "memory": [{"seconds": 9.0, "batch": 48}],
    "peaks": [{"batch": 48, "bytes": 1 << 33}],
    "work": [{"batch": batch, "seconds": seconds, **WORK} for batch, seconds in ((1, 0.5), (8, 5.0), (1, 10.0))],
}  # fmt: skip
ASKED: dict[str, dict[str, Any]] = {
    "timing.step": {"gpu": "T4", "work": WORK},
    "timing.run": {"gpu": "T4", "work": WORK, "batch": 1, "seconds": 1.0, "steps": 10},
    "timing.compare": {"gpus": ["T4"], "data": {"clips": 1000, "mean_s": 5.0, "max_s": 9.0}, "traced": [[TRACED]]},
}


STEP: dict[str, tuple[Any, Any]] = {
    "optimizer": (settings.OPTIMIZER, "sgd"),
    "accumulation": (settings.ACCUMULATION, 2),
}
SHARED: dict[str, dict[str, tuple[Any, Any]]] = {
    "timing.step": STEP,
    "timing.run": STEP,
    "timing.compare": {
        "target_batch_size": (settings.TARGET_BATCH_SIZE, 48),
        "num_train_epochs": (settings.EPOCHS, 4.0),
        "safety_margin": (settings.SAFETY_MARGIN, 0.7),
        "workers": (settings.LOADER_WORKERS, 2),
    },
}


@pytest.mark.parametrize("op", SHARED)
def test_defaults_are_the_library_s(op: str) -> None:
    """What a request leaves out is what it says with the default, and not what it says with another value."""
    counted = {} if op == "timing.step" else {"model": to_json(profile_model(MODEL))}
    request = {**counted, **ASKED[op]}
    left_out = native.call(op, request)
    for name, (default, other) in SHARED[op].items():
        assert native.call(op, {**request, name: default}) == left_out, name
        assert native.call(op, {**request, name: other}) != left_out, name


@pytest.mark.parametrize("hint", [declared.Precision, declared.Precision | None, bool | settings.Checkpointing])
def test_a_value_outside_its_set_is_refused(hint: Any) -> None:
    for wrong in ("fp8", "", 3, ["fp16"], 1.0):
        with pytest.raises(InvalidArgumentError, match="is not one of"):
            checked("option", wrong, hint)
    assert checked("option", "fp16", declared.Precision) == "fp16"
    assert checked("option", True, bool | settings.Checkpointing) is True


@pytest.mark.parametrize(
    ("keywords", "record", "positional"),
    [
        (PlanSettings, PlanOptions, {"target_batch_size", "safety_margin"}),
        (WatchSettings, WatchOptions, set()),
    ],
)
def test_keywords_are_the_fields(keywords: type, record: type, positional: set[str]) -> None:
    fields = {field.name: field.type for field in dataclasses.fields(record) if field.name not in positional}
    assert {name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()} == fields


@pytest.mark.parametrize(
    ("keywords", "function", "explicit"),
    [
        (ScanSettings, scan_audio, {"source", "sample_size"}),
        (DurationSettings, add_durations, {"dataset", "column", "unit"}),
        (LoaderSettings, measure_loader, {"dataset", "processor"}),
        (LaunchSettings, launch_files, {"config", "folder"}),
    ],
)
def test_keywords_are_the_function_s(keywords: type, function: Any, explicit: set[str]) -> None:
    assert_same(keywords, function, explicit)


def test_keywords_of_what_needs_torch() -> None:
    pytest.importorskip("transformers")
    from asrconfig_go.audio import CTCCollator, Seq2SeqCollator
    from asrconfig_go.audio.processor_batches import CollatorSettings, ProcessorCollator
    from asrconfig_go.guard.guard_options import GuardOptions, GuardSettings

    assert_same(GuardSettings, GuardOptions, set())
    of_ctc, of_seq2seq, of_processor = (
        set(inspect.signature(collator).parameters) - {"processor"}
        for collator in (CTCCollator, Seq2SeqCollator, ProcessorCollator)
    )
    assert set(CollatorSettings.__annotations__) == of_ctc | of_processor - {"takes", "end"}
    assert of_seq2seq == of_ctc | {"decoder_start_token_id"}


def assert_same(keywords: type, function: Any, explicit: set[str]) -> None:
    parameters = inspect.signature(function).parameters
    assert keywords.__annotations__.keys() == parameters.keys() - explicit
    for name, hint in keywords.__annotations__.items():
        assert getattr(hint, "__forward_arg__", hint) == parameters[name].annotation, name


def test_shared_defaults_are_declared_once() -> None:
    """A figure of ``_core/settings.py`` stands nowhere else as a default."""
    package = Path(asrconfig_go.__file__).parent
    again = re.compile(
        r"(?:=|default=) ?(?:0\.85|16_?000(?:\.0)?|\"adamw_torch_fused\")(?=[,)\s])|batch_size: int = 32"
    )
    lines = [
        f"{file.relative_to(package)}: {line.strip()}"
        for file in package.rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if again.search(line) and file.name != "settings.py"
    ]
    assert lines == []
