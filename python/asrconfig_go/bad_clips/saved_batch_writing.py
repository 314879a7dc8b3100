"""Writes what was computed when a batch went wrong, with what is known of its clips."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._base.wrapped_model import bare
from ..batching.collated_batch import batch_size
from ..recovery.loop import Call, Loop
from ..recovery.micro_batch_budget import Budget
from .bad_clip_record import BadBatch, BadClip
from .clip_details import ClipDetails
from .clip_findings import findings, look_at
from .clip_measurement import ClipAlone
from .clip_rows import ClipRows
from .saved_batch import SavedBatch, bounded, free_folder, on_host, write_batch

logger: logging.Logger = logging.getLogger("asrconfig_go")

_MOST_READ = 64  # clips of the dataset; beyond that those to blame only

Clip = tuple[int, int]
"""The identity of a ``Call``, and a clip's number in what is left of it."""


class BatchWriter:
    """Makes the record of a bad batch, and saves its batches while there are few of them.

    ``place`` returns where a batch is among those that the loader of ``rows`` has delivered, of which the last is -1.
    Nothing is written unless it is ``saved``.
    """

    def __init__(
        self,
        loop: Loop,
        place: Callable[[Call], int | None],
        budget: Budget,
        rows: ClipRows | None = None,
        saved: bool = True,
    ) -> None:
        self._loop, self._place, self._budget, self._rows, self._saved = loop, place, budget, rows, saved
        self._details = ClipDetails(rows.trainer if rows else None, rows.dataset if rows else None)
        self._unknown = "" if rows else "the loop does not say which rows of a dataset its batches hold"

    def __call__(
        self, batch: BadBatch, calls: list[Call], clips: list[ClipAlone], reasons: dict[Clip, str], error: str
    ) -> BadBatch:
        """``batch`` with its clips, and its folder if one was written; never raises, whatever a batch is made of."""
        alone = {(id(clip.call), clip.number): clip for clip in clips}
        try:
            few = sum(batch_size(call.inputs) for call in calls) <= _MOST_READ
            hosts = [on_host(call.inputs) for call in calls]  # where looking at it needs no memory of the GPU
            described = [self._clips(call, host, alone, reasons, few) for call, host in zip(calls, hosts, strict=True)]
            batch = replace(batch, clips=tuple(clip for of in described for clip in of if clip.why))
            return replace(batch, folder=self._save(batch, calls, hosts, described, error))
        except Exception as failed:
            logger.warning("cannot save the batch: %s", failed)
            return batch

    def _clips(
        self, call: Call, host: Any, alone: dict[Clip, ClipAlone], reasons: dict[Clip, str], few: bool
    ) -> list[BadClip]:
        model, labels = self._loop.model, host.get(self._loop.labels)
        has_labels = getattr(labels, "ndim", 0) == 2  # else they are classes, or values
        measured = look_at(host, model, self._loop.labels)
        unusual = findings(measured, model, has_labels)
        rows, clips = self._rows_of(call), []
        for i, clip in enumerate(measured):
            key = (id(call), i)
            row = None if rows is None else rows[i]
            is_row, path, text = True, "", ""
            if few or key in reasons:
                is_row, path, text = self._details.of(row, clip.labels)
            if not is_row:
                self._unknown = "labels of the dataset and of the batch differ: the collator changes them or the order"
            own, count = alone.get(key) or ClipAlone(call, i), len(clip.labels) if has_labels else None
            clips.append(
                BadClip(
                    row if is_row else None, path, text, clip.seconds, count,
                    _number(own.loss), _number(own.gradient_norm), reasons.get(key, ""), unusual[i],
                    i if call.rows is None else call.rows[i],
                )
            )  # fmt: skip
        return clips

    def _rows_of(self, call: Call) -> list[int] | None:
        place = self._place(call)
        if place is None or call.replacements or self._rows is None:
            return None
        return self._rows.of(place, call.rows, batch_size(call.inputs))

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
