"""The explanation as a JSON object; docs/explain.md tells its keys."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .._base.records import to_json
from .decisions import grouped
from .memory_bar import memory_of

if TYPE_CHECKING:
    from .explanation import Explanation

VERSION = 1


def explanation_json(e: Explanation) -> dict[str, Any]:
    """Everything that the text and the page show, as figures."""
    c = e.config
    memory = dataclasses.asdict(memory_of(e))
    memory["parts"] = list(memory["parts"])
    return {
        "explanation_version": VERSION,
        "headline": e.headline,
        "step": {
            "samples": c.effective_batch_size,
            "per_device_batch": c.per_device_train_batch_size,
            "accumulation": c.gradient_accumulation_steps,
            "devices": c.device_count,
            "micro_batching": c.micro_batching,
            "micro_batch": c.micro_batch_size,
            "precision": c.precision,
            "gradient_checkpointing": c.gradient_checkpointing,
        },
        "hardware": e.hardware and to_json(e.hardware),
        "devices": to_json(c.devices),
        "dataset": e.dataset and to_json(e.dataset),
        "model": e.model and to_json(e.model),
        "memory": memory,
        "times": c.times and to_json(c.times),
        "decisions": [
            {**dataclasses.asdict(row), "overridden": row.overridden} for rows in grouped(c).values() for row in rows
        ],
        "alternatives": to_json(c.alternatives),
        "cautions": [dataclasses.asdict(caution) for caution in e.cautions],
        "config": c.to_dict(),
    }
