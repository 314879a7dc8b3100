"""``replay_batch``: a batch that the guard saved is computed again, to see which of its clips made it fail."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import batch_size, piece
from .._core.declared import Precision
from .._core.files import user_path
from .._core.output import LINES
from .._core.render import box, gib, plural, visible
from ..errors import InvalidArgumentError
from ..guard.clip_findings import broken
from ..guard.saved_batch import SavedBatch, read_batch
from ..guard.training_report import BadClip
from .replay_runs import FIRST_WEIGHTS, BatchRunner, Replayed, load_model, standing_out

if TYPE_CHECKING:
    from ..guard.loop import Batch
    from ..guard.own_loop import LossFunction
    from .replay_runs import Weights

_PASS_LOSS = "from Python: asrconfig_go.train.replay_batch(folder, model=model, loss_fn=loss_fn)"  # hint of an error
_MORE_EXACT: dict[Precision, tuple[Precision, ...]] = {"fp16": ("bf16", "fp32"), "bf16": ("fp32",), "fp32": ()}
_HEAD = ("clip", "seconds", "labels", "loss", "gradient norm", "memory")


@dataclass(frozen=True, kw_only=True)
class ReplayedClip(Replayed):
    """A clip of a saved batch, computed alone.

    Attributes:
        loss: The loss, NaN or infinite where it was so; None where the model raised ``error``.
        gradient_norm: The norm of the gradient, likewise.
        memory_bytes: The peak of the GPU's allocator; None on a CPU.
        error: The first line of the error that the model raised; ``""`` for none.
        clip: The clip, as the training recorded it.
        others: Its loss in more exact precisions, by their names; empty where none was tried.
        stands_out: Whether it is to blame.
    """

    clip: BadClip
    others: dict[str, float | None]
    stands_out: bool


@dataclass(frozen=True)
class BatchReplay:
    """A saved batch that was computed again, clip by clip and as a whole; ``print`` shows a table.

    Attributes:
        folder: The folder of the saved batch.
        saved: What the training wrote.
        weights: Where the weights of the model come from.
        device: The device on which the batch was computed.
        precision: The precision of the training.
        training_mode: Whether clips were computed in training mode, with the training's random numbers, since none
            failed in evaluation mode.
        clips: Each clip, computed alone.
        batches: Each collated batch as a whole.
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
        """Return the replay as a JSON object.

        Returns:
            The object, in which numbers that are not finite are text.
        """
        finite = [clip.finite for clip in self.clips]
        return {**_plain(asdict(self)), "finite": finite, "recommendations": list(self.recommendations())}

    def recommendations(self) -> Iterator[str]:
        """Iterate over sentences about what to do.

        Returns:
            An iterator over the sentences.
        """
        for clip in self.to_blame[:LINES]:
            name, findings = clip.clip.name, clip.clip.findings
            yield from (f"{name}: {finding}" for finding in findings)
            if fine := [p for p, loss in clip.others.items() if loss is not None and math.isfinite(loss)]:
                yield f"{name}: its loss is finite in {fine[0]}: train with {fine[0]} in place of {self.precision}"
            elif not findings:
                yield f"{name}: nothing is unusual in its audio and labels: listen to it, or leave it out"
        if not self.to_blame:
            yield (
                f"no clip stands out with the weights of {self.weights}: those of step {self.saved.global_step} were "
                "different, or the learning rate is too high"
            )
        if self.saved.settings.get("label_smoothing_factor"):
            yield "losses are without the training's label smoothing"

    def __str__(self) -> str:
        saved, mode = self.saved, "in training mode" if self.training_mode else "in evaluation mode"
        unknown = [f"rows are not known: {saved.rows_unknown}"] if saved.rows_unknown else []
        head = (
            f"step {saved.global_step}: {saved.said}; {plural(len(saved.clips), 'clip')} in {self.folder}",
            f"weights of {self.weights}, {self.precision} on {self.device}, {mode}",
        )
        return "\n".join([*head, "", *_table(self), "", *self.recommendations(), *unknown])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return box("Replay", str(self))


def replay_batch(
    path: str | os.PathLike[str],
    model: Weights = None,
    *,
    loss_fn: LossFunction | None = None,
    device: str | None = None,
) -> BatchReplay:
    """Compute a batch that the guard saved: each clip alone, and the whole.

    Clips are computed in evaluation mode, and where none fails so, in training mode with the training's random numbers;
    in the training's precision, and where a clip fails also in the more exact ones.

    Args:
        path: The folder ``bad-batch`` that the guard wrote.
        model: The model: a module, or a checkpoint or name to load weights from. None for the newest checkpoint beside
            the folder from before the step, else the first one after it.
        loss_fn: The loss function that was passed to ``guarded_step``, for a batch that it saved; None for a Trainer's.
        device: The device to compute on, such as ``"cpu"``; None for a GPU where there is one.

    Returns:
        The replay.

    Raises:
        NotFoundError: There is no saved batch, or nothing to load weights from.
        CorruptFileError: The saved batch is damaged or of another version.
        UnsupportedError: Transformers does not have the model, or the checkpoint holds adapters alone: pass the module.
        InvalidArgumentError: The batch was saved by ``guarded_step`` and ``loss_fn`` is missing, weights are not
            finite, or the device cannot be used.

    Example:
        >>> from transformers import Trainer, TrainingArguments
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> from asrconfig_go.guard import attach
        >>> args = TrainingArguments("out", use_cpu=True, report_to=[], disable_tqdm=True)
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
    folder = user_path(path, "path")
    saved, batches, random_states = read_batch(folder)
    if "loss_fn" in saved.settings and loss_fn is None:
        problem = f"{folder} was saved by guarded_step, whose loss is that of {saved.settings['loss_fn']}"
        raise InvalidArgumentError(problem, _PASS_LOSS)
    loaded, weights = load_model(folder, saved, model)
    if name := broken(loaded):
        raise InvalidArgumentError(f"{name} of {weights} is not finite", FIRST_WEIGHTS)
    loaded, on = _moved(loaded, device)
    precision = _precision_of(saved)
    runner = BatchRunner(loaded, on, precision, random_states, loss_fn)
    results = runner.clips(batches)
    training_mode = saved.what in ("error", "loss", "gradient") and all(result.finite for result in results)
    if training_mode:
        results = runner.clips(batches, training=True)
    clips = _replayed_clips(saved, batches, results, runner, precision)
    as_collated = tuple(runner.run(number, batch) for number, batch in enumerate(batches))
    return BatchReplay(str(folder), saved, weights, str(on), precision, training_mode, clips, as_collated)


def _moved(model: Any, device: str | None) -> tuple[Any, torch.device]:
    """The model on the device to compute on, and that device."""
    try:
        on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return model.to(on), on
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgumentError(f"device = {device!r} cannot be used: {error}", 'pass device="cpu"') from error


def _precision_of(saved: SavedBatch) -> Precision:
    """The precision of the training that saved the batch."""
    if saved.settings.get("fp16"):
        return "fp16"
    return "bf16" if saved.settings.get("bf16") else "fp32"


def _replayed_clips(
    saved: SavedBatch, batches: Sequence[Batch], results: list[Replayed], runner: BatchRunner, precision: Precision
) -> tuple[ReplayedClip, ...]:
    """The clips with their results, and the losses in more exact precisions of those that are not finite."""
    places = [(number, i) for number, batch in enumerate(batches) for i in range(batch_size(batch))]
    clips = []
    for clip, (number, i), result, out in zip(saved.clips, places, results, standing_out(results), strict=True):
        not_finite = not result.finite and not result.error
        part = piece(batches[number], i, i + 1)
        tried = _MORE_EXACT[precision] if not_finite else ()
        others: dict[str, float | None] = {p: runner.run(number, part, precision=p).loss for p in tried}
        clips.append(ReplayedClip(clip=clip, **vars(result), others=others, stands_out=out))
    return tuple(clips)


def _table(replay: BatchReplay) -> Iterator[str]:
    clips, hidden = replay.clips, len(replay.clips) - LINES
    if hidden > 0:
        clips = tuple(sorted(clips, key=lambda clip: not clip.stands_out)[:LINES])
    rows = [_HEAD, *(_row(clip) for clip in clips)]
    if hidden > 0:
        rows.append((f"  … and {hidden} more", *[""] * (len(_HEAD) - 1)))
    for number, batch in enumerate(replay.batches):
        name = "the batch" if len(replay.batches) == 1 else f"batch {number + 1}"
        rows.append((name, "", "", *_figures(batch)))
    first, *widths = (max(len(row[i]) for row in rows) for i in range(len(_HEAD)))
    for name, *cells in rows:
        figures = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield "  ".join([name.ljust(first), *figures]).rstrip()


def _row(replayed: ReplayedClip) -> tuple[str, ...]:
    clip, mark = replayed.clip, "→ " if replayed.stands_out else "  "
    seconds = "–" if clip.seconds is None else f"{clip.seconds:.2f}"
    name = f"row {clip.row} {Path(clip.path).name}" if clip.row is not None and clip.path else clip.name
    labels = "–" if clip.labels is None else str(clip.labels)
    return (f"{mark}{visible(name)[:40].rstrip()}", seconds, labels, *_figures(replayed))


def _figures(result: Replayed) -> tuple[str, str, str]:
    loss = result.error[:40] or ("–" if result.loss is None else f"{result.loss:.4g}")
    return loss, "–" if result.gradient_norm is None else f"{result.gradient_norm:.3g}", gib(result.memory_bytes)


def _plain(value: Any) -> Any:
    """``value`` with the text of each number that is not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
