"""A training under the guard on the CPU: undisturbed, and with one out-of-memory error in forward and in backward."""

from __future__ import annotations

import random
import tempfile
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from material import TINY, Row, Sizes, Subject, rows
from torch.utils import _pytree as pytree
from transformers import Trainer, TrainingArguments

from asrconfig_go.errors import AsrConfigError
from asrconfig_go.guard import attach

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"
BATCH, STEPS = 4, 3
# Of the weights' distance, relative to how far training moved them: sums in another order.
EXACT, EXACT_IN_BF16 = 1e-5, 2e-2
_BATCHED = ("labels", "input_values", "input_features", "input_ids", "audio_input_features")


@dataclass
class Run:
    """A training's weights before and after, and what it raised and warned of."""

    start: torch.Tensor
    end: torch.Tensor
    error: BaseException | None
    words: str
    errors_met: int = 0


class _OutOfMemory:
    """Raises the error of memory once, in the first batch of more than one clip."""

    def __init__(self, model: Any, place: str) -> None:
        self.raised, self._large = 0, False
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        if place == "forward":
            model.register_forward_hook(lambda *_: self._fail())
            return
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        middle = trained[len(trained) // 2 :] + trained[: len(trained) // 2]
        self._nodes = [weight.expand_as(weight).grad_fn.next_functions[0][0] for weight in middle]
        for node in self._nodes:
            node.register_prehook(lambda _: self._fail())

    def _begin(self, _: Any, __: Any, inputs: dict[str, Any]) -> None:
        counts = [len(inputs[name]) for name in _BATCHED if isinstance(inputs.get(name), torch.Tensor)]
        self._large = torch.is_grad_enabled() and min(counts, default=0) > 1

    def _fail(self) -> None:
        if self._large and not self.raised:
            self.raised = 1
            raise torch.cuda.OutOfMemoryError(OOM)


def _train(row: Row, guard: bool, place: str = "") -> Run:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    subject = row.build(TINY)
    start = _weights(subject.model)
    error, hungry = None, _OutOfMemory(subject.model, place) if place else None
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        trainer = Trainer(
            subject.model, _arguments(row, folder), train_dataset=_clips(row), data_collator=subject.collate
        )
        if guard:
            attach(trainer)
        try:
            trainer.train()
        except Exception as raised:
            error = raised
    words = " ".join(str(warning.message) for warning in warned if "asrconfig" in type(warning.message).__module__)
    return Run(start, _weights(subject.model), error, words, hungry.raised if hungry else 0)


def _clips(row: Row) -> Any:
    return rows(24, *row.settings["seconds"]) if "seconds" in row.settings else rows()


def _arguments(row: Row, folder: str) -> TrainingArguments:
    return TrainingArguments(
        folder, per_device_train_batch_size=BATCH, max_steps=row.settings.get("steps", STEPS), learning_rate=1e-2,
        optim="sgd", lr_scheduler_type="constant", max_grad_norm=0.0, logging_steps=1, save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True, remove_unused_columns=False, seed=1, bf16=_is_bf16(row),
    )  # fmt: skip


def _is_bf16(row: Row) -> bool:
    return row.settings.get("precision") == "bf16"


def _weights(model: Any) -> torch.Tensor:
    return torch.cat([weight.detach().double().flatten() for weight in model.parameters() if weight.requires_grad])


def guarded(row: Row) -> dict[str, str]:
    """How each training under the guard ended, in a word or a few.

    One that is not exact in float32 is trained in float64, too, where rounding does not hide whether it is.
    """
    found = _guarded(row)
    if not any(answer.startswith("wrong") for answer in found.values()):
        return found
    exactly = _guarded(_in_float64(row))
    if "error" in exactly:  # a part of the model is of another type
        return found
    return {key: f"{exactly[key]} in float64" if found[key].startswith("wrong") else found[key] for key in found}


def _in_float64(row: Row) -> Row:
    def build(sizes: Sizes) -> Subject:
        subject = row.build(sizes)
        subject.model.double()

        def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
            batch: dict[str, Any] = pytree.tree_map_only(torch.Tensor, _as_float64, dict(subject.collate(clips)))
            return batch

        return replace(subject, collate=collate)

    settings = {name: value for name, value in row.settings.items() if name != "precision"}
    return replace(row, build=build, settings=settings)


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _guarded(row: Row) -> dict[str, str]:
    plain = _train(row, guard=False)
    if plain.error is not None:
        return {"error": f"the plain Trainer: {_line(plain.error)}"}
    calm = _train(row, guard=True)
    found = {"calm": _compared(calm, plain, 0.0)}
    aim = EXACT_IN_BF16 if _is_bf16(row) else EXACT
    for place in ("forward", "backward"):
        found[place] = _compared(_train(row, guard=True, place=place), plain, aim)
    return found


def _compared(run: Run, plain: Run, aim: float) -> str:
    """An ``aim`` of 0 is of an undisturbed run: equal to the last bit."""
    if run.error is not None:
        named = isinstance(run.error, AsrConfigError) or run.words or getattr(run.error, "__notes__", [])
        return f"{'refused' if named else 'unnamed'}: {_line(run.error)} {run.words}"[:300].strip()
    if aim and not run.errors_met:
        return "not met"
    moved = float((plain.end - plain.start).norm())
    away = float((run.end - plain.end).norm()) / moved if moved else float("nan")
    if not aim:
        return "bit-equal" if torch.equal(run.end, plain.end) else f"wrong: {away:.1e}"
    if away <= aim:
        return f"exact: {away:.0e}"
    return f"named: {away:.0e} {run.words}"[:300] if run.words else f"wrong: {away:.1e}"


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]
