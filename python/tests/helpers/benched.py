"""Results of benchmarks made by hand: what a GPU and a CPU would have given."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from asrconfig_go.benchmark import (
    BenchmarkResult,
    Block,
    LoaderResult,
    OptionResult,
    Readings,
    Setting,
    SideResult,
    Spread,
    StepParts,
)
from asrconfig_go.benchmark.sides import mean_turn
from asrconfig_go.watch.watch_records import Finding

_NOISE = (0.99, 0.97, 1.04, 1.0, 1.02)


def block(seconds: float, steps: int = 4, *, waiting: float = 0.1, on_gpu: bool = True, **changed: Any) -> Block:
    """A block of equal steps, a share ``waiting`` of each for the loader."""
    each = seconds / steps
    rest = (1 - waiting) * each
    parts = StepParts(
        each, waiting * each, 0.3 * rest, 0.6 * rest, 0.06 * rest, 0.04 * rest, 2, 0.3 * rest if on_gpu else None
    )
    found = Block(seconds, 0.9 * seconds, (parts,) * steps, 1000.0, 900.0, 9.0, 2 * 2**30, 3 * 2**30, 100.0, 0)
    if not on_gpu:
        found = dataclasses.replace(found, peak_allocated_bytes=None, peak_reserved_bytes=None)
    return dataclasses.replace(found, **changed)


def side(name: str, seconds: float, use: float | None, noise: Sequence[float] = _NOISE, **changed: Any) -> SideResult:
    """Five blocks of 128 clips."""
    on_gpu = use is not None
    blocks = tuple(block(seconds * factor, on_gpu=on_gpu, **changed) for factor in noise)
    readings = Readings(use, 6 * 2**30, 16 * 2**30, 4 * 2**30) if on_gpu else Readings(ram_bytes=2**30)
    sizes = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    settings = {**sizes, "fp16": name == "plan"}
    return SideResult(name, settings, 128, 900.0, 9.0, 8.0, blocks, tuple(map(mean_turn, blocks)), readings)


def result(*, gpu: bool = True, **changed: Any) -> BenchmarkResult:
    """The figures of mission-like runs: 66.7 and 200 clips a second of 10 000."""
    original = side("your settings", 128 / (10_000 / 150), 0.55 if gpu else None, waiting=0.3)
    plan = side("plan", 128 / 200, 0.92 if gpu else None, _NOISE[::-1])
    loader = tuple(
        LoaderResult(n, ahead, Spread(r, 0.9 * r, 1.1 * r, 5), Spread(7 * r, 6 * r, 8 * r, 5), 0.2, 0.05)
        for n, ahead, r in ((0, None, 90.0), (1, 2, 85.0), (2, 2, 160.0), (2, 4, 164.0))
    )
    options = (
        OptionResult("precision", "bf16", "fp16=False, bf16=True", plan, Spread(1.21, 1.15, 1.3, 5)),
        OptionResult("workers", "0", "dataloader_num_workers=0", original, Spread(0.5, 0.45, 0.52, 5)),
        OptionResult("compile", "on", "torch_compile=True", problem="out of memory"),
        OptionResult("tf32", "", "", why_not="requires compute capability 8.0 or newer"),
    )
    finding = Finding("loader", "warn", "The GPU waits for the data loader", "of a step: waiting 30 %", "more", "", "")
    setting = Setting(
        "Wav2Vec2ForCTC", "Tesla T4", {"python": "3.12.1", "torch": "2.9.0"}, "2026-11-22 10:00",
        10_000, 32, 4, 5, 2, 0,
    )  # fmt: skip
    found = BenchmarkResult(
        setting, plan, original, loader, options,
        finding, "set bf16=True: 1.21 (1.15 to 1.30) times as fast over the rounds", notes=("plan: fp16 was left",),
    )  # fmt: skip
    return dataclasses.replace(found, **changed)
