"""The explanation of a plan as one record: text for terminals, HTML for notebooks, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._core.records import to_json
from .._core.render import Record, Shown, save_page, save_text, text, title
from ..errors import InvalidArgumentError
from .cautions import Caution, cautions
from .decisions import ExplainedPlan, grouped, memory_of, stale

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


@dataclass(frozen=True, repr=False)
class Explanation(ExplainedPlan, Shown, kind="plan"):
    """A plan with what it was made from, to show: ``print`` shows the text, a notebook the HTML.

    All but ``config`` may be unknown.
    """

    @property
    def headline(self) -> str:
        """The plan in one sentence: the step, the device, memory and time, as far as they are known."""
        return title("plan", plan_view(self))

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What to look out for, the most serious first."""
        return cautions(self)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/reference/plan.md; what is not known is None or empty."""
        return explanation_json(self)

    def text(self, *, profiles: bool = True) -> str:
        """Lines of at most 110 columns; without ``profiles`` the hardware, the audio and the model are left out."""
        left_out = {} if profiles else dict.fromkeys(("hardware", "dataset", "model"))
        return text("plan", plan_view(self) | left_out)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained page (``.html``), the JSON object (``.json``) or the text (``.txt``).

        The file is there whole or not at all. Raises ``InvalidArgumentError`` for another suffix, ``NotFoundError``
        where it cannot be written.
        """
        if not isinstance(path, str | os.PathLike):
            raise InvalidArgumentError(f"{path!r} names no file", 'write a name, such as "plan.html"')
        file = Path(path)
        kind = file.suffix.lower()
        if kind in (".html", ".htm"):
            save_page(file, "plan", plan_view(self))
        elif kind == ".json":
            save_text(file, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")
        elif kind == ".txt":
            save_text(file, f"{self}\n")
        else:
            raise InvalidArgumentError(
                f"cannot tell from {file.name!r} what to write", "name a file .html, .json or .txt"
            )

    def _shown(self) -> Record:
        return plan_view(self)
