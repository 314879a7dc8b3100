"""Disk space for checkpoints: warned of before the first step, and a full disk named with what helps."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asrconfig_go import ASRConfigManager
from asrconfig_go._core import files
from asrconfig_go._core.render import exact
from asrconfig_go.errors import NotFoundError, StorageError
from asrconfig_go.train import checkpoints
from asrconfig_go.train.checkpoints import checkpoint_bytes, saved_bytes
from tiny_training import Regression, tiny_trainer

SAVING: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}


@pytest.fixture
def manager() -> ASRConfigManager:
    return ASRConfigManager()


def failing_at(monkeypatch: pytest.MonkeyPatch, step: int, error: Exception) -> None:
    """Let torch.save leave half a file of this step's checkpoint."""
    real = torch.save

    def save(state: Any, path: Any, *args: Any, **options: Any) -> None:
        if f"checkpoint-{step}" in str(path):
            Path(path).write_bytes(b"begun")
            raise error
        real(state, path, *args, **options)

    monkeypatch.setattr(torch, "save", save)


def test_a_full_disk_at_a_checkpoint(manager: ASRConfigManager, tmp_path: Path, monkeypatch: Any) -> None:
    failing_at(monkeypatch, 6, OSError(errno.ENOSPC, "No space left on device"))
    trainer = tiny_trainer(tmp_path, **SAVING)
    with pytest.raises(NotFoundError, match="is full: it could not be written at step 6") as caught:
        manager.train(trainer, verbose=False)
    assert f"a checkpoint takes {exact(checkpoint_bytes(trainer.model, trainer.optimizer))}" in caught.value.message
    assert f"by removing {tmp_path / 'checkpoint-2'} (" in caught.value.hint, "what nothing continues from"
    assert f"{tmp_path / 'checkpoint-4'} is complete" in caught.value.hint
    assert not (tmp_path / "checkpoint-6").exists(), "half a checkpoint takes room"
    monkeypatch.undo()
    resumed = tiny_trainer(tmp_path, **SAVING)
    manager.train(resumed, resume=True, verbose=False)
    assert manager.report is not None
    assert (manager.report.resumed_from, manager.report.steps) == (str(tmp_path / "checkpoint-4"), 6)


def test_storage_that_is_lost_at_a_checkpoint(manager: ASRConfigManager, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(files, "pause_for", lambda _: None)
    failing_at(monkeypatch, 4, OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN)))
    with pytest.raises(StorageError, match="does not answer after 5 attempts: ") as caught:
        manager.train(tiny_trainer(tmp_path, **SAVING), verbose=False)
    assert "resume=True" in caught.value.hint
    assert str(tmp_path / "checkpoint-2") in caught.value.hint


def test_shared_memory_that_is_full_is_not_the_disk(tmp_path: Path) -> None:
    error = RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on device (28)")
    assert checkpoints._full_place(error, tmp_path) is None


def test_another_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "mount_of", lambda path: str(path)[:5])
    error = OSError(errno.ENOSPC, "No space left on device", "/cache/x.arrow")
    assert checkpoints._full_place(error, tmp_path) == Path("/cache")


@pytest.mark.parametrize(
    ("settings", "count"), [({}, 3), ({"save_total_limit": 1}, 2), ({"save_steps": 6}, 1), ({"save_strategy": "no"}, 0)]
)
def test_little_space_is_said_before_the_first_step(
    manager: ASRConfigManager, tmp_path: Path, monkeypatch: Any, caplog: Any, settings: dict[str, Any], count: int
) -> None:
    size = checkpoint_bytes(Regression())
    for free, warned in ((count * size - 1, count > 0), (count * size, False)):
        caplog.clear()
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        manager.train(tiny_trainer(tmp_path / str(free), **{**SAVING, **settings}), verbose=False)
        assert ("save_total_limit=1" in caplog.text) == warned
        assert not warned or f"{count} checkpoint" in caplog.text


def test_adapters_are_saved_alone() -> None:
    peft = pytest.importorskip("peft")
    inner = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
    full_size = saved_bytes(inner)
    model = peft.get_peft_model(inner, peft.LoraConfig(r=2, target_modules=["0"]))
    assert saved_bytes(model) == 4 * 2 * (64 + 64) < full_size
    assert checkpoint_bytes(model) == 3 * saved_bytes(model)
