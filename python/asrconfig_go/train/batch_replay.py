"""``replay_batch``: a batch that the guard saved, alone, with the model that it failed in."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from .._core.batches import batch_size, piece
from .._core.declared import Precision
from .._core.files import user_path
from .._core.hub import from_hub
from .._core.out_of_memory import clear_frames, first_line, free_memory
from .._core.output import LINES
from .._core.padding import trimmed_clips
from .._core.random_state import cpu_generators_kept, set_cpu_state
from .._core.render import box, gib, plural, visible
from ..errors import AsrConfigError, InvalidArgumentError, NotFoundError, UnsupportedError
from ..guard.clip_findings import broken, gradient_norm
from ..guard.saved_batch import SavedBatch, read_batch, state_of_plain
from ..guard.training_report import BadClip
from ..predict.probe import gradients_aside
from .checkpoints import checkpoints, incomplete, step_of, weight_files

if TYPE_CHECKING:
    from ..guard.loop import Batch
    from ..guard.own_loop import LossFunction

    Weights: TypeAlias = "torch.nn.Module | str | os.PathLike[str] | None"

_BEGAN = "name the checkpoint or the model that the training began with: --model"
_OWN = "from Python: asrconfig_go.train.replay_batch(folder, model=model)"
_OWN_LOOP = "from Python: asrconfig_go.train.replay_batch(folder, model=model, loss_fn=loss_fn)"
MOST_TIMES = 3.0  # the median gradient norm of the batch's clips
_EXACTER: dict[Precision, tuple[Precision, ...]] = {"fp16": ("bf16", "fp32"), "bf16": ("fp32",), "fp32": ()}
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_HEAD = ("clip", "seconds", "labels", "loss", "gradient norm", "memory")


def _loaded(folder: Path, saved: SavedBatch, model: Weights) -> tuple[Any, str]:
    """The model, and where its weights come from."""
    if isinstance(model, torch.nn.Module):
        return model, f"the given {type(model).__name__}"
    if model is not None and not isinstance(model, str | os.PathLike):
        raise InvalidArgumentError(
            f"{type(model).__name__} is not a model", "pass a torch module, a checkpoint or a name"
        )
    source = os.fspath(model) if model is not None else str(_checkpoint(folder, saved))
    kind = _architecture(saved, Path(source))

    def load() -> Any:
        from transformers import AutoConfig

        return kind.from_pretrained(source, config=AutoConfig.for_model(**saved.config))

    if not Path(source).is_dir():
        return from_hub("the model", source, load, "pass --model with a checkpoint of the training"), source
    try:
        return load(), source
    except AsrConfigError:
        raise
    except Exception as error:  # whatever transformers raises of a folder that is no checkpoint
        raise NotFoundError(
            f"cannot load {saved.architecture} from {source}: {first_line(error)}", "pass --model with a checkpoint"
        ) from error


def _checkpoint(folder: Path, saved: SavedBatch) -> Path:
    """The run's newest checkpoint from before the step, else its first one."""
    run = (folder.resolve() if folder.is_symlink() else folder).parent
    folders = checkpoints(run)
    before = [path for path in folders if step_of(path) <= saved.global_step]
    after = folders[len(before) :]
    checkpoint = next((path for path in (*reversed(before), *after) if not incomplete(path)), None)
    if checkpoint is None:
        raise NotFoundError(f"{run} has no checkpoint to load weights from", _BEGAN)
    return checkpoint


def _architecture(saved: SavedBatch, source: Path) -> Any:
    import transformers

    kind = getattr(transformers, saved.architecture, None)
    if kind is None or not saved.config.get("model_type"):
        raise UnsupportedError(f"transformers has no {saved.architecture} to load weights into", _OWN)
    if any(path.name.startswith("adapter_") for path in weight_files(source)):
        raise UnsupportedError(f"{source} holds adapters alone", _OWN)
    return kind


@dataclass(frozen=True)
class Replayed:
    """What was computed of a clip or a batch.

    Attributes:
        loss: The loss, NaN or infinite where it was so; None where the model raised ``error``.
        gradient_norm: The norm of the gradient, likewise.
        memory_bytes: The peak of the GPU's allocator; None on a CPU.
        error: The first line of the error that the model raised; ``""`` for none.
    """

    loss: float | None
    gradient_norm: float | None
    memory_bytes: int | None
    error: str = ""

    @property
    def finite(self) -> bool:
        """Whether loss and gradient norm were computed and are finite."""
        return all(value is not None and math.isfinite(value) for value in (self.loss, self.gradient_norm))


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
    """A saved batch that was computed again, clip by clip and as a whole; ``print`` shows the table.

    Attributes:
        folder: The folder of the saved batch.
        saved: What the training wrote.
        weights: Where the weights of the model come from.
        device: The device on which the batch was computed.
        precision: The precision of the training.
        training_mode: Whether clips were computed in training mode, with the training's random numbers, as none failed
            in evaluation mode.
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
                "another's, or the learning rate is too high"
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
    saved, batches, random = read_batch(folder)
    if "loss_fn" in saved.settings and loss_fn is None:
        problem = f"{folder} was saved by guarded_step, whose loss is that of {saved.settings['loss_fn']}"
        raise InvalidArgumentError(problem, _OWN_LOOP)
    loaded, weights = _loaded(folder, saved, model)
    if name := broken(loaded):
        raise InvalidArgumentError(f"{name} of {weights} is not finite", _BEGAN)
    try:
        on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        loaded = loaded.to(on)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgumentError(f"device = {device!r} cannot be used: {error}", 'pass device="cpu"') from error
    precision: Precision = "fp16" if saved.settings.get("fp16") else "bf16" if saved.settings.get("bf16") else "fp32"
    replays = Replays(loaded, on, precision, random, loss_fn)
    places = [(number, i) for number, batch in enumerate(batches) for i in range(batch_size(batch))]
    results = replays.clips(batches)
    training = saved.what in ("error", "loss", "gradient") and all(result.finite for result in results)
    if training:
        results = replays.clips(batches, training=True)
    clips = []
    for clip, (number, i), result, out in zip(saved.clips, places, results, standing_out(results), strict=True):
        fails = not result.finite and not result.error
        part = piece(batches[number], i, i + 1)
        exacter = _EXACTER[precision] if fails else ()
        others: dict[str, float | None] = {p: replays.run(number, part, precision=p).loss for p in exacter}
        clips.append(ReplayedClip(clip=clip, **vars(result), others=others, stands_out=out))
    as_collated = tuple(replays.run(number, batch) for number, batch in enumerate(batches))
    return BatchReplay(str(folder), saved, weights, str(on), precision, training, tuple(clips), as_collated)


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
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class Replays:
    """Runs parts of saved batches through ``model``, with the random numbers that the training had before each."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.device,
        precision: Precision,
        random: list[dict[str, Any]],
        loss_fn: LossFunction | None,
    ) -> None:
        self._model, self._device, self._precision, self._loss_fn = model, device, precision, loss_fn
        self._random = [state_of_plain(state) for state in random]

    def clips(self, batches: Sequence[Batch], training: bool = False) -> list[Replayed]:
        """Every clip alone, with its batch's padding, or without it where that makes all of the batch fail."""
        return [clip for number, batch in enumerate(batches) for clip in self._clips_of(number, batch, training)]

    def _clips_of(self, number: int, batch: Batch, training: bool) -> list[Replayed]:
        parts = [piece(batch, i, i + 1) for i in range(batch_size(batch))]
        padded = [self.run(number, part, training) for part in parts]
        if len(padded) > 1 and all(clip.error for clip in padded):
            unpadded = [self.run(number, part, training) for part in trimmed_clips(batch, parts, self._model)]
            return unpadded if any(clip.error for clip in unpadded) else padded
        return padded

    def run(self, number: int, part: Batch, training: bool = False, precision: Precision | None = None) -> Replayed:
        """Compute a part of batch ``number``, or all of it."""
        gpu = self._device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        try:
            loss, gradient = self._computed(number, part, training, precision or self._precision)
            return Replayed(loss, gradient, torch.cuda.max_memory_allocated(self._device) if gpu else None)
        except Exception as error:  # whatever a model raises on a bad clip is the answer
            clear_frames(error)
            return Replayed(None, None, None, first_line(error))
        finally:
            free_memory()

    def _computed(self, number: int, part: Batch, training: bool, precision: Precision) -> tuple[float, float]:
        inputs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(self._device), part)
        model, mode = self._model, self._model.training
        with cpu_generators_kept(), gradients_aside(list(model.parameters())):
            set_cpu_state(self._random[number])
            dtype = _DTYPES.get(precision)
            try:
                with torch.autocast(self._device.type, dtype=dtype) if dtype else contextlib.nullcontext():
                    loss = self._loss(model.train(training), inputs)
            finally:
                model.train(mode)
            loss.backward()
            return float(loss.detach()), gradient_norm(model.parameters())

    def _loss(self, model: torch.nn.Module, inputs: Any) -> torch.Tensor:
        if self._loss_fn is not None:
            return self._loss_fn(model, inputs)
        out = model(**inputs)
        loss: torch.Tensor = out["loss"] if isinstance(out, dict) else out[0]
        return loss


def standing_out(clips: list[Replayed]) -> list[bool]:
    """Whether each is to blame: it is not finite, or its gradient norm is far above the median of those that are."""
    if not all(clip.finite for clip in clips):
        return [not clip.finite for clip in clips]
    norms = [clip.gradient_norm or 0.0 for clip in clips]
    usual = statistics.median(norms) if len(norms) > 1 else math.inf
    return [norm > MOST_TIMES * usual for norm in norms]
