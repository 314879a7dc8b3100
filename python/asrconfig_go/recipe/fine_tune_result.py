"""The result of a fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..config import TrainingConfig
from ..guard.training_report import TrainingReport
from ..view.render import box
from ..view.units import plural

_SHOWN = 60  # characters of a sample


@dataclass(frozen=True, repr=False)
class FineTuneResult:
    """A trained model in ``output_dir``: ``from_pretrained(output_dir)`` loads it, with its processor.

    ``wer`` and ``cer`` are shares of the reference words and characters of the evaluation clips, which the model was
    not trained on; ``wer_before`` is that of the model as it was loaded. None where nothing was evaluated. ``samples``
    are (said, heard) of the first of those clips. ``notes`` are what was found and left out of the data, ``pushed``
    the result of the upload (``""``: not requested), ``memory`` the peaks. Where ``save_by`` stopped the training
    (``training.stopped``), there is its checkpoint alone.
    """

    output_dir: Path
    model: str
    wer_before: float | None
    wer: float | None
    cer: float | None
    loss: float | None
    """The mean training loss of this process's steps, None where it made none."""
    samples: tuple[tuple[str, str], ...]
    training: TrainingReport
    config: TrainingConfig = field(repr=False)
    notes: tuple[str, ...] = ()
    pushed: str = ""
    memory: str = ""
    report: Path | None = None
    """The page of ``asrconfig_go.report``, None where the training was not watched."""

    def __repr__(self) -> str:
        if self.training.stopped:
            return self._stopped()
        lines = [
            f"{self.model}: {plural(self.training.steps, 'step')} in {self.training.seconds:.0f} s",
            *self._rates(),
            *(f"  said: {_short(reference):<32}  heard: {_short(heard)}" for reference, heard in self.samples),
            *([self.memory] if self.memory else []),
            f"model, processor and plan: {self.output_dir}" + (f"; report: {self.report}" if self.report else ""),
            *([self.pushed] if self.pushed else []),
        ]
        return "\n".join(lines)

    def _stopped(self) -> str:
        made = f"{self.model}: {self.training.steps} of {plural(self.training.planned_steps, 'step')}"
        again = "continue with the same call with resume=True (asrconfig train … --resume)"
        return f"{made}; {self.training.stopped}\n  → {again}"

    def _rates(self) -> list[str]:
        if self.wer is None or self.cer is None:
            return ["no clips to evaluate with: no word error rate"]
        before = "" if self.wer_before is None else f" ({self.wer_before:.0%} before)"
        return [f"word error rate {self.wer:.1%}{before}, character error rate {self.cer:.1%}"]

    def _repr_html_(self) -> str:
        return box("Fine-tuned", repr(self))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
