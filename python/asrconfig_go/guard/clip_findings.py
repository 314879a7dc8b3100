"""The clips of a batch: texts, audio, labels, what is unusual; each clip's loss and gradient; those that do not fit."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import batch_size, clip_lengths, copied, extent, input_name, split, spoken_lengths, time_axis
from .._core.out_of_memory import classify, clear_frames, first_line, free_memory
from .._core.output import logger
from .._core.padding import trimmed_clips
from .._core.random_state import cpu_generators_kept, set_cpu_state
from .._core.render import plural
from .._core.settings import TooLong
from .._core.stored_clip import StoredClip
from ..data.columns import audio_columns, text_columns, usual_columns
from ..data.label_faults import faults
from ..data.label_rules import IGNORED, LabelRules, processor_of, rules_of
from ..data.source import open_source
from ..errors import AsrConfigError, InfeasiblePlanError
from ..predict.probe import gradients_aside
from ..predict.worst_batch import is_mel, per_second
from .accumulation_window import Window
from .loop import Batch, Call, Loop, Split
from .loss_rule import LossRule
from .micro_batches import Budget, Piece
from .rule_measurement import steady, untouched
from .step_state import StepState

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer

_TIMES = 4.0  # as long as the median clip of the batch
_LOUDER = 30.0  # than the median clip of the batch
_SILENT = 1e-6  # largest difference between two samples
_LONGEST = 500  # characters
SHORTER_CLIPS = "split or drop long clips before training, enable gradient checkpointing, or use a larger GPU"
_MOST_GRADIENTS = 64  # clips; each takes a forward and a backward pass


@dataclass(frozen=True)
class Measured:
    """A clip of a collated batch: seconds without padding, labels, and how loud it is (root mean square).

    Labels are None where they are classes, or values.
    """

    seconds: float | None = None
    labels: list[int] | None = None
    loudness: float | None = None
    spread: float | None = None
    unfinite: int = 0


def look_at(inputs: Mapping[str, torch.Tensor], model: torch.nn.Module, labels: str = "labels") -> list[Measured]:
    """Each clip of a batch, by its input and labels."""
    lengths, rate, name = spoken_lengths(inputs), per_second(inputs, model), input_name(inputs)
    if lengths is None and name is not None and "attention_mask" not in inputs and not is_mel(inputs, model):
        lengths = [extent(inputs).length] * batch_size(inputs)
    texts: Any = inputs.get(labels)
    clips = []
    has_texts = hasattr(texts, "shape") and len(texts.shape) == 2 and not texts.is_floating_point()
    for i in range(batch_size(inputs)):
        own = [int(label) for label in texts[i].tolist() if label != IGNORED] if has_texts else None
        audio = None
        if name is not None and inputs[name].is_floating_point():
            axis = time_axis(inputs, name) - 1
            padded = inputs[name][i]
            audio = padded if lengths is None or axis >= padded.dim() else padded.narrow(axis, 0, lengths[i])
        seconds = None if lengths is None or rate is None else lengths[i] / rate
        clips.append(Measured(seconds, own, *_levels(audio)))
    return clips


def _levels(audio: torch.Tensor | None) -> tuple[float | None, float | None, int]:
    if audio is None or not audio.numel():
        return None, None, 0
    audio = audio.detach().float()
    fine = audio[torch.isfinite(audio)]
    bad = audio.numel() - fine.numel()
    if not fine.numel():
        return None, None, bad
    return float(fine.square().mean().sqrt()), float(fine.max() - fine.min()), bad


def findings(clips: list[Measured], model: torch.nn.Module) -> list[tuple[str, ...]]:
    """Findings in words for each clip of a batch."""
    rules = rules_of(model)
    seconds = [c.seconds for c in clips if c.seconds is not None]
    loud = [c.loudness for c in clips if c.loudness is not None]
    usual = (statistics.median(seconds) if seconds else None, statistics.median(loud) if loud else None)
    return [tuple(_of(clip, rules, usual)) for clip in clips]


def _of(clip: Measured, rules: LabelRules, usual: tuple[float | None, float | None]) -> Iterator[str]:
    if clip.unfinite:
        yield f"its audio has {plural(clip.unfinite, 'value')} not finite: decode it again, or leave it out"
    if clip.spread is not None and clip.spread <= _SILENT and not clip.unfinite:
        yield "its audio is silent: leave it out"
    elif clip.loudness is not None and usual[1] and clip.loudness > _LOUDER * usual[1]:
        yield f"its audio is {clip.loudness / usual[1]:.0f} times as loud as the batch's median clip: normalise it"
    if clip.seconds is not None and usual[0] and clip.seconds > _TIMES * usual[0]:
        yield f"it is {clip.seconds / usual[0]:.1f} times as long as the batch's median clip"
    if clip.labels == []:
        yield "it has no labels: leave it out"
    for name, detail in faults(clip.labels, clip.seconds, rules) if clip.labels else ():
        if name == "outside":
            others = "the model" if rules.vocabulary is None else f"the {rules.vocabulary} of the model"
            yield f"{detail} is not among {others}: use the tokenizer that the model is for"
        elif name == "blank":
            yield f"{detail} is CTC's blank: set model.config.pad_token_id to the tokenizer's, and pad labels with -100"
        elif name == "too_long":
            yield f"{detail}: shorten the text, or leave it out"


class ClipDetails:
    """Reads rows of a Trainer's dataset, once something went wrong; what cannot be read is ""."""

    def __init__(self, trainer: Trainer, dataset: torch.utils.data.Dataset | None) -> None:
        self._trainer, self._dataset = trainer, dataset

    def of(self, row: int | None, labels: list[int]) -> tuple[bool, str, str]:
        """Whether ``row`` can be the clip with these labels; its path, and its text or the decoded labels."""
        example = {} if row is None else self._read(row)
        own_labels = example.get("labels")
        if own_labels is not None and not _alike(own_labels, labels):
            return False, "", self._decoded(labels)
        paths = [StoredClip.of(example[name]).path for name in usual_columns(example, audio_columns())]
        texts = [example[name] for name in usual_columns(example, text_columns())]
        path, text = (next((v for v in values if isinstance(v, str) and v), "") for values in (paths, texts))
        return True, path[:_LONGEST], (text or self._decoded(labels))[:_LONGEST]

    def _read(self, row: int) -> dict[str, Any]:
        dataset: torch.utils.data.Dataset = self._dataset
        with contextlib.suppress(Exception), cpu_generators_kept():  # whatever a dataset raises: a name is lost
            source = open_source(dataset)
            if source.kind == "dataset":  # nothing but these is read, and nothing decoded
                dataset = source.stored(usual_columns(source.columns, (*audio_columns(), *text_columns(), "labels")))
            example = dataset[row]
            return dict(example) if hasattr(example, "keys") else {}
        return {}

    def _decoded(self, labels: list[int]) -> str:
        processor = processor_of(self._trainer, "decode")
        tokenizer: PreTrainedTokenizerBase = getattr(processor, "tokenizer", processor)
        is_ctc = "CTC" in type(tokenizer).__name__
        options = {"group_tokens": False} if is_ctc else {"skip_special_tokens": True}
        with contextlib.suppress(Exception):
            return str(tokenizer.decode(labels, **options))
        return " ".join(map(str, labels))


def _alike(own_labels: Sequence[int] | torch.Tensor, labels: list[int]) -> bool:
    """Whether a row's labels are those of a collated clip; collators take a first token out, or truncate."""
    try:
        own = [int(label) for label in (own_labels.tolist() if hasattr(own_labels, "tolist") else own_labels)]
    except (TypeError, ValueError):  # texts, or labels of another kind
        return True
    own = [label for label in own if label != IGNORED]
    return any(part[: len(labels)] == labels for part in (own, own[1:]))


@dataclass
class ClipAlone:
    """Clip ``number`` of what is left of the window's batch ``call``; None where it could not be measured."""

    call: Call
    number: int
    loss: float | None = None
    gradient_norm: float | None = None
    error: str = ""
    """What the model raises on it."""
    why: str = ""
    """Why it is to blame; "" where it is not."""

    def fails(self) -> bool:
        """Whether it raises an error, or its loss or gradient is not finite."""
        values = (self.loss, self.gradient_norm)
        return bool(self.error) or any(value is not None and not math.isfinite(value) for value in values)


class ClipMeasurement:
    """Computes clips of a loop's window alone, padded as in their batch unless asked otherwise, and leaves no trace.

    In evaluation mode, where nothing is random; ``training`` computes them as the step did, from its random numbers.
    """

    def __init__(self, loop: Loop, state: StepState, split: Split | None) -> None:
        self._loop, self._state, self._split = loop, state, split

    def losses(self, calls: list[Call], training: bool = False, own_padding: bool = False) -> list[ClipAlone]:
        """The loss of every clip of ``calls``, or the error that it raises.

        ``own_padding`` computes each without the padding to the longest clip and text of its batch.
        """
        clips = [
            ClipAlone(call, i) for call in calls if call.inputs is not None for i in range(batch_size(call.inputs))
        ]

        def measure(clip: ClipAlone, part: Batch) -> None:
            with torch.no_grad():
                clip.loss = float(self._loss(clip.call, part, training))

        with untouched(self._loop, self._state):
            self._measure_all(clips, measure, own_padding)
        return clips

    def gradients(self, clips: list[ClipAlone]) -> None:
        """The gradient norm of the first clips, the largest losses first; adds it to them."""
        weights = [p for p in self._loop.parameters() if p.requires_grad]

        def measure(clip: ClipAlone, part: Batch) -> None:
            for p in weights:
                p.grad = None
            with torch.enable_grad():
                self._loss(clip.call, part, training=False).backward()
            clip.gradient_norm = gradient_norm(weights)

        losses = [-math.inf if c.loss is None else c.loss if math.isfinite(c.loss) else math.inf for c in clips]
        largest = [clips[i] for i in sorted(range(len(clips)), key=lambda i: -losses[i])[:_MOST_GRADIENTS]]
        with untouched(self._loop, self._state), gradients_aside(weights):
            self._measure_all(largest, measure)

    def _measure_all(
        self, clips: list[ClipAlone], measure: Callable[[ClipAlone, Any], None], own_padding: bool = False
    ) -> None:
        """Measure clips until a batch cannot be split or memory runs out."""
        parts: dict[int, list[Any]] = {}
        for clip in clips:
            try:
                if id(clip.call) not in parts:
                    batch = clip.call.inputs
                    padded = parts[id(clip.call)] = (self._split or split)(batch, 1)
                    if own_padding:
                        parts[id(clip.call)] = trimmed_clips(batch, padded, self._loop.model)
                measure(clip, parts[id(clip.call)][clip.number])
            except AsrConfigError:
                return
            except Exception as error:  # whatever a model raises on one clip is what is asked
                clear_frames(error)
                if classify(error)["class"] != "other":
                    break
                clip.error = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        free_memory()

    def _loss(self, call: Call, part: Batch, training: bool) -> Any:
        model = self._loop.model
        if training:
            self._loop.prepare()
            set_cpu_state(call.before.random)
            return self._loop.loss(call, copied(part))
        model.eval()
        with steady(model, 0):
            return self._loop.loss(call, copied(part))


def gradient_norm(parameters: Iterable[torch.Tensor]) -> float:
    """The norm of all their gradients together, in 32 bits; 0 where there are none."""
    norms = [p.grad.float().norm() for p in parameters if p.grad is not None]
    return float(torch.stack(norms).norm()) if norms else 0.0


def broken(model: torch.nn.Module) -> str:
    """The first weight that has values which are not finite, "" where all are."""
    for name, p in model.named_parameters():
        if p.is_floating_point() and not math.isfinite(float(p.detach().sum(dtype=torch.float32))):  # without a copy
            return str(name)
    return ""


def probes(model: torch.nn.Module) -> Iterator[Any]:
    """Two trained weights near the input: a gradient that is not finite reaches them from wherever it comes."""
    trained = [p for p in model.parameters() if p.requires_grad][:16]
    yield from sorted(trained, key=lambda p: int(p.numel()))[:2]


class OversizedClips:
    """Takes clips that are too long out of their batches, if the user allowed it, and counts them.

    The others are then padded to the longest of them, as if the clip had never been in the batch. There is no automatic
    chunking: where to split a transcript is not known here. A function of the user's may know.
    """

    def __init__(
        self, policy: TooLong | Callable[[Any], list[Any]], budget: Budget, window: Window, rule: LossRule
    ) -> None:
        self._policy, self._budget, self._window, self._rule = policy, budget, window, rule
        self.count = 0
        self.report: Callable[[Call], None] = lambda _: None
        """Called with a batch whose longest clip is about to be left out, once it has not fitted."""

    def before(self, call: Call) -> None:
        """Take out what is known not to fit."""
        limit = self._budget.too_long
        while limit is not None and call.inputs is not None:
            lengths = spoken_lengths(call.inputs)
            if lengths is None or max(lengths) * extent(call.inputs).width < limit:
                return
            self._take_longest(call)

    def take(self, call: Call, piece: Piece) -> bool:
        """Take out the clip that makes ``piece``, of one sample, too long; False when that may not be."""
        if self._policy == "raise" or piece.of_replacement or call.inputs is None:
            return False
        longest = max(clip_lengths(call.inputs)) * extent(call.inputs).width
        limit = self._budget.too_long
        self._budget.too_long = longest if limit is None else min(limit, longest)
        logger.warning("clips of %d values or more do not fit alone: they are left out from here on", longest)
        self.report(call)
        self._take_longest(call)
        self.before(call)  # others of the batch that are as long need not be tried
        return True

    def _take_longest(self, call: Call) -> None:
        lengths = clip_lengths(call.inputs)
        clip = self._window.take_out(call, lengths.index(max(lengths)))
        self.count += 1
        if callable(self._policy):
            made = [call.fit(part) for part in self._policy(clip)]
            self._window.leave_out(-sum(self._rule.count(part) for part in made))
            call.replacements = (*call.replacements, *made)
        elif self._window.is_empty:
            raise InfeasiblePlanError("every clip of an optimizer step is too long for the GPU", SHORTER_CLIPS)
