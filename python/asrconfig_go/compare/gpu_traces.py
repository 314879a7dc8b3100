"""Comparisons of GPUs that rest on traces of the model."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._base import native
from .._base.errors import AsrConfigError, LibraryError

if TYPE_CHECKING:
    from ..memory import MemoryModel

_ROUNDS = 12  # at most this many settings are traced for a GPU: those of a plan, for each form of an optimizer


@dataclass(frozen=True)
class TracedModel:
    """What to trace, and how: ``trace`` and ``batch_fn`` as for ``compare_gpus``."""

    model: Any
    freeze: bool
    trace: bool | None = None
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None
    lora_rank: int = 0

    @property
    def records(self) -> bool:
        """Whether a training step is recorded where no recording is known."""
        from ..machine.model_source import can_trace

        return self.trace is not False and can_trace()

    def compare(self, request: dict[str, Any], durations: array[float] | None) -> dict[str, Any]:
        """The comparison as a JSON object, once all that it wants is traced.

        Cards whose kernels are the same share a recording. Raises ``UnsupportedError`` for a model that cannot be
        traced.
        """
        attached = b"" if durations is None else durations.tobytes()
        traced: list[list[dict[str, Any]]] = []
        opened: dict[Any, MemoryModel] = {}
        for _ in range(_ROUNDS):
            found = native.call("timing.compare", {**request, "traced": traced}, attached)
            if found["wanted"] is None:
                return dict(found["comparison"])
            machines = found["wanted"]["machines"]
            traced = traced or [[] for _ in machines]
            for known, machine in zip(traced, machines, strict=True):
                if machine["trace"] is not None:
                    seconds = durations or found["wanted"]["seconds"]
                    known.append(self._traced(machine, seconds, opened, required=not known))
        raise LibraryError(
            f"more than {_ROUNDS} settings of one GPU were to be traced", "please report this as a defect"
        )

    def _traced(
        self, machine: dict[str, Any], durations: Sequence[float], opened: dict[Any, MemoryModel], required: bool
    ) -> dict[str, Any]:
        from ..plan.planner import Tracer, Wanted

        tracer = Tracer(
            self.model, gpu=machine["gpu"], freeze=self.freeze, progress=False, opened=opened,
            record=self.trace if self.records else False, batch_fn=self.batch_fn if self.records else None,
            lora_rank=self.lora_rank,
        )  # fmt: skip
        wanted = Wanted(**machine["trace"])
        try:
            return tracer.trace(wanted, durations)
        except AsrConfigError as error:
            if required:
                raise
            return wanted.refused(error, max(durations))
