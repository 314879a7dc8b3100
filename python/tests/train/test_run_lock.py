"""Two trainings in one folder: the second is refused by name, and a killed one leaves the folder to the next."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import ASRConfigManager
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.train import run_record
from asrconfig_go.train.run_record import RunLock
from locations import HELPERS, PYTHON

PATHS = os.pathsep.join([str(PYTHON), str(HELPERS)])


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has printed a line."""
    paths = os.pathsep.join(filter(None, [PATHS, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the folder's lock, and a child that was forked while it had."""
    process = started(
        """
        import os, sys, time
        from pathlib import Path
        from asrconfig_go.train.run_record import RunLock
        lock = RunLock(Path(sys.argv[1]) / ".asrconfig")
        if os.fork() == 0:
            print("ready", flush=True)  # by the child, which has given the lock up by now
            time.sleep(20)
            os._exit(0)
        time.sleep(60)
        """,
        str(tmp_path),
    )
    try:
        yield process
    finally:
        end(process)


def test_the_error_names_owner_age_and_what_to_do(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        RunLock(tmp_path / ".asrconfig")
    message = f"{tmp_path} is in use by process {owner.pid} on {socket.gethostname()}, which began "
    assert caught.value.message.startswith(message)
    assert caught.value.message.removeprefix(message).startswith(f"{datetime.now():%Y}-")
    assert "choose another output_dir" in caught.value.hint


def test_a_killed_owner_leaves_the_folder(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    """Though a loader's worker of its lives on."""
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    lock = RunLock(tmp_path / ".asrconfig")
    assert json.loads((tmp_path / ".asrconfig" / "lock").read_text())["pid"] == os.getpid()
    lock.release()
    assert not (tmp_path / ".asrconfig" / "lock").read_text()
    RunLock(tmp_path / ".asrconfig").release()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of the lock that is dropped
def test_one_process_has_it_once_too(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    with pytest.raises(InvalidArgumentError, match=f"process {os.getpid()} on"):
        RunLock(tmp_path)
    del lock
    RunLock(tmp_path).release()


@pytest.mark.parametrize(
    ("owner", "free"),
    [
        ({"pid": 2**22 + 1, "host": socket.gethostname(), "since": 0.0}, True),
        ({"pid": os.getpid(), "host": socket.gethostname(), "since": 0.0}, False),
        ({"pid": 2**22 + 1, "host": "elsewhere", "since": time.time() - 7300}, False),
        ({}, True),
    ],
)
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: dict[str, Any], free: bool
) -> None:
    class Without:
        LOCK_EX, LOCK_NB = 2, 4

        @staticmethod
        def flock(*_: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(run_record, "fcntl", Without)
    (tmp_path / "lock").write_text(json.dumps(owner))
    if free:
        RunLock(tmp_path).release()
        return
    with pytest.raises(InvalidArgumentError, match="is in use by process") as caught:
        RunLock(tmp_path)
    assert "elsewhere" not in str(owner) or f"which began {datetime.now():%Y}-" in caught.value.message
    assert f"remove {tmp_path / 'lock'}" in caught.value.hint


def test_a_folder_that_cannot_be_written_has_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    RunLock(tmp_path / "file" / ".asrconfig").release()


@pytest.mark.slow
def test_two_trainings_in_one_folder(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from tiny_training import tiny_trainer

    first = started(
        """
        import sys, time
        from pathlib import Path
        from transformers import TrainerCallback
        from asrconfig_go import ASRConfigManager
        from tiny_training import tiny_trainer
        class Slow(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if state.global_step == 3:
                    print("ready", flush=True)
                    time.sleep(60)
        trainer = tiny_trainer(Path(sys.argv[1]), callbacks=[Slow()], save_strategy="steps", save_steps=2)
        trainer.callback_handler.callbacks = [c for c in trainer.callback_handler.callbacks if "Printer" not in str(c)]
        ASRConfigManager().train(trainer)
        """,
        str(tmp_path),
    )
    try:
        record = (tmp_path / ".asrconfig" / "run.json").read_bytes()
        for resume in (False, True):
            with pytest.raises(InvalidArgumentError, match=f"in use by process {first.pid}"):
                ASRConfigManager().train(tiny_trainer(tmp_path), resume=resume)
        assert (tmp_path / ".asrconfig" / "run.json").read_bytes() == record
    finally:
        end(first)
    manager = ASRConfigManager()
    manager.train(tiny_trainer(tmp_path, save_strategy="steps", save_steps=2), resume=True)
    assert manager.report is not None and manager.report.resumed_from.endswith("checkpoint-2")
    assert not (tmp_path / ".asrconfig" / "lock").read_text()


def test_what_is_refused_leaves_the_folder_though_its_exception_is_kept(tmp_path: Path) -> None:
    """As notebooks keep it, with the frames that hold the training."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from tiny_training import tiny_trainer

    ASRConfigManager().train(tiny_trainer(tmp_path, save_strategy="epoch"))
    with pytest.raises(InvalidArgumentError, match="17 rows") as error_info:
        ASRConfigManager().train(tiny_trainer(tmp_path, samples=17), resume=True)
    manager = ASRConfigManager()
    manager.train(tiny_trainer(tmp_path, samples=17), resume=False)
    assert error_info.value.__traceback__ is not None
    assert manager.report is not None and not manager.report.error
