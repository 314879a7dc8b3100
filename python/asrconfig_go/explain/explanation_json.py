"""The explanation as JSON; docs/reference/plan.md lists its keys."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._base.records import to_json
from ..view.render import Record, title
from .cautions import cautions
from .decisions import grouped, stale
from .explained_plan import ExplainedPlan
from .memory_bar import memory_of

VERSION = 1


def explanation_json(e: ExplainedPlan) -> dict[str, Any]:
    """Everything that the text and the page show, as figures."""
    record = plan_view(e)
    headline = title("plan", record)
    del record["stale"]
    return {"explanation_version": VERSION, "headline": headline, **record}


def plan_view(e: ExplainedPlan) -> Record:
    """What the view of a plan shows; ``stale`` are overridden settings that the predictions do not know of."""
    c = e.config
    memory = dataclasses.asdict(memory_of(e))
    memory["parts"] = list(memory["parts"])
    return {
        "step": {
            "samples": c.effective_batch_size,
            "per_device_batch": c.per_device_train_batch_size,
            "accumulation": c.gradient_accumulation_steps,
            "devices": c.device_count,
            "micro_batching": c.micro_batching,
            "micro_batch": c.micro_batch_size,
            "precision": c.precision,
            "gradient_checkpointing": c.gradient_checkpointing,
            "every_n_layers": c.every_n_layers,
            "offload_checkpoints": c.offload_checkpoints,
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
        "cautions": [dataclasses.asdict(caution) for caution in cautions(e)],
        "stale": stale(c),
        "config": c.to_dict(),
    }
