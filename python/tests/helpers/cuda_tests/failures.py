"""A guarded training whose GPU memory runs out on the stand-in runtime, its prediction, and what is reported of it."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch
from cuda_standin.values import Values

from asrconfig_go import MemoryMonitor
from asrconfig_go.watch import report
from cuda_tests.ctc import guarded_trainer

GIB = 2**30


def reported_failures() -> dict[str, Any]:
    """Of each kind of snapshot: the records of the errors, the report as text and HTML, what the snapshots hold."""
    return {mode: _reported(mode) for mode in ("blocks", "history")}


def _reported(mode: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Values():
        with MemoryMonitor(interval_ms=100) as monitor:
            trainer, guard = guarded_trainer(folder, mode, memory_limit_bytes=GIB)
            trainer.train()
            guard.detach()
            monitor.save(Path(folder) / "asrconfig_monitor.json")
        told = report(folder)
        told.to_html(Path(folder) / "run.html")
        found = {
            "failures": [dataclasses.asdict(failure) for failure in told.failures],
            "events": [str(event) for event in guard.events],
            "text": str(told),
            "html": (Path(folder) / "run.html").read_text("utf-8"),
            "json": told.to_json()["out_of_memory"],
            "held": [_held(path) for path in sorted(Path(folder).glob("*.pickle"))],
            "notes": told.notes,
        }
    del trainer, guard
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # torch before 2.15 keeps them
    torch.cuda.empty_cache()
    return found


def _held(path: Path) -> int:
    snapshot = pickle.loads(path.read_bytes())
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    return sum(block["size"] for block in blocks if block["state"] == "active_allocated")
