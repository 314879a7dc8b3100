"""Clips that do not fit as a micro-batch of one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._core.batches import batch_size, extent, spoken_lengths
from .._core.checks import TooLong
from ..errors import InfeasiblePlanError
from .accumulation_window import Window
from .loop import Call
from .micro_batches import Piece

if TYPE_CHECKING:
    from .loss_rule import LossRule
    from .micro_batches import Budget


logger: logging.Logger = logging.getLogger("asrconfig_go")

_SHORTER = "split or drop long clips before training, enable gradient checkpointing, or use a larger GPU"


class OversizedClips:
    """Takes clips that are too long out of their batches, if the user allowed it, and counts them.

    The others are then padded to the longest of them, as if the clip had never been in the batch. There is no automatic
    chunking: where to split a transcript is not known here. A function of the user's may know.
    """

    def __init__(
        self,
        policy: TooLong | Callable[[Any], list[Any]],
        budget: Budget,
        window: Window,
        rule: LossRule,
        report: Callable[[Call], None] = lambda _: None,
    ) -> None:
        """``report`` is called with a batch whose longest clip is about to be left out, once it has not fitted."""
        self._policy, self._budget, self._window, self._rule = policy, budget, window, rule
        self._report, self.count = report, 0

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
        self._report(call)
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
        elif self._window.nothing_left:
            raise InfeasiblePlanError("every clip of an optimizer step is too long for the GPU", _SHORTER)


def every_clip_left_out() -> InfeasiblePlanError:
    """Nothing is left of an optimizer step, in any process."""
    return InfeasiblePlanError(
        "every clip of an optimizer step, in all processes, was left out: too long for the GPU, or bad", _SHORTER
    )
