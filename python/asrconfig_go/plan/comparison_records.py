"""Records of GPU comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._core.records import to_json
from .._core.render import Shown
from ..errors import InvalidArgumentError
from .plan_records import ComparisonRecord, GPUPlanRecord, Remedy


@dataclass(frozen=True)
class GPUPlan(GPUPlanRecord):
    """The plan for one GPU, or for ``count`` of them; sizes are bytes of one."""

    @property
    def name(self) -> str:
        """``"T4"``, ``"2 × T4"``."""
        return self.gpu if self.count == 1 else f"{self.count} × {self.gpu}"


@dataclass(frozen=True, repr=False)
class Comparison(Shown, ComparisonRecord, kind="comparison"):
    """One training on several GPUs, in the order asked for. Seconds, hours of audio, bytes, dollars.

    ``row_kind`` ``"texts"`` says that what is trained on are texts, ``clips`` of them, and 50 tokens count as a second.
    """

    rows: tuple[GPUPlan, ...]
    """In the order asked for."""

    @property
    def cheapest(self) -> GPUPlan | None:
        """The plan with the lowest likely cost; None where no price is known."""
        return next((row for row in self.rows if row.cheapest), None)

    @property
    def fastest(self) -> GPUPlan | None:
        """The plan that likely ends first; None where none fits."""
        return next((row for row in self.rows if row.fastest), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return dict(to_json(self))


@dataclass(frozen=True)
class TrainableModel:
    """What a model takes of a GPU at a micro-batch of one clip with gradient checkpointing."""

    name: str
    parameters: int
    full: Remedy
    eight_bit: Remedy
    lora: Remedy


@dataclass(frozen=True, repr=False)
class LargestModels(Shown, kind="largest models"):
    """The known models on one GPU, the largest first."""

    gpu: str
    budget_bytes: int
    seconds: float
    lora_rank: int
    models: tuple[TrainableModel, ...]

    def largest(self, method: str = "full") -> TrainableModel | None:
        """The largest that fits with ``method`` ``"full"``, ``"eight_bit"`` or ``"lora"``; None where none does."""
        if method not in ("full", "eight_bit", "lora"):
            raise InvalidArgumentError(f"method = {method!r} is not known", "choose full, eight_bit or lora")
        return next((model for model in self.models if getattr(model, method).fits), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return dict(to_json(self))
