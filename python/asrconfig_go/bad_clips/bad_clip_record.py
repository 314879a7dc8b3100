"""The record of a batch whose loss or gradient went wrong, or that did not fit, with the clips to blame."""

from __future__ import annotations

from dataclasses import dataclass

from .._base.listing import first_of, listed, shortened
from ..view.units import plural, visible

_TEXT_LENGTH = 60  # characters of a text
_LONGEST = 200  # of a path or an error
_CLIPS = 5  # of a batch that are listed


@dataclass(frozen=True)
class BadClip:
    """A clip of such a batch.

    - ``row``: its place in the training dataset, None where the loader does not tell;
    - ``path``, ``text``: "" where the dataset has none and nothing decodes the labels;
    - ``seconds``: of its audio without padding; ``labels``: how many there are; None where unknown;
    - ``loss``, ``gradient_norm``: of the clip alone, None where not finite or not measured;
    - ``why`` it is named, "" of the other clips of the batch;
    - ``findings``: what is unusual in its audio and labels;
    - ``number``: its place in the collated batch, from 0.
    """

    row: int | None
    path: str
    text: str
    seconds: float | None
    labels: int | None
    loss: float | None
    gradient_norm: float | None
    why: str
    findings: tuple[str, ...]
    number: int = 0

    @property
    def name(self) -> str:
        """Row and path as far as they are known, else the beginning of its text, or its place in the batch."""
        row = "" if self.row is None else f"row {self.row}"
        source = " ".join(part for part in (row, shortened(self.path, _LONGEST)) if part)
        return visible(source) or (
            f"the clip {self.text[:_TEXT_LENGTH]!r}" if self.text else f"clip {self.number} of its batch"
        )

    def __str__(self) -> str:
        length = "" if self.seconds is None else f", {self.seconds:.2f} s"
        text = f", {self.text[:_TEXT_LENGTH]!r}" if self.text and not self.name.endswith("'") else ""
        return (
            f"{self.name}{length}{text}: {listed(filter(None, (shortened(self.why, _LONGEST), *self.findings)), '; ')}"
        )


@dataclass(frozen=True)
class BadBatch:
    """Something that went wrong in an optimizer step, and the clips to blame.

    ``what`` is ``"error"`` (the model raised one), ``"loss"`` or ``"gradient"`` (not finite), ``"jump"`` (a gradient
    norm far above the recent ones),
    ``"memory"`` (a clip that does not fit alone, the longest of its batch), ``"evaluation"`` (the loss of one of its
    batches is not finite; rows are the evaluation dataset's) or ``"weights"`` (not finite already, so that no clip is
    to blame). ``clips`` are those that stand out, none where no clip does alone. ``done`` is
    ``"reported"``, ``"left out"`` or ``"raised"``. ``folder`` has the saved batch for ``asrconfig replay``, "" where
    none was written.
    """

    global_step: int
    what: str
    said: str
    clips: tuple[BadClip, ...]
    done: str
    folder: str

    def __str__(self) -> str:
        lines = [f"step {self.global_step}: {shortened(self.said)}"]
        if self.what != "weights" and not self.clips:
            lines.append("no clip alone stands out")
        lines += first_of(self.clips, _CLIPS)
        if self.done == "left out":
            lines.append(f"{plural(len(self.clips), 'clip')} left out of the step")
        if self.folder:
            lines.append(f"asrconfig replay {self.folder}")
        return "; ".join(lines)
