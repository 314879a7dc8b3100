"""Disks, drives and shared memory that fail, fill up or cannot be written."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import soundfile
import torch
from material import ctc, labelled, noise, train
from outcome import Outcome, hearing, situation
from transformers import Trainer

from asrconfig_go.__main__ import main
from asrconfig_go.data.splits import load_split
from asrconfig_go.recipe import load_speech

_LIMIT_S = 200
_UNMOUNTED = Outcome("unnamed", "not played: this system lets nobody mount here")


@contextlib.contextmanager
def _mounted(folder: Path, *mount: str) -> Iterator[bool]:
    """Whether ``mount`` could be run on ``folder``; taken back in the end."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *mount, str(folder)], capture_output=True, check=False, timeout=20)
    try:
        yield not done.returncode
    finally:
        if not done.returncode:
            subprocess.run(["umount", "-l", str(folder)], check=False, timeout=20)


@contextlib.contextmanager
def _gone(folder: Path) -> Iterator[bool]:
    """A drive whose server is gone: all that is asked of ``folder`` answers "Transport endpoint is not connected"."""
    folder.mkdir(exist_ok=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        yield False
        return
    options = f"fd={server},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    failed = ctypes.CDLL(None, use_errno=True).mount(b"drive", os.fsencode(folder), b"fuse", 0, options)
    os.close(server)
    try:
        yield not failed
    finally:
        if not failed:
            subprocess.run(["umount", "-l", str(folder)], check=False, timeout=20)


@contextlib.contextmanager
def _failing(folder: Path, number: int, times: int) -> Iterator[None]:
    """Reading files of ``folder`` by Python or libsndfile fails so often."""
    left = [times]
    decode, read = soundfile.SoundFile, Path.open

    def fails(path: Any) -> bool:
        hit = left[0] > 0 and str(path).startswith(str(folder))
        left[0] -= hit
        return hit

    def decoded(file: Any, *given: Any, **options: Any) -> Any:
        if fails(file):
            raise soundfile.LibsndfileError(2, prefix=f"Error opening {file!r}: ")
        return decode(file, *given, **options)

    def opened(path: Path, *given: Any, **options: Any) -> Any:
        if fails(path):
            raise OSError(number, os.strerror(number), str(path))
        return read(path, *given, **options)

    with mock.patch.object(soundfile, "SoundFile", decoded), mock.patch.object(Path, "open", opened):
        yield


def _clips(folder: Path, count: int = 6) -> Path:
    """A folder of clips with a manifest."""
    folder.mkdir()
    rows = [{"audio": noise(folder / f"{i}.wav", 1.0, i), "text": "one two"} for i in range(count)]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@situation
def clips_on_a_drive_that_was_disconnected(folder: Path) -> Outcome:
    """A manifest's clips lie on a mounted drive that was disconnected."""
    drive, table = folder / "drive", folder / "train.jsonl"
    table.write_text("".join(json.dumps({"audio": f"{drive}/{i}.wav", "text": "one"}) + "\n" for i in range(6)))
    with _gone(drive) as there:
        if not there:
            return _UNMOUNTED
        with hearing() as heard:
            load_speech(table, progress=False)
    return heard.named("storage", f"{drive} does not answer", "mount it again")


@situation
def a_folder_on_a_drive_that_was_disconnected(folder: Path) -> Outcome:
    """The command trains on a folder of a mounted drive that was disconnected."""
    drive = folder / "drive"
    with _gone(drive) as there:
        if not there:
            return _UNMOUNTED
        options = ["train", "--model", "tiny-wav2vec2", "--data", str(drive)]
        command = f"from asrconfig_go.__main__ import main; main({options})"
        said = subprocess.run(
            [sys.executable, "-c", command], capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    text = " ".join(said.stderr.split())
    return Outcome("named" if "does not answer" in text and "mount it again" in text else "unnamed", text[-400:])


@situation
def reading_fails_for_a_moment(folder: Path) -> Outcome:
    """Reading a clip fails with an input/output error for a moment while clips are checked."""
    clips = _clips(folder / "clips")
    whole = len(load_speech(clips, evaluation_share=0.0, progress=False).train)
    with hearing() as heard, _failing(clips, errno.EIO, 3):
        found = load_speech(clips, evaluation_share=0.0, progress=False)
        if len(found.train) < whole:
            return Outcome("silent", f"{len(found.train)} of {whole} clips, the others dropped: {found.notes}")
    return heard.named("does not answer") if heard.error else Outcome("survived", f"all of {whole} clips")


@situation
def reading_fails_for_good(folder: Path) -> Outcome:
    """Reading clips fails with a stale file handle for good while they are checked."""
    clips = _clips(folder / "clips")
    with hearing() as heard, _failing(clips, errno.ESTALE, 10**9):
        found = load_speech(clips, evaluation_share=0.0, progress=False)
        return Outcome("silent", f"{len(found.train)} of 6 clips: {found.notes}")
    return heard.named("storage", "does not answer", "mount it again")


class _Remote(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A dataset of one's own, whose 5th reading fails for a moment."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.left, self.seen = rows, 2, list[int]()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Any:
        if len(self.seen) >= 4 and self.left:
            self.left -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.seen.append(row)
        return self.rows[row]


@situation
def a_dataset_of_ones_own_fails_for_a_moment(folder: Path) -> Outcome:
    """A dataset of one's own raises an input/output error within the training, for a moment."""
    rows, processor = labelled(16)

    def trained(own: Any) -> list[float]:
        def swapped(*given: Any, **options: Any) -> Trainer:
            trainer = Trainer(*given, **options)
            trainer.train_dataset = own
            return trainer

        run = train(ctc(processor), rows, processor, folder, kind=swapped, max_steps=2)
        return [entry["loss"] for entry in run.state.log_history if "loss" in entry]

    calm = trained(rows)
    with hearing() as heard:
        found = trained(_Remote(rows))
        return Outcome("survived" if found == calm else "silent", f"losses {found}, without a failure {calm}")
    return heard.named("storage", "does not answer")


@situation
def data_that_cannot_be_written(folder: Path) -> Outcome:
    """The command trains on a saved dataset in a folder that is mounted read-only."""
    source = folder / "saved"
    load_split("train").select(range(20)).cast_column("audio", datasets.Audio(decode=False)).save_to_disk(str(source))
    with _mounted(folder / "data", "--bind", str(source)) as there:
        if not there:
            return _UNMOUNTED
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder / "data")], check=True, timeout=20)
        with hearing() as heard:
            options = ["--model", "tiny-wav2vec2", "--data", str(folder / "data"), "--out", str(folder / "out")]
            status = main(["train", *options, "--set", "max_steps=2", "--quiet"])
    if heard.error or status:
        return Outcome("unnamed", heard.text[-300:] or f"exit status {status}")
    saved = (folder / "out" / "model.safetensors").exists()
    return Outcome("survived" if saved else "silent", "trained, and nothing was written beside the data")


@situation
def a_disk_that_is_full_at_a_checkpoint(folder: Path) -> Outcome:
    """The disk is full when the third checkpoint is written."""
    rows, processor = labelled()
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3, "save_total_limit": None}
    size = _checkpoint_kib(folder, rows, processor)
    with _mounted(folder / "disk", "-t", "tmpfs", "-o", f"size={int(size * 2.6)}k", "tmpfs") as there:
        if not there:
            return _UNMOUNTED
        with hearing() as heard:
            train(ctc(processor), rows, processor, folder / "disk", **saving)
        half = [path.name for path in (folder / "disk" / "out").glob("checkpoint-3")]
        found = heard.named("is full", "a checkpoint takes", "checkpoint-2 is complete")
    warned = "before step 1 and at the end" if heard.line("set save_total_limit") else "at the end"
    return (
        Outcome("silent", f"half a checkpoint is left: {half}")
        if half
        else Outcome(found.ending, f"{warned}: {found.text}")
    )


def _checkpoint_kib(folder: Path, rows: Any, processor: Any) -> float:
    train(ctc(processor), rows, processor, folder, save_strategy="steps", save_steps=1, max_steps=1)
    files = (folder / "out" / "checkpoint-1").rglob("*")
    return sum(-(-file.stat().st_size // 4096) * 4 for file in files if file.is_file())


def _in_little_shared_memory(size: str, play: Callable[[Path], None], folder: Path) -> Outcome:
    """How ``play`` ends in a process whose /dev/shm has ``size``."""
    script = f"import json, pathlib, storage; print(json.dumps(storage.{play.__name__}(pathlib.Path({str(folder)!r}))))"
    mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm && exec {sys.executable} -c {json.dumps(script)}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount], capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        return _UNMOUNTED
    if done.returncode:
        return Outcome("unnamed", done.stderr.strip()[-300:])
    ending, text = json.loads(done.stdout.splitlines()[-1])
    return Outcome(ending, text)


def shared_training(folder: Path, evaluate: bool = False) -> tuple[str, str]:
    """Trains on long clips with two workers: the losses must be those without workers."""
    rows, processor = labelled(8)
    paths = [noise(folder / f"{i}.wav", 20, i) for i in range(16)]
    rows = datasets.Dataset.from_list([{"audio": path, "labels": [1, 2, 3]} for path in paths])
    extra = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8} if evaluate else {}

    def losses(workers: int) -> list[float]:
        run = train(
            ctc(processor), rows, processor, folder, evaluation=rows if evaluate else None, max_steps=1,
            dataloader_num_workers=workers, **extra,
        )  # fmt: skip
        return [value for entry in run.state.log_history for name, value in entry.items() if name.endswith("loss")]

    with hearing() as heard:
        with_workers = losses(2)
    if heard.error:
        return "named" if heard.line("shared memory", "docker run --shm-size") else "unnamed", heard.text[-300:]
    calm = losses(0)
    return "survived" if with_workers == calm else "silent", f"losses {with_workers}, without workers {calm}"


def shared_evaluation(folder: Path) -> tuple[str, str]:
    """The same with an evaluation."""
    return shared_training(folder, evaluate=True)


@situation
def shared_memory_that_is_too_small(folder: Path) -> Outcome:
    """/dev/shm is too small for the batches of two loader workers."""
    return _in_little_shared_memory("2m", shared_training, folder)


@situation
def shared_memory_without_room_for_a_semaphore(folder: Path) -> Outcome:
    """/dev/shm has no room even for what workers are told by."""
    return _in_little_shared_memory("4k", shared_training, folder)


@situation
def shared_memory_that_is_too_small_for_an_evaluation(folder: Path) -> Outcome:
    """/dev/shm is too small for the loader workers of an evaluation."""
    return _in_little_shared_memory("2m", shared_evaluation, folder)


def shared_plan(folder: Path) -> tuple[str, str]:
    """Fewer workers are planned than where there is more of it, and the doctor says why."""
    from asrconfig_go import create_optimal_config

    paths = [noise(folder / f"{i}.wav", 30, i) for i in range(16)]
    rows = datasets.Dataset.from_list([{"audio": path} for path in paths])
    with hearing() as heard:
        config, _ = create_optimal_config(rows, "wav2vec2-base", gpu="T4", verbose=False)
        heard.lines += [each.reason for each in config.decisions if each.setting == "dataloader_num_workers"]
        main(["doctor"])
    planned, doctor = heard.line("/dev/shm", "64.0 MiB free", "would keep"), heard.line("· /dev/shm", "64.0 MiB free")
    batches = (config.dataloader_prefetch_factor or 0) * config.dataloader_num_workers + 1
    fits = not config.dataloader_num_workers or batches * config.per_device_train_batch_size * 30 * 64_000 < 64 << 20
    return ("prevented" if planned and doctor and fits else "silent"), f"{planned} {doctor}"


@situation
def a_plan_for_dockers_shared_memory(folder: Path) -> Outcome:
    """Loader workers are planned where /dev/shm has Docker's 64 MiB."""
    return _in_little_shared_memory("64m", shared_plan, folder)
