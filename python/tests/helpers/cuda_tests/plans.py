"""A plan made, applied and trained by, and what watches its memory, on the stand-in CUDA runtime (forked.py)."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_standin
import torch
from cuda_standin.values import Values
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

import asrconfig_go as ac
from asrconfig_go.audio import CTCCollator
from asrconfig_go.data.splits import load_split
from asrconfig_go.plan.environment import Applied
from asrconfig_go.recipe import build_processor
from asrconfig_go.recipe.model_building import small_model
from asrconfig_go.watch import AdaptiveMemoryCallback, MemoryMonitor, report
from cuda_tests.process import torch_version
from tiny_training import tiny_trainer

MIB = 2**20
BATCH, STEPS = 8, 4
QUIET: dict[str, Any] = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}


class Peaks(TrainerCallback):  # type: ignore[misc]
    """torch.cuda's peaks of each step, read before the memory callback lets them start again."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.reserved: list[int] = []

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.allocated.append(torch.cuda.max_memory_allocated())
        self.reserved.append(torch.cuda.max_memory_reserved())


def planned(folder: str) -> dict[str, Any]:
    """Plan for the GPU that is here, apply, train with guard and memory callback, report."""
    os.environ["ASRCONFIG_CACHE"] = str(Path(folder) / "cache")  # so that the model is traced here
    clips = load_split("train")
    processor = build_processor(clips["text"], "tiny-wav2vec2")
    collate, model = CTCCollator(processor), small_model(len(processor.tokenizer), 0)
    config, manager = ac.create_optimal_config(clips, model, target_batch_size=BATCH, verbose=False)
    started = torch.cuda.is_initialized()
    environment = _allocator(config.apply(model))
    arguments = config.to_training_arguments(
        folder, model=model, max_steps=STEPS, dataloader_num_workers=0, remove_unused_columns=False, **QUIET
    )
    peaks, watching = Peaks(), manager.callback(panel=False, interval_ms=5)
    trainer = Trainer(model, arguments, train_dataset=clips, data_collator=collate, callbacks=[peaks, watching])
    guard = manager.attach(trainer, rule="mean")
    with Values():
        manager.train(trainer, verbose=False)
    found = report(folder).gpus[0]
    return {
        "planned": [config.gpu_name, config.gpu_memory_bytes, config.precision, config.effective_batch_size],
        "started": started,
        "environment": environment,
        "late": _allocator_when_cuda_runs(config),
        "expandable": sorted({s["is_expandable"] for s in torch.cuda.memory._snapshot()["segments"]}),
        "device": str(model.device),
        "guard": [guard.unfit, [str(event) for event in guard.events]],
        "trained": [trainer.state.global_step, str(manager.report)],
        "torch": [max(peaks.allocated), max(peaks.reserved), torch.cuda.get_device_properties(0).total_memory],
        "reported": [found.allocated_peak_bytes, found.reserved_peak_bytes, found.total_bytes],
        "used": found.used_peak_bytes,
        "predicted": sum(part.bytes for part in config.memory_parts if part.name != "context"),
        "unsupported": cuda_standin.unsupported(),
    }


# torch 2.4 knows the older name alone.
ALLOC_CONF = "PYTORCH_ALLOC_CONF" if torch_version() >= (2, 5) else "PYTORCH_CUDA_ALLOC_CONF"


def _allocator(applied: Applied) -> list[str]:
    """What became of the allocator's settings: status, name, value and reason."""
    return [
        text
        for setting in applied.settings
        if setting.name == ALLOC_CONF
        for text in (setting.state, str(setting.value), setting.why)
    ]


def _allocator_when_cuda_runs(config: ac.TrainingConfig) -> list[str]:
    """The same for other settings that come when CUDA has started, with the classes of the warnings."""
    config.alloc_conf = "expandable_segments:True,max_split_size_mb:64"
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        told = _allocator(config.apply())
    return [*told, *(type(warning.message).__name__ for warning in met), os.environ[ALLOC_CONF]]


class Rising(TrainerCallback):  # type: ignore[misc]
    """Before step n holds the share ``held[n]`` of the GPU, and keeps ``cached[n]`` more as unused cache."""

    def __init__(self, held: tuple[float, ...], cached: tuple[float, ...], settled: Callable[[], None]) -> None:
        self.shares, self.settled = list(zip(held, cached, strict=True)), settled
        self.tensors: list[torch.Tensor] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        held, cached = self.shares[state.global_step]
        total = torch.cuda.get_device_properties(0).total_memory
        self.tensors.clear()
        torch.cuda.empty_cache()
        others = torch.cuda.memory_reserved()  # the model, and workspaces that torch before 2.15 keeps
        unused = torch.empty(int(cached * total), dtype=torch.uint8, device="cuda")
        self.tensors.append(torch.empty(int(held * total) - others, dtype=torch.uint8, device="cuda"))
        del unused
        self.settled()


def watched(folder: str) -> dict[str, Any]:
    """Thresholds of the callback, and a monitor's figures, while real allocations rise."""
    figures = _monitored()
    monitors: list[MemoryMonitor] = []

    def make() -> MemoryMonitor:
        monitors.append(MemoryMonitor(2))
        return monitors[0]

    # A step of each: nothing; a warning; no second; its end; none so soon; what is cached counts as free; a clean-up.
    held, cached = (0.5, 0.92, 0.93, 0.5, 0.91, 0.6, 0.95), (0, 0, 0, 0, 0, 0.35, 0.01)
    rising = Rising(held, cached, lambda: settle(monitors[0]))
    quiet: Any = {"panel": False, "run_file": False, "progress": False}
    # The steps are short: looked at once in an interval, most would not be.
    watching = AdaptiveMemoryCallback(monitor=make, cooldown_s=3600, interval_ms=1e-6, **quiet)
    said = _Said()
    trainer = tiny_trainer(Path(folder), samples=28, use_cpu=False, callbacks=[watching, rising, said])
    trainer.train()
    summary = watching.summary()
    return {
        "figures": figures,
        "said": said.lines,
        "counted": [summary.warnings, summary.clean_ups],
        "peak": summary.gpu_peaks[0],
        "held": rising.tensors[0].nbytes,
        "reserved": torch.cuda.memory_reserved(),
    }


class _Said(TrainerCallback, logging.Handler):  # type: ignore[misc]
    """What the product logs of memory, with the step before which it did."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.step, self.lines = 0, list[Any]()
        logging.getLogger("asrconfig_go").addHandler(self)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.step = state.global_step + 1

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("GPU 0 "):
            self.lines.append([self.step, record.getMessage()])


def settle(monitor: MemoryMonitor) -> None:
    """Wait for a sample that began after this call: the second one from here."""
    wanted = monitor.read().samples + 2
    while monitor.read().samples < wanted:
        time.sleep(0.001)


def _monitored() -> list[list[Any]]:
    """Used and free bytes by the monitor and by the runtime, PyTorch's by both, as memory fills and empties."""
    found, held = list[list[Any]](), list[torch.Tensor]()

    def note(monitor: MemoryMonitor) -> None:
        settle(monitor)
        monitor.step()
        gpu, (free, total) = monitor.read().gpus[0], torch.cuda.mem_get_info()
        theirs = [total, total - free, free, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
        found.append([[gpu.total, gpu.used, gpu.free, gpu.allocated, gpu.reserved], theirs, gpu.peak, gpu.headroom])

    with MemoryMonitor(2) as monitor:
        for size in (300, 500, 1000):
            held.append(torch.empty(size * MIB, dtype=torch.uint8, device="cuda"))
            note(monitor)
        held.clear()
        note(monitor)
        torch.cuda.empty_cache()
        note(monitor)
    return found
