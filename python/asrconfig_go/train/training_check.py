"""What of a training's data, model and settings does not go together: looked at before the first step.

Only headers, configs and columns of labels are read: none of the user's code is run. What concerns single rows is a
warning, as the training may go on without them; what no step would survive is an error.
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core.modules import bare
from .._core.settings import SAMPLING_RATE
from ..data.label_faults import LabelTally, Mismatch, label_column, model_findings, shown, tally_labels
from ..data.label_rules import LabelRules, processor_of, rules_of
from ..data.source import open_source
from ..errors import InvalidArgumentError
from .planned_batches import durations_of_set

if TYPE_CHECKING:
    from array import array

    import torch
    from torch.utils.data import Dataset
    from transformers import PretrainedConfig, PreTrainedTokenizerBase, Trainer

    from ..plan.plan_record import PlanRecord

    Owner: TypeAlias = "Trainer | SimpleNamespace"

_UNSMOOTHED = ("ForCTC", "ForRNNT", "ForTDT", "ForAudioFrameClassification")
_LISTED = 8  # findings that a warning lists


class TrainingCheckWarning(UserWarning):
    """Data, model or settings of a training do not go together.

    The message names the problem, the row where it is one of the data, the consequences and what to do.
    """


class TrainingCheck:
    """Looks at the trainings of one manager; says each finding once, and reads each dataset once."""

    def __init__(self) -> None:
        self._reported: set[str] = set()
        self._tallies: list[tuple[Any, LabelRules, LabelTally | None]] = []
        self._trainer: weakref.ref[Trainer] | None = None

    def plan(
        self, dataset: Dataset, model: torch.nn.Module, processor: object, collator: object, seconds: Sequence[float]
    ) -> None:
        """Before a training is planned: warn of what is wrong with the rows for a live model."""
        source = open_source(dataset).train
        owner = SimpleNamespace(
            processing_class=processor, data_collator=collator, model=model, train_dataset=source.data
        )
        self._say([*self._of_data(owner, seconds if len(seconds) == source.length else None)])

    def trainer(
        self, trainer: Trainer, config: PlanRecord | None, seconds: array[float], *, strict: bool, saves: bool = False
    ) -> None:
        """Before a Trainer trains: warn of what is wrong with rows; ``strict`` raises for what no step would survive.

        Without ``strict`` a Trainer that was looked at is not looked at again. ``saves``: it will write a checkpoint in
        any case.
        """
        if not strict and self._trainer is not None and self._trainer() is trainer:
            return
        self._trainer = weakref.ref(trainer)
        rows = open_source(trainer.train_dataset).length
        durations = None if rows is None else durations_of_set(rows, config, seconds)
        findings = [*self._of_data(trainer, durations), *_smoothing(trainer)]
        if saves or trainer.args.save_strategy != "no":
            findings += _unsaved(trainer)
        certain = [finding for finding in findings if finding.certain] if strict else []
        self._say([finding for finding in findings if finding not in certain], trainer)
        if certain:
            raise InvalidArgumentError(certain[0].what.rstrip("."), certain[0].remedy.rstrip("."))

    def _of_data(self, owner: Owner, durations: Sequence[float] | None) -> Iterator[Mismatch]:
        """What is wrong with a model's rules, and the rows to train and evaluate with."""
        rules = rules_of(owner.model, processor_of(owner, "pad_token_id"))
        if not rules.kind:
            return
        yield from model_findings(rules)
        names = (*(getattr(owner, "label_names", None) or ()), "labels", "label")
        yield from self._of_rows(owner, owner.train_dataset, rules, durations, names, "rows")
        yield from _short_clips(owner, rules, durations)
        for name, source in open_source(getattr(owner, "eval_dataset", None)).parts.items():
            where = f"rows to evaluate with{f' ({name})' if name else ''}"
            yield from self._of_rows(owner, source.data, rules, None, names, where)

    def _of_rows(
        self,
        owner: Owner,
        dataset: Dataset,
        rules: LabelRules,
        seconds: Sequence[float] | None,
        names: Sequence[str],
        where: str,
    ) -> list[Mismatch]:
        """What is wrong with the labels of a dataset that stores them."""
        names = [name for name in names if name != "label" or rules.kind == "classes"]
        name = None if dataset is None else label_column(dataset, names)
        if name is None:
            return []
        tally = next((t for d, r, t in self._tallies if d is dataset and r == rules), None)
        if tally is None:
            tally = tally_labels(dataset, name, rules, seconds)
            self._tallies = [*self._tallies[-3:], (dataset, rules, tally)]
        return [] if tally is None else tally.findings(partial(_clip, owner, dataset), where)

    def _say(self, findings: Sequence[Mismatch], trainer: Trainer = None) -> None:
        """Warn of findings that were not reported before."""
        news = [str(finding) for finding in findings if finding.what not in self._reported]
        self._reported.update(finding.what for finding in findings)
        if not news or not (trainer is None or trainer.is_world_process_zero()):
            return
        more = [f"and {len(news) - _LISTED} more"] if len(news) > _LISTED else []
        text = "\n- ".join(["data, model and settings do not go together:", *news[:_LISTED], *more])
        warnings.warn(text if len(news) > 1 else news[0], TrainingCheckWarning, stacklevel=4)


def _clip(owner: Owner, dataset: Dataset, row: int, labels: Sequence[int]) -> str:
    from ..guard.clip_findings import ClipDetails

    _, path, text = ClipDetails(owner, dataset).of(row, [label for label in labels if label >= 0])
    return shown(path, text)


def _short_clips(owner: Owner, rules: LabelRules, seconds: Sequence[float] | None) -> Iterator[Mismatch]:
    """Clips of which a batch is too short to be masked by SpecAugment."""
    from .._core.padding import min_input_length

    model = owner.model
    minimum = min_input_length(model) if seconds is not None else 0
    if not minimum or seconds is None or (rules.limits is not None and rules.limits.positions):
        return
    is_frames = getattr(bare(model), "main_input_name", "") == "input_features"
    length = rules.limits.frames if is_frames and rules.limits else int
    short = [row for row, s in enumerate(seconds) if s > 0 and length(round(s * SAMPLING_RATE)) < minimum]
    if not short:
        return
    frames = getattr(bare(model).config, "mask_time_length", None)
    clip = ", ".join(filter(None, (_clip(owner, owner.train_dataset, short[0], ()), f"{seconds[short[0]]:.2f} s")))
    verb, first = ("are", "the first is ") if len(short) > 1 else ("is", "")
    yield Mismatch(
        f"{len(short)} of {len(seconds)} clips {verb} shorter than a mask of SpecAugment (config.mask_time_length = "
        f"{frames} frames): {first}row {short[0]} ({clip}). In a batch of only such clips the model raises ValueError "
        "without the guard, which pads it.",
        "Leave them out (a word takes longer), or lower config.mask_time_length.",
    )


def _smoothing(trainer: Trainer) -> Iterator[Mismatch]:
    """Label smoothing, where the Trainer cannot compute such a loss from what the model returns."""
    from transformers import Trainer

    factor = trainer.args.label_smoothing_factor
    own = type(trainer).compute_loss is not Trainer.compute_loss or getattr(trainer, "compute_loss_func", None)
    if not factor or own or getattr(trainer, "label_smoother", None) is None:
        return
    model = bare(trainer.model)
    name = type(model).__name__
    if any(kind.__name__.endswith(_UNSMOOTHED) for kind in type(model).__mro__):
        yield Mismatch(
            f"label_smoothing_factor = {factor} does not go with {name}: the Trainer then computes a cross entropy of "
            "its outputs with the labels in place of the model's loss, and they are not aligned.",
            "Pass label_smoothing_factor=0.",
            certain=True,
        )
    elif rules_of(model).kind == "decoder" and (makes := _makes_decoder_input(trainer.data_collator)) is not True:
        yield Mismatch(
            f"label_smoothing_factor = {factor} takes the labels out of the model's input, and {name} needs "
            f"decoder_input_ids then, which {type(trainer.data_collator).__name__} does not make.",
            "Pass label_smoothing_factor=0, or a collator that adds decoder_input_ids to the batch.",
            certain=makes is False,
        )


def _makes_decoder_input(collator: Callable[..., object]) -> bool | None:
    """Whether batches have ``decoder_input_ids``; None where the collator's source does not tell."""
    from ..audio.collators import Seq2SeqCollator

    if isinstance(collator, Seq2SeqCollator):
        return False
    if type(collator).__name__ == "DataCollatorForSeq2Seq":
        return hasattr(getattr(collator, "model", None), "prepare_decoder_input_ids_from_labels")
    with contextlib.suppress(OSError, TypeError):  # code without a file
        source = inspect.getsource(collator if inspect.isroutine(collator) else type(collator))
        return True if "decoder_input_ids" in source else None
    return None


def _unsaved(trainer: Trainer) -> Iterator[Mismatch]:
    """What the first checkpoint would fail to write: tried in a temporary folder, without the weights."""
    for name, part in _saved_parts(trainer):
        error = _save(part)
        if error is not None:
            yield Mismatch(
                f"{name} cannot be saved, and the training would end at its first checkpoint: "
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]}.",
                f"Correct {name}, or set save_strategy='no'.",
                certain=True,
            )


def _saved_parts(trainer: Trainer) -> Iterator[tuple[str, Any]]:
    """What the Trainer writes beside the weights, of transformers' own kinds."""
    model, own = trainer.model, bare(trainer.model)
    if type(own).__module__.startswith("transformers.") and not getattr(model, "peft_config", None):
        yield "the model's config", own.config
        if own.can_generate():
            yield "the model's generation_config", own.generation_config
    processor = getattr(trainer, "processing_class", None) or getattr(trainer, "tokenizer", None)
    processor = processor or getattr(trainer.data_collator, "tokenizer", None)
    if type(processor).__module__.startswith("transformers."):
        yield f"the {type(processor).__name__}", processor


def _save(part: PretrainedConfig | PreTrainedTokenizerBase) -> Exception | None:
    """The error of saving a part; None for one of the disk."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            part.save_pretrained(folder)
        except OSError:
            return None
        except Exception as error:
            return error
    return None
