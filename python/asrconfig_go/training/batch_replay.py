"""``replay_batch``: a batch that the guard saved, alone: which clip, and what is wrong with it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._base.choices import Precision
from .._base.errors import InvalidArgumentError
from .._base.files import user_path
from .._base.listing import LINES
from ..bad_clips.bad_clip_record import BadClip
from ..bad_clips.saved_batch import SavedBatch, read_batch
from ..view.render import box
from ..view.units import gib, plural, visible
from .replayed_clips import Replayed, Replays, standing_out
from .saved_model import load_saved

_HEAD = ("clip", "seconds", "labels", "loss", "gradient norm", "memory")


@dataclass(frozen=True)
class ReplayedClip:
    """A clip of a saved batch, computed alone: ``others`` has its loss in other precisions, where one was tried.

    ``loss`` and ``gradient_norm`` are NaN or infinite where they were so, None where the model raised ``error``.
    ``memory_bytes`` is the peak of the allocator, None on a CPU. ``stands_out`` is whether it is to blame.
    """

    clip: BadClip
    loss: float | None
    gradient_norm: float | None
    memory_bytes: int | None
    error: str
    others: dict[str, float | None]
    stands_out: bool

    @property
    def finite(self) -> bool:
        """Whether loss and gradient were computed, and are finite."""
        return not self.error and all(v is not None and math.isfinite(v) for v in (self.loss, self.gradient_norm))


@dataclass(frozen=True)
class BatchReplay:
    """A saved batch that was computed again, clip by clip and as a whole; ``print`` shows the table.

    ``saved`` is what the training wrote, ``weights`` where the model's come from. ``training_mode`` is whether clips
    were computed with the training's random numbers, as none failed without. ``batches`` are the whole batches.
    """

    folder: str
    saved: SavedBatch
    weights: str
    device: str
    precision: Precision
    training_mode: bool
    clips: tuple[ReplayedClip, ...]
    batches: tuple[Replayed, ...]

    @property
    def to_blame(self) -> tuple[ReplayedClip, ...]:
        """The clips that stand out: not finite, not computable, or with a gradient norm far above the others'."""
        return tuple(clip for clip in self.clips if clip.stands_out)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; numbers that are not finite are text."""
        told: dict[str, Any] = _plain(asdict(self))
        return {**told, "finite": [clip.finite for clip in self.clips], "recommendations": list(self.recommendations())}

    def recommendations(self) -> Iterator[str]:
        """What to do, in sentences."""
        for each in self.to_blame[:LINES]:
            name, found = each.clip.name, each.clip.findings
            yield from (f"{name}: {finding}" for finding in found)
            fine = [precision for precision, loss in each.others.items() if loss is not None and math.isfinite(loss)]
            if fine:
                yield f"{name}: its loss is finite in {fine[0]}: train with {fine[0]} in place of {self.precision}"
            elif not found:
                yield f"{name}: nothing is unusual in its audio and labels: listen to it, or leave it out"
        if not self.to_blame:
            yield (
                f"no clip stands out with the weights of {self.weights}: those of step {self.saved.global_step} were "
                "another's, or the learning rate is too high"
            )
        if self.saved.settings.get("label_smoothing_factor"):
            yield "losses are without the training's label smoothing"

    def __str__(self) -> str:
        saved, mode = self.saved, "in training mode" if self.training_mode else "in evaluation mode"
        lines = [
            f"step {saved.global_step}: {saved.said}; {plural(len(saved.clips), 'clip')} in {self.folder}",
            f"weights of {self.weights}, {self.precision} on {self.device}, {mode}",
            "",
            *_table(self),
            "",
            *self.recommendations(),
        ]
        if saved.rows_unknown:
            lines.append(f"rows are not known: {saved.rows_unknown}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return box("Replay", str(self))


def replay_batch(path: str | os.PathLike[str], model: Any = None, *, device: str | None = None) -> BatchReplay:
    """Compute a batch that the guard saved in ``path``, a folder ``bad-batch``: each clip alone, and the whole.

    ``model`` is a module, or a checkpoint or name to load weights from: by default the newest checkpoint beside the
    folder that was there before the step. The device is a GPU where there is one. Clips are computed in evaluation
    mode, and with the training's random numbers where none fails so; in the training's precision, and where a clip
    fails in the more exact ones, too.

    Raises ``NotFoundError`` where there is no saved batch or nothing to load weights from, ``CorruptFileError`` for a
    damaged one, ``UnsupportedError`` for a model that transformers does not have.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.demo.digit_model import small_model
    >>> from asrconfig_go.guard import attach
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], disable_tqdm=True, per_device_train_batch_size=2)
    >>> noise = [i * i % 31 / 31 - 0.5 for i in range(4001)]
    >>> clips = [{"input_values": audio, "labels": [3]} for audio in (noise, [float("nan"), *noise[1:]])]
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=clips)
    >>> guard = attach(trainer, bad_clips="raise")
    >>> trainer.train()
    Traceback (most recent call last):
    asrconfig_go.guard.BadClipError: step 0: the loss is not finite; row 1, 0.25 s, '3': its loss is nan; …
    >>> [clip.clip.row for clip in replay_batch("out/bad-batch", trainer.model).to_blame]
    [1]
    """
    import torch

    folder = user_path(path, "path")
    saved, batches, random = read_batch(folder)
    loaded, weights = load_saved(folder, saved, model)
    try:
        on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        loaded = loaded.to(on)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgumentError(f"device = {device!r} cannot be used: {error}", 'pass device="cpu"') from error
    precision: Precision = "fp16" if saved.settings.get("fp16") else "bf16" if saved.settings.get("bf16") else "fp32"
    replays = Replays(loaded, on, precision, random)
    found = [replays.clips(number, batch) for number, batch in enumerate(batches)]
    training = saved.what in ("error", "loss", "gradient") and all(each.finite for of in found for each in of)
    if training:
        found = [replays.clips(number, batch, training=True) for number, batch in enumerate(batches)]
    every = [each for of in found for each in of]
    blamed = standing_out(every)
    others = [
        replays.in_other_precisions(number, batch, i) if not each.finite and not each.error else {}
        for number, (batch, of) in enumerate(zip(batches, found, strict=True))
        for i, each in enumerate(of)
    ]
    clips = tuple(
        ReplayedClip(clip, each.loss, each.gradient_norm, each.memory_bytes, each.error, other, out)
        for clip, each, other, out in zip(saved.clips, every, others, blamed, strict=True)
    )
    whole = tuple(replays.whole(number, batch) for number, batch in enumerate(batches))
    return BatchReplay(str(folder), saved, weights, str(on), precision, training, clips, whole)


def _table(replay: BatchReplay) -> Iterator[str]:
    clips, left = replay.clips, len(replay.clips) - LINES
    if left > 0:
        clips = tuple(sorted(clips, key=lambda clip: not clip.stands_out)[:LINES])
    rows = [_HEAD, *(_row(clip) for clip in clips)]
    if left > 0:
        rows.append((f"  … and {left} more", *[""] * (len(_HEAD) - 1)))
    for number, whole in enumerate(replay.batches):
        name = "the batch" if len(replay.batches) == 1 else f"batch {number + 1}"
        rows.append((name, "", "", *_figures(whole.loss, whole.gradient_norm, whole.memory_bytes, whole.error)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


def _row(each: ReplayedClip) -> tuple[str, ...]:
    clip, mark = each.clip, "→ " if each.stands_out else "  "
    seconds = "–" if clip.seconds is None else f"{clip.seconds:.2f}"
    figures = _figures(each.loss, each.gradient_norm, each.memory_bytes, each.error)
    name = f"row {clip.row} {Path(clip.path).name}" if clip.row is not None and clip.path else clip.name
    return (f"{mark}{visible(name)[:40].rstrip()}", seconds, "–" if clip.labels is None else str(clip.labels), *figures)


def _figures(loss: float | None, gradient: float | None, memory: int | None, error: str) -> tuple[str, str, str]:
    told = error[:40] if error else "–" if loss is None else f"{loss:.4g}"
    return told, "–" if gradient is None else f"{gradient:.3g}", gib(memory)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, Path) else value
