"""Small trainings on a stream of shards, in processes that can be killed, forked from one that has only imported.

``python streamed_training.py FOLDER SPEC`` makes shards in ``FOLDER`` and runs what ``SPEC``, a list in JSON, tells:
each with ``output``, ``kind`` of shards, ``workers``, ``ranks`` and ``kill``, the optimizer step in which every process
is killed, or ``deadly``, a clip that kills the first loader worker that collates it, if any. Processes append the clips
of their steps to ``OUTPUT/steps-<rank>.jsonl``, and the first one writes the last weights to ``OUTPUT/weights.pt``.
What they complain of is in ``OUTPUT/errors``. Prints exit statuses.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
import tarfile
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile  # noqa: F401  # before forks
import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback, TrainerCallback

import asrconfig_go.train.restart  # noqa: F401  # before forks
from asrconfig_go import ASRConfigManager
from asrconfig_go.audio import load_audio
from asrconfig_go.data.splits import demo_rows
from asrconfig_go.guard import attach  # noqa: F401  # before forks
from asrconfig_go.train import (
    StreamBatches,
    guarded_training,  # noqa: F401  # before forks
)

SHARDS, CLIPS, STEPS, LONGEST_S = 6, 240, 60, 1.3
STEP_CLIPS, WINDOW_CLIPS = 8, 64


def make_shards(folder: Path, kind: str, count: int = CLIPS, shards: int = SHARDS) -> list[str]:
    """The first bundled clips with their text and number, in Parquet or tar shards."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, files = demo_rows()[:count], list[str]()
    for shard in range(shards):
        path = folder / f"train-{shard:02}.{kind}"
        files.append(str(path))
        if path.exists():
            continue
        numbered = list(enumerate(rows))[shard::shards]
        part = [(number, row, Path(row["audio_filepath"]).read_bytes()) for number, row in numbered]
        (_write_tar if kind == "tar" else _write_parquet)(path, part)
    return files


def _write_parquet(path: Path, part: Sequence[tuple[int, dict[str, Any], bytes]]) -> None:
    audio = [{"bytes": sound, "path": f"{number}.mp3"} for number, _, sound in part]
    table = pa.table({
        "audio": audio, "text": [row["text"] for _, row, _ in part], "number": [number for number, *_ in part],
    })  # fmt: skip
    features = datasets.Features({
        "audio": datasets.Audio(decode=False), "text": datasets.Value("string"), "number": datasets.Value("int64"),
    })  # fmt: skip
    pq.write_table(table.replace_schema_metadata(features.arrow_schema.metadata), path, row_group_size=16)


def _write_tar(path: Path, part: Sequence[tuple[int, dict[str, Any], bytes]]) -> None:
    with tarfile.open(path, "w") as file:
        for number, row, sound in part:
            told = json.dumps({**row, "number": number}).encode()
            for name, data in ((f"{number}.mp3", sound), (f"{number}.json", told)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))


def open_shards(files: list[str], kind: str) -> Any:
    """The shards as a stream."""
    builder = "webdataset" if kind == "tar" else "parquet"
    return datasets.load_dataset(builder, data_files=files, split="train", streaming=True)


def collate(rows: list[dict[str, Any]], deadly: int | None = None, flag: Path = Path()) -> dict[str, Any]:
    """Every tenth sample of the clips, padded, what to predict, and their numbers."""
    in_worker = torch.utils.data.get_worker_info() is not None
    if deadly in [row["number"] for row in rows if "number" in row] and in_worker and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    clips = [torch.from_numpy(load_audio(row["mp3" if "mp3" in row else "audio"])[::10].copy()) for row in rows]
    told = [row.get("json", row) for row in rows]
    return {
        "input_values": torch.nn.utils.rnn.pad_sequence(clips, batch_first=True),
        "labels": torch.tensor([[float(len(row["text"]))] for row in told]),
        "number": torch.tensor([row["number"] for row in told]),
    }


class Listener(torch.nn.Module):  # type: ignore[misc]
    """A convolution, dropout and a mean squared error; ``seen`` are the clips since a step began."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv1d(1, 8, 10, 5), torch.nn.Linear(8, 1)
        self.dropout = torch.nn.Dropout(0.1)
        self.seen: list[int] = []

    def forward(self, input_values: Any, labels: Any = None, number: Any = None) -> dict[str, Any]:
        """Loss and predictions."""
        if self.training and torch.is_grad_enabled():
            self.seen += number.tolist()
        logits = self.last(self.dropout(torch.relu(self.first(input_values[:, None])).mean(2)))
        return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}


class Steps(TrainerCallback):  # type: ignore[misc]
    """Writes down the clips of every optimizer step; kills the process in one."""

    def __init__(self, file: Path, model: Listener, kill: int | None) -> None:
        self.file, self.model, self.kill = file, model, kill

    def on_step_begin(self, *_: Any, **kwargs: Any) -> None:
        self.model.seen.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.file.open("a") as file:
            print(json.dumps([state.global_step, self.model.seen]), file=file)


def trainer_of(told: dict[str, Any], files: list[str], rank: int = 0) -> Any:
    """The Trainer of a process."""
    output = Path(told["output"])
    output.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model, kind, ranks, workers = Listener(), told.get("kind", "parquet"), told.get("ranks", 1), told.get("workers", 0)
    stream = StreamBatches(
        open_shards(files, kind), max_length_s=LONGEST_S, mode="bucketed", seed=3, window_clips=WINDOW_CLIPS
    )
    arguments = TrainingArguments(
        str(output), per_device_train_batch_size=4, gradient_accumulation_steps=STEP_CLIPS // 4 // ranks,
        max_steps=told.get("steps", STEPS), learning_rate=1e-2, save_strategy="steps", save_steps=7, report_to="none",
        use_cpu=True, disable_tqdm=True, remove_unused_columns=False, dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0,
    )  # fmt: skip
    steps = Steps(output / f"steps-{rank}.jsonl", model, told.get("kill"))
    collator = partial(collate, deadly=told.get("deadly"), flag=output / "killed")
    trainer = Trainer(model, arguments, train_dataset=stream, data_collator=collator, callbacks=[steps])
    trainer.remove_callback(PrinterCallback)
    return trainer


def train(told: dict[str, Any], files: list[str], rank: int = 0) -> None:
    """A process of a training."""
    torch.set_num_threads(1)
    trainer = trainer_of(told, files, rank)
    ASRConfigManager().train(trainer, resume=True, verbose=False)
    if rank == 0:
        weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        torch.save(weights, Path(told["output"]) / "weights.pt")


def started(told: dict[str, Any], files: list[str]) -> list[int]:
    """The processes of a training, forked."""
    ranks = told.get("ranks", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [_forked(told, files, rank, {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true",
    } if ranks > 1 else {}) for rank in range(ranks)]  # fmt: skip


def _forked(told: dict[str, Any], files: list[str], rank: int, environment: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        output = Path(told["output"])
        output.mkdir(exist_ok=True)
        # Where loader workers of a killed process complain, too.
        os.dup2(os.open(output / "errors", os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)
        os.environ.update({name: str(value) for name, value in environment.items()})
        train(told, files, rank)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def ended(children: Sequence[int]) -> list[int]:
    """Wait for processes; where one was killed, kill the others, which wait for it."""
    left, found = set(children), list[int]()
    while left:
        for child in list(left):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                left.remove(child)
                found.append(os.waitstatus_to_exitcode(status))
        if found and min(found) < 0:
            for child in left:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return found


def result(output: Path, ranks: int = 1) -> tuple[list[dict[int, list[int]]], Any]:
    """The clips of every step of each process, the last time that it was made, and the weights."""
    files = [output / f"steps-{rank}.jsonl" for rank in range(ranks)]
    steps = [dict(json.loads(line) for line in file.read_text().splitlines()) for file in files]
    return steps, torch.load(output / "weights.pt")


def allowed(files: list[str], kind: str = "parquet") -> list[int]:
    """The numbers of the clips that are not too long."""
    rows = list(open_shards(files, kind))
    column = "mp3" if kind == "tar" else "audio"
    told = [row["json"] if kind == "tar" else row for row in rows]
    short = [len(load_audio(row[column])) <= LONGEST_S * 16_000 for row in rows]
    return sorted(row["number"] for row, kept in zip(told, short, strict=True) if kept)


if __name__ == "__main__":
    shards = {kind: make_shards(Path(sys.argv[1]) / kind, kind) for kind in ("parquet", "tar")}
    for spec in json.loads(sys.argv[2]):
        print(json.dumps(ended(started(spec, shards[spec.get("kind", "parquet")]))), flush=True)
