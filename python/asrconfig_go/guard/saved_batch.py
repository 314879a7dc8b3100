"""A batch that went wrong, in a folder of ``output_dir``: ``batch.json`` for people, ``batch.pt`` for ``replay``."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._core.batches import batch_size, pick, tensors_of
from .._core.files import read_object, user_path
from .._core.modules import bare
from .._core.output import logger
from .._core.records import from_file, to_json
from ..errors import CorruptFileError, NotFoundError
from .clip_findings import ClipAlone, ClipDetails, Measured, findings, look_at
from .loading import ClipRows
from .loop import Batch, Call, Loop
from .micro_batches import Budget
from .training_report import BadBatch, BadClip

PREFIX = "bad-batch"
MOST_FOLDERS = 5  # in an output_dir, of each rank
MOST_BYTES = 256 * 2**20  # of the tensors of one
_SCHEMA = 2
_HINT = "name a folder bad-batch in the output_dir of a training"
_MAX_READ = 64  # clips of the dataset; beyond that those to blame only


@dataclass(frozen=True)
class SavedBatch:
    """The record of a saved batch, which ``batch.json`` holds.

    Attributes:
        what: What went wrong: see ``BadBatch``.
        said: What happened, in words.
        error: The text of the exception; ``""`` without one.
        at_unix_s: The wall clock, in seconds since 1970.
        global_step: The optimizer steps before it.
        epoch: The epoch of the training, with its fraction; None where unknown.
        rank: The rank of the process.
        batches: The number of clips of each collated batch in ``batch.pt``.
        clips: The clips of all batches, in order.
        rows_unknown: Why clips have no row; ``""`` where they have one.
        whole: Whether all clips were saved; False where only those to blame were small enough.
        micro_batch: The most samples of a micro-batch; None without limit.
        settings: The precision and other settings of the training.
        architecture: The class of the model.
        config: The configuration of the model.
    """

    what: str
    said: str
    error: str
    at_unix_s: float
    global_step: int
    epoch: float | None
    rank: int
    batches: tuple[int, ...]
    clips: tuple[BadClip, ...]
    rows_unknown: str
    whole: bool
    micro_batch: int | None
    settings: dict[str, Any]
    architecture: str
    config: dict[str, Any]


def free_folder(output: Path, rank: int) -> Path | None:
    """Where the next batch goes; None where there are enough of them."""
    first = f"{PREFIX}-rank{rank}" if rank else PREFIX
    names = [first, *(f"{first}-{n}" for n in range(2, MOST_FOLDERS + 1))]
    return next((output / name for name in names if not (output / name).exists()), None)


def bounded(batches: list[Any], named: list[list[int]]) -> tuple[list[Any], list[list[int]], bool]:
    """The batches, the numbers of the clips that are kept of each, and whether these are all.

    Where all take more than ``MOST_BYTES``, those ``named`` are kept alone.
    """
    fits = sum(map(_bytes, batches)) <= MOST_BYTES
    rows = [list(range(batch_size(batch))) for batch in batches] if fits else named
    saved = [batch if fits else pick(batch, numbers) for batch, numbers in zip(batches, rows, strict=True)]
    return saved, rows, fits


def _bytes(batch: Batch) -> int:
    return sum(t.numel() * t.element_size() for t in tensors_of(batch))


def on_host(value: Any) -> Any:
    """A copy of a collated batch in the host's memory, of what ``torch.load`` takes without running code."""
    if hasattr(value, "detach"):
        return value.detach().to("cpu", copy=True)
    if hasattr(value, "tolist"):
        return torch.as_tensor(value)
    if isinstance(value, Mapping):
        return {str(name): on_host(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        copies = [on_host(entry) for entry in value]
        return copies if isinstance(value, list) else tuple(copies)
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def write_batch(folder: Path, record: SavedBatch, batches: list[Batch], random: Sequence[Any]) -> None:
    """Write both files, whole or not at all. Raises ``OSError``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = folder.with_name(f"{folder.name}{os.urandom(4).hex()}.part")
    made.mkdir()
    try:
        torch.save({"batches": batches, "random": [plain_state(state) for state in random]}, made / "batch.pt")
        document = {"schema": _SCHEMA, **to_json(record)}
        (made / "batch.json").write_text(json.dumps(document, indent=1, ensure_ascii=False, default=str), "utf-8")
        made.replace(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def plain_state(state: dict[str, Any]) -> dict[str, Any]:
    """The random states of ``cpu_state`` without numpy's types."""
    kind, keys, *gauss = state["numpy"]
    return {"python": state["python"], "numpy": (kind, [int(key) for key in keys], *gauss), "torch": state["torch"]}


def state_of_plain(plain: dict[str, Any]) -> dict[str, Any]:
    """What ``set_cpu_state`` takes, of what ``plain_state`` returned."""
    version, internal, gauss = plain["python"]
    kind, keys, *others = plain["numpy"]
    numpy = (kind, np.array(keys, dtype=np.uint32), *others)
    return {"python": (version, tuple(internal), gauss), "numpy": numpy, "torch": plain["torch"]}


def read_batch(path: str | os.PathLike[str]) -> tuple[SavedBatch, list[Any], list[dict[str, Any]]]:
    """Read what ``write_batch`` wrote: the record, the batches, and the random states before each.

    Raises ``NotFoundError`` where there is no such folder, ``CorruptFileError`` for anything else in its place.
    """
    folder = user_path(path, "path")
    if not (folder / "batch.json").is_file():
        raise NotFoundError(f"there is no saved batch at {str(folder)!r}", _HINT)
    document = read_object(folder / "batch.json", "saved batch", _HINT)
    if document.pop("schema", None) != _SCHEMA:
        raise CorruptFileError(f"{folder / 'batch.json'} was written by another version", _HINT)
    record = from_file(SavedBatch, document, folder / "batch.json", _HINT)
    try:
        content = torch.load(folder / "batch.pt", map_location="cpu", weights_only=True)
        batches, random = list(content["batches"]), list(content["random"])
        fits = tuple(batch_size(batch) for batch in batches) == record.batches and len(random) == len(batches)
    except Exception as error:  # whatever torch raises of a damaged archive
        raise CorruptFileError(f"{folder / 'batch.pt'} cannot be read: {type(error).__name__}", _HINT) from error
    if not fits or len(record.clips) != sum(record.batches):
        raise CorruptFileError(f"{folder / 'batch.pt'} does not hold the clips of batch.json", _HINT)
    return record, batches, random


class BatchWriter:
    """Makes the record of a bad batch, and saves its batches while there are few of them.

    ``place`` returns where a batch is among those that the loader of ``rows`` has delivered, of which the last is -1.
    Nothing is written unless it is ``saved``.
    """

    def __init__(
        self, loop: Loop, place: Callable[[Call], int], budget: Budget, rows: ClipRows | None, saved: bool
    ) -> None:
        self._loop, self._place, self._budget, self._rows, self._saved = loop, place, budget, rows, saved
        self._details = ClipDetails(rows.trainer if rows else None, rows.dataset if rows else None)
        self._unknown = "" if rows else "the loop does not say which rows of a dataset its batches hold"

    def __call__(self, batch: BadBatch, calls: list[Call], clips: list[ClipAlone], error: str) -> BadBatch:
        """``batch`` with its clips, and its folder if one was written; never raises, whatever a batch is made of."""
        alone = {(id(clip.call), clip.number): clip for clip in clips}
        try:
            few = sum(batch_size(call.inputs) for call in calls) <= _MAX_READ
            hosts = [on_host(call.inputs) for call in calls]  # where looking at it needs no memory of the GPU
            described = [self._clips(call, host, alone, few) for call, host in zip(calls, hosts, strict=True)]
            batch = replace(batch, clips=tuple(clip for of in described for clip in of if clip.why))
            folder = self._save(batch, calls, hosts, described, error)
            return replace(batch, folder=folder, loss_fn=self._loop.settings().get("loss_fn", ""))
        except Exception as failed:
            logger.warning("cannot save the batch: %s", failed)
            return batch

    def _clips(self, call: Call, host: Batch, alone: dict[tuple[int, int], ClipAlone], few: bool) -> list[BadClip]:
        if isinstance(host, Mapping):
            measured = look_at(host, self._loop.model, self._loop.labels)
        else:  # it is not known what is audio
            measured = [Measured()] * batch_size(host)
        unusual = findings(measured, self._loop.model)
        rows, clips = None, []
        if self._rows is not None and not call.replacements:
            rows = self._rows.of(self._place(call), call.rows, batch_size(call.inputs))
        for i, clip in enumerate(measured):
            own = alone.get((id(call), i)) or ClipAlone(call, i)
            row = None if rows is None else rows[i]
            is_row, path, text = True, "", ""
            if few or own.why:
                is_row, path, text = self._details.of(row, clip.labels or [])
            if not is_row:
                self._unknown = "labels of the dataset and of the batch differ: the collator changes them or the order"
            count = None if clip.labels is None else len(clip.labels)
            clips.append(
                BadClip(
                    row if is_row else None, path, text, clip.seconds, count,
                    _number(own.loss), _number(own.gradient_norm), own.why, unusual[i],
                    i if call.rows is None else call.rows[i],
                )
            )  # fmt: skip
        return clips

    def _save(
        self, batch: BadBatch, calls: list[Call], hosts: list[Any], described: list[list[BadClip]], error: str
    ) -> str:
        loop, model = self._loop, bare(self._loop.model)
        folder = free_folder(loop.output, loop.rank) if loop.output is not None and self._saved else None
        if folder is None or (batch.what != "memory" and not batch.clips and loop.rank):
            return ""  # of several processes, one without a clip to blame has nothing to add
        named = [[i for i, clip in enumerate(of) if clip.why] for of in described]
        batches, numbers, is_complete = bounded(hosts, named)
        config: Any = getattr(model, "config", None)
        record = SavedBatch(
            what=batch.what, said=batch.said, error=error, at_unix_s=time.time(), global_step=batch.global_step,
            epoch=loop.epoch, rank=loop.rank, batches=tuple(len(rows) for rows in numbers),
            clips=tuple(of[i] for of, rows in zip(described, numbers, strict=True) for i in rows),
            rows_unknown=self._unknown or (self._rows.unknown if self._rows else ""), whole=is_complete,
            micro_batch=self._budget.samples, settings=loop.settings(), architecture=type(model).__name__,
            config=config.to_dict() if hasattr(config, "to_dict") else {},
        )  # fmt: skip
        write_batch(folder, record, batches, [call.before.random for call in calls])
        return str(folder)


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
