"""How batches are made smaller: micro-batches, what keeps a batch from being split, clips that do not fit alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._core.batches import (
    Extent,
    UnsplittableBatchError,
    batch_size,
    check_rows,
    entries,
    extent,
    own_lengths,
    pick,
    shallow,
    split,
    spoken_lengths,
)
from .._core.checks import TooLong
from .._core.padding import min_input_length, trimmed
from ..errors import InfeasiblePlanError, InvalidArgumentError
from ..predict.step_sampler import cheapest
from .accumulation_window import Window
from .loop import Batch, Call, Loop, Split
from .loss_rule import LossRule
from .micro_batches import Budget, Piece

logger: logging.Logger = logging.getLogger("asrconfig_go")

_STATISTICS_HINT = (
    "freeze the part that holds them by asrconfig_go.plan.freeze, or pass split_batch_statistics=True, which allows "
    "statistics of smaller micro-batches"
)
_SHORTER = "split or drop long clips before training, enable gradient checkpointing, or use a larger GPU"
_GIVE_SPLIT = "pass split=…, a function from a batch and a size to a list of batches"


class Splitting:
    """Splits the batches of one loop.

    Attributes:
        split: The user's function, if there is one.
        splits_statistics: Whether batches may be split whose clips the model sees together.
        refused: Why no batch can be split, once a part of one has shown that; "" before.
        rehearses: Whether a batch is computed that trains nothing.
        is_shared: Whether other processes take part in every forward: no batch is split, as theirs are not.
    """

    def __init__(
        self, loop: Loop, rule: LossRule, budget: Budget, split: Split | None, splits_statistics: bool
    ) -> None:
        self._loop, self._rule, self._budget = loop, rule, budget
        self.split, self.splits_statistics = split, splits_statistics
        self._requested = f"micro_batch = {budget.samples}" if budget.samples else ""  # for errors
        self.refused, self.rehearses, self.is_shared = "", False, False

    def is_split(self, call: Call) -> bool:
        """Whether a batch is computed in micro-batches: it is too large, and may be split."""
        if not self._budget.is_limited or self.is_shared or self._rule.unfit or call.inputs is None:
            return False
        if self._rule.name is None and not (self._budget.has_failed or self.rehearses):
            return False
        self._loop.prepare()
        if not (reason := self.cannot_split(call)):
            return is_too_large(*call.size(), self._budget)
        hint = _STATISTICS_HINT if reason == self.depends_on_batch() else _GIVE_SPLIT
        if self._requested:
            raise InvalidArgumentError(f"{self._requested} would not train as the whole batch does: {reason}", hint)
        self._loop.say(f"batches are not split, as that would change the result: {reason}; {hint}")
        return False

    def cannot_split(self, call: Call) -> str:
        """Why this batch cannot be split; "" where it can."""
        if self.refused:
            return self.refused
        try:
            check_rows(call.inputs) if self.split is None else call.size()
        except UnsplittableBatchError as error:
            return str(error.message)
        return self.depends_on_batch()

    def depends_on_batch(self) -> str:
        """The layers that see which clips a batch holds, in words; "" for none, or where they may see fewer."""
        if self.splits_statistics:
            return ""
        live = [
            name
            for name, module in self._loop.model.named_modules()
            if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats)
        ]
        more = f" and {len(live) - 1} more" if len(live) > 1 else ""
        return f"{live[0]}{more} of the model normalise over the clips of a batch" if live else ""

    def piece(self, call: Call) -> Piece | None:
        """The micro-batch that is computed first."""
        if call.inputs is None:
            return None
        try:
            count, clip_extent = call.size()
        except UnsplittableBatchError as error:
            return Piece(1, extent(call.inputs), cannot_split=str(error.message))
        reason = self.cannot_split(call)
        size = count if reason or not self.is_split(call) else self._budget.size(clip_extent, count)
        hint = _STATISTICS_HINT if reason and reason == self.depends_on_batch() else ""
        return Piece(size, clip_extent, cannot_split=reason, hint=hint or (_GIVE_SPLIT if reason else ""))

    def parts(self, call: Call) -> Iterator[tuple[Any, Piece]]:
        """The micro-batches of a batch, and those that replace its clips."""
        if call.inputs is not None:
            if not self.is_split(call):
                yield shallow(call.inputs), self.piece(call) or Piece(1, extent(call.inputs))
            elif self.split is None and self._rule.trims:
                yield from by_length(call.inputs, self._budget, self._loop.model)
            else:
                yield from evenly(call.inputs, self._budget, self.split)
        for part in call.replacements:
            yield shallow(part), Piece(batch_size(part), extent(part), of_replacement=True)


def is_too_large(n: int, clip_extent: Extent, budget: Budget) -> bool:
    """Whether a batch of ``n`` samples is too large for one micro-batch, or may cost less in several."""
    return budget.overhead_s is not None or budget.size(clip_extent, n) < n


def evenly(inputs: Batch, budget: Budget, by: Split | None) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches in order, with the batch's padding; copies, as a step may take entries out of them."""
    n, clip_extent = batch_size(inputs), extent(inputs)
    size = budget.size(clip_extent, n)
    parts = (by or split)(inputs, size) if size < n else [shallow(inputs)]
    for part in parts:
        yield part, Piece(n if size >= n else batch_size(part), clip_extent)


def by_length(inputs: Batch, budget: Budget, model: torch.nn.Module) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches of clips of similar length, the longest first, without the padding that each does not need."""
    from ..predict.worst_batch import per_second  # loads the trace

    lengths = own_lengths(inputs)
    if lengths is None:
        yield from evenly(inputs, budget, None)
        return
    shortest, padded, width = min_input_length(model), extent(inputs).length, extent(inputs).width
    lengths = [min(max(length, shortest), padded) for length in lengths]  # as they are computed
    rate = budget.rate or per_second(entries(inputs), model)
    overhead = None if budget.overhead_s is None or rate is None else budget.overhead_s * rate
    for rows in cheapest(lengths, lambda longest, left: budget.size(Extent(int(longest), width), left), overhead):
        # In the batch's order, so that the micro-batches of a batch of equal clips do not depend on sorting.
        longest = lengths[rows[0]]
        yield trimmed(pick(inputs, sorted(rows)), longest), Piece(len(rows), Extent(longest, width))


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
            self._take_longest(call, lengths)

    def take(self, call: Call, piece: Piece) -> bool:
        """Take out the clip that makes ``piece``, of one sample, too long; False when that may not be."""
        if self._policy == "raise" or piece.of_replacement or call.inputs is None:
            return False
        lengths = spoken_lengths(call.inputs) or [piece.extent.length] * batch_size(call.inputs)
        longest = max(lengths) * extent(call.inputs).width
        limit = self._budget.too_long
        self._budget.too_long = longest if limit is None else min(limit, longest)
        logger.warning("clips of %d values or more do not fit alone: they are left out from here on", longest)
        self.report(call)
        self._take_longest(call, lengths)
        self.before(call)  # others of the batch that are as long need not be tried
        return True

    def _take_longest(self, call: Call, lengths: list[int]) -> None:
        longest = max(range(len(lengths)), key=lambda i: lengths[i])
        clip = call.take_out(longest, lengths)
        self._window.leave_out(self._rule.count(clip))
        self.count += 1
        if callable(self._policy):
            made = [call.fit(part) for part in self._policy(clip)]
            self._window.leave_out(-sum(self._rule.count(part) for part in made))
            call.replacements = (*call.replacements, *made)
        elif self._window.is_empty:
            raise InfeasiblePlanError("every clip of an optimizer step is too long for the GPU", _SHORTER)


def every_clip_left_out() -> InfeasiblePlanError:
    """Nothing is left of an optimizer step, in any process."""
    return InfeasiblePlanError(
        "every clip of an optimizer step, in all processes, was left out: too long for the GPU, or bad", _SHORTER
    )
