"""What the product predicts of a model of the zoo, beside a trace of the very batch that is trained on."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from material import MIDDLE, Row, Subject, rows_with_a_worst_batch
from torch.utils import _pytree as pytree

from asrconfig_go import create_optimal_config
from asrconfig_go.predict import MemoryModel

BATCH, ACCUMULATION = 4, 2
WAYS = ("collator", "processor", "neither")


def dataset(row: Row) -> Any:
    """The clips of a row's plan and of its training."""
    return rows_with_a_worst_batch(row.settings.get("seconds", (0.0, 10.0))[1], 2 * BATCH)


def worst(row: Row) -> list[dict[str, Any]]:
    """The rows of the largest micro-batch."""
    clips = dataset(row)
    return [clips[number] for number in range(BATCH)]


def subject(row: Row) -> Subject:
    """The middle size of the model, the same each time."""
    torch.manual_seed(0)
    return row.build(MIDDLE)


def plan(row: Row, way: str) -> dict[str, Any]:
    """Of ``create_optimal_config``: how memory was found, the peaks of ``BATCH`` clips, seconds, and the settings."""
    made = subject(row)
    if way == "processor" and made.processor is None:
        return {"outcome": "no processor here"}
    inputs = {"collator": {"collator": made.collate}, "processor": {"processor": made.processor}}.get(way, {})
    started = time.process_time()
    try:
        with _estimates() as asked:
            config = _planned(row, made.model, BATCH * ACCUMULATION, inputs)
    except Exception as error:
        return {"outcome": "error", "why": _words(error), "seconds": time.process_time() - started}
    settings = {
        "precision": config.precision,
        "optimizer": config.optimizer,
        "allocator": config.alloc_conf,
        "gradient_checkpointing": bool(config.gradient_checkpointing),
    }
    found = {"seconds": time.process_time() - started, "settings": settings, "why": _why(config.warnings)}
    peaks = [peak for step, peak in asked if step == (BATCH, ACCUMULATION)]
    if peaks and "failed" not in found["why"]:
        made_up = any("made up" in line for line in config.warnings)
        return found | {"outcome": "made-up batch" if made_up else "trace", **peaks[-1]}
    config = _planned(row, subject(row).model, BATCH, inputs)
    return found | {"outcome": "formula", "reserved": config.predicted_bytes}


def _planned(row: Row, model: Any, clips: int, inputs: dict[str, Any]) -> Any:
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        warnings.simplefilter("ignore")
        config, _ = create_optimal_config(
            dataset(row), model, gpu=row.settings.get("gpu", "T4"), target_batch_size=clips, num_train_epochs=1,
            precision=row.settings.get("precision", "fp16"), gradient_checkpointing=False, verbose=False,
            progress=False, loader_rate=1000.0, **inputs,
        )  # fmt: skip
    return config


@contextlib.contextmanager
def _estimates() -> Iterator[list[tuple[tuple[int, int | None], dict[str, int]]]]:
    """The micro-batch, their number and the peaks of every estimate that is asked for meanwhile."""
    asked: list[tuple[tuple[int, int | None], dict[str, int]]] = []
    original = MemoryModel.estimate

    def noting(self: Any, batch: int, *inputs: Any, **settings: Any) -> Any:
        answer = original(self, batch, *inputs, **settings)
        step = batch, settings.get("accumulation")
        asked.append((step, {"allocated": answer.peak_allocated, "reserved": answer.peak_reserved}))
        return answer

    MemoryModel.estimate = noting  # type: ignore[method-assign]
    try:
        yield asked
    finally:
        MemoryModel.estimate = original  # type: ignore[method-assign]


def traced(row: Row, settings: dict[str, Any]) -> dict[str, Any]:
    """The peaks from a trace of exactly the batch of ``worst``."""
    made = subject(row)
    batch = made.collate(worst(row))

    def fresh(*_: int) -> dict[str, Any]:
        """New tensors for each micro-batch, as a loader makes them: a recorder sees when they end."""
        return dict(pytree.tree_map_only(torch.Tensor, torch.clone, batch))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            memory = MemoryModel.trace(
                made.model, fresh, points=[(BATCH, 1, 1)], accumulation=ACCUMULATION,
                gpu=row.settings.get("gpu", "T4"), cache=False, progress=False, **settings,
            )  # fmt: skip
            with memory:
                answer = memory.estimate(BATCH, 1 / memory.length_per_second, 1, timeline=0)
    except Exception as error:
        return {"error": _words(error)}
    return {"allocated": answer.peak_allocated, "reserved": answer.peak_reserved}


def _why(warned: tuple[str, ...]) -> str:
    for word in ("unknown", "made up", "could not be traced", "tracing"):
        for line in warned:
            if word in line:
                return " ".join(line.split())[:300]
    return ""


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
