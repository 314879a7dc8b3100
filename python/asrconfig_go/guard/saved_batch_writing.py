"""Writes what was computed of a Trainer when a batch went wrong, with what is known of its clips."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._base.wrapped_model import bare
from ..batching.collated_batch import batch_size
from .accumulation_window import Call, Window
from .bad_clip_record import BadBatch, BadClip
from .clip_details import ClipDetails
from .clip_findings import findings, look_at
from .clip_measurement import ClipAlone
from .clip_rows import ClipRows
from .loss_weights import labels_name
from .saved_batch import SavedBatch, bounded, free_folder, on_host, settings_of, write_batch

logger: logging.Logger = logging.getLogger("asrconfig_go")

_MOST_READ = 64  # clips of the dataset; beyond that those to blame only

Clip = tuple[int, int]
"""The identity of a ``Call``, and a clip's number in what is left of it."""


class BatchWriter:
    """Makes the record of a bad batch, and saves its batches while there are few of them."""

    def __init__(self, trainer: Any, window: Window, rows: ClipRows, limit: Callable[[], int | None]) -> None:
        self._trainer, self._window, self._rows, self._limit = trainer, window, rows, limit
        self._details = ClipDetails(trainer)

    def __call__(
        self, batch: BadBatch, model: Any, calls: list[Call], clips: list[ClipAlone], why: dict[Clip, str], error: str
    ) -> BadBatch:
        """``batch`` with its clips, and its folder if one was written; never raises, whatever a batch is made of."""
        alone = {(id(clip.call), clip.number): clip for clip in clips}
        few = sum(batch_size(call.inputs) for call in calls) <= _MOST_READ
        try:
            hosts = [on_host(call.inputs) for call in calls]  # where looking at it needs no memory of the GPU
            told = [self._clips(model, call, host, alone, why, few) for call, host in zip(calls, hosts, strict=True)]
            batch = replace(batch, clips=tuple(clip for of in told for clip in of if clip.why))
            return replace(batch, folder=self._save(batch, model, calls, hosts, told, error))
        except Exception as failed:
            logger.warning("cannot save the batch: %s", failed)
            return batch

    def _clips(
        self, model: Any, call: Call, host: Any, alone: dict[Clip, ClipAlone], why: dict[Clip, str], few: bool
    ) -> list[BadClip]:
        labels = labels_name(self._trainer)
        measured = look_at(host, model, labels)
        unusual = findings(measured, model, labels in host)
        rows, found = self._rows_of(call), []
        for i, clip in enumerate(measured):
            key = (id(call), i)
            row = None if rows is None else rows[i]
            known, path, text = True, "", ""
            if few or key in why:
                known, path, text = self._details.of(row, clip.labels)
            if not known:
                self._rows.unknown = (
                    "labels of the dataset and of the batch differ: the collator changes them or the order"
                )
            own, count = alone.get(key) or ClipAlone(call, i), len(clip.labels) if labels in host else None
            found.append(
                BadClip(
                    row if known else None, path, text, clip.seconds, count,
                    _number(own.loss), _number(own.gradient_norm), why.get(key, ""), unusual[i],
                )
            )  # fmt: skip
        return found

    def _rows_of(self, call: Call) -> list[int] | None:
        number = next((i for i, each in enumerate(self._window.calls) if each is call), None)
        if number is None or call.replacements:
            return None
        return self._rows.of(number, call.kept, batch_size(call.inputs))

    def _save(
        self, batch: BadBatch, model: Any, calls: list[Call], hosts: list[Any], told: list[list[BadClip]], error: str
    ) -> str:
        trainer = self._trainer
        folder = free_folder(Path(trainer.args.output_dir), trainer.args.process_index)
        if folder is None or (batch.what != "memory" and not batch.clips and trainer.args.process_index):
            return ""  # of several processes, one without a clip to blame has nothing to add
        named = [[i for i, clip in enumerate(of) if clip.why] for of in told]
        batches, kept, whole = bounded(hosts, named)
        config: Any = getattr(bare(model), "config", None)
        record = SavedBatch(
            what=batch.what, said=batch.said, error=error, at_unix_s=time.time(), global_step=batch.global_step,
            epoch=trainer.state.epoch, rank=trainer.args.process_index,
            batches=tuple(len(rows) for rows in kept),
            clips=tuple(of[i] for of, rows in zip(told, kept, strict=True) for i in rows),
            rows_unknown=self._rows.unknown, whole=whole, micro_batch=self._limit(), settings=settings_of(trainer),
            architecture=type(bare(model)).__name__,
            config=config.to_dict() if hasattr(config, "to_dict") else {},
        )  # fmt: skip
        write_batch(folder, record, batches, [call.random for call in calls])
        return str(folder)


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
