"""Loops other than the Trainer's: plain PyTorch, accelerate, Lightning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.errors import UnsupportedError
from asrconfig_go.watch import AlertReporter, lightning_callback, report
from asrconfig_go.watch.telemetry import RunLog
from watching_fakes import FakeMonitor, alert

torch = pytest.importorskip("torch")

# Trains with two threads on two cores until the monitor warns, and saves the run log.
STARVED = """
import os, sys, time
os.sched_setaffinity(0, {cores})
import torch
from asrconfig_go import MemoryMonitor
from asrconfig_go.watch import AlertReporter
torch.set_num_threads(2)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
optimizer = torch.optim.AdamW(model.parameters())
with MemoryMonitor() as monitor:
    news, until = AlertReporter(monitor), time.monotonic() + {limit_s}
    while time.monotonic() < until and "cpu_contention" not in {{alert.kind for alert in monitor.alerts()}}:
        model(torch.randn(512, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.step()
    news.say()
monitor.save({run_log!r})
"""
STARVED_LIMIT_S = 120


def batches(number: int) -> Any:
    return torch.utils.data.DataLoader(torch.arange(4.0 * number).view(-1, 1), batch_size=4)


def test_a_plain_loop(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with ac.MemoryMonitor(interval_ms=10) as monitor:
        news = AlertReporter(monitor)
        for batch in batches(5):
            model(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(audio_s=4.0)
            news.say()
        with torch.no_grad():
            for batch in batches(2):
                model(batch)
                monitor.step(kind="evaluation")
    run_log = monitor.run_log()
    assert run_log.steps.number == (1, 2, 3, 4, 5, 5, 5)
    assert run_log.steps.kind == ("train",) * 5 + ("evaluation",) * 2
    assert run_log.steps.audio_s[:5] == (4.0,) * 5 and run_log.steps.audio_s[5:] == (None, None)
    monitor.save(tmp_path / "run.json")
    assert RunLog.load(tmp_path / "run.json").steps == run_log.steps


@pytest.mark.slow
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two cores on Linux")
def test_threads_that_wait_for_cores_are_warned_of(tmp_path: Path) -> None:
    cores = set(sorted(os.sched_getaffinity(0))[:2])
    busy = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {cores})\nwhile True: pass"])
    try:
        training = subprocess.run(
            [
                *(sys.executable, "-c"),
                STARVED.format(cores=cores, limit_s=STARVED_LIMIT_S, run_log=str(tmp_path / "run.json")),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=2 * STARVED_LIMIT_S,
            capture_output=True,
            text=True,
        )
    finally:
        busy.kill()
        busy.wait()
    assert training.returncode == 0, training.stderr
    assert "threads of this training wait for one → stop them, or torch.set_num_threads(1)" in training.stderr
    (finding,) = (finding for finding in report(tmp_path / "run.json").findings if finding.kind == "cpu_contention")
    assert "torch.set_num_threads(1)" in finding.change


def test_lightning_s_own_trainer(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch).mean()

        def validation_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    with ac.MemoryMonitor(interval_ms=10) as monitor:
        lightning.Trainer(
            default_root_dir=tmp_path,
            accelerator="cpu",
            max_epochs=1,
            accumulate_grad_batches=2,
            num_sanity_val_steps=0,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[lightning_callback(monitor)],
        ).fit(Module(), batches(6), batches(2))
    steps = monitor.run_log().steps
    recorded = list(zip(steps.kind, steps.number, strict=True))
    assert [number for kind, number in recorded if kind == "train"] == [1, 2, 3]
    assert [number for kind, number in recorded if kind == "evaluation"] == [3, 3]
    assert ("checkpoint", 3) in recorded
    texts = [event.text for event in monitor.run_log().events]
    assert "training begins after step 0" in texts and "training ends after step 3" in texts


def test_lightning_s_callback_needs_no_transformers() -> None:
    code = "import sys; sys.modules['transformers'] = None; from asrconfig_go.watch import lightning_callback"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_lightning_s_events_without_lightning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = ModuleType("pytorch_lightning")
    made.Callback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", made)
    monitor, trainer = FakeMonitor(), SimpleNamespace(global_step=0)
    callback = lightning_callback(monitor)  # type: ignore[arg-type]
    callback.on_fit_start(trainer, None)
    for trainer.global_step in (0, 1, 1, 2):
        callback.on_train_batch_end(trainer, None, None, None, 0)
    monitor.warn(alert(1, "memory grows"))
    callback.on_validation_batch_end(trainer, None, None, None, 0)
    callback.on_save_checkpoint(trainer, None, {})
    assert [(step["kind"], step["number"]) for step in monitor.steps] == [
        ("train", 1),
        ("train", 2),
        ("evaluation", None),
        ("checkpoint", None),
    ]
    assert [record.getMessage() for record in caplog.records] == ["memory grows"]
    monkeypatch.setattr(monitor, "step", lambda *_, **__: 1 / 0)
    for trainer.global_step in (3, 4):
        callback.on_train_batch_end(trainer, None, None, None, 0)
    assert len(caplog.records) == 2, "a failure is said once"

    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(UnsupportedError, match="Lightning"):
        lightning_callback(monitor)  # type: ignore[arg-type]
