"""Computes the batches of an accumulation window, and all of them again when one does not fit.

It knows tensors, a model, an optimizer and what a ``Loop`` answers, not whose loop that is. While nothing fails and
nothing is to be split, it calls the loop's own step once for each batch and notes what there was before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._core.batches import batch_size
from .._core.output import listed
from .._core.padding import padded_for_masks
from .._core.random_state import cpu_state, seed_cpu, seed_of, set_cpu_state
from .accumulation_window import Replay, Window
from .loop import Batch, Call, Loop, Split, UnfitStepError
from .loss_rule import LossRule
from .micro_batches import Attempts, Budget, CannotRetryError
from .rule_measurement import NoRuleError, NotMeasuredError, RuleMeasurement, untouched
from .splitting import OversizedClips, Splitting, every_clip_left_out, is_too_large
from .step_state import InPlace, StepState, changed_values, interrupted_norm, put_values, same_value

_GIVE_LESS = "use smaller batches"
_TOO_SHORT = (
    "batches of which every clip is shorter than a mask of SpecAugment are padded with silence, as the model takes no "
    "shorter ones: set model.config.mask_time_length below the frames of the shortest clips, mask_time_prob to 0, or "
    "leave such clips out"
)
_GIVE_RULE = 'pass rule="mean", "token_mean" or "sum", if one of them is what the loss divides by'


class Engine:
    """Of one loop.

    Attributes:
        attempts: The retries, with their events.
        window: The batches of the optimizer step that is being computed.
    """

    def __init__(
        self,
        loop: Loop,
        rule: LossRule,
        budget: Budget,
        attempts: Attempts,
        *,
        split: Split | None = None,
        split_statistics: bool = False,
        processes: int = 1,
        weights_windows: bool = True,
    ) -> None:
        """``weights_windows`` is whether all batches of a window are known with its first one.

        Each can then be weighted as its share of them.
        """
        self.loop, self.rule, self.budget, self.attempts = loop, rule, budget, attempts
        self._processes, self._weights_windows = processes, weights_windows
        self.splitting = Splitting(loop, rule, budget, split, split_statistics)
        self.state = StepState(loop)
        self.window = Window(loop, rule, self.state, self._fit)
        self._measure = RuleMeasurement(loop, rule, self.state, split, split_statistics)
        self.left_out: OversizedClips
        """Takes clips out that do not fit alone; sets itself."""
        self.other: Callable[[Call, Exception], bool] = lambda *_: False
        """Asked about an error that is not of memory: whether it has taken out what raised it."""
        self._replay: Replay | None = None
        self._pads, self._has_measured = False, False

    def _fit(self, inputs: Batch) -> Any:
        """Pad a batch once the model has refused one that was too short."""
        return padded_for_masks(inputs, self.loop.model) if self._pads else inputs

    def _is_too_short(self, call: Call, error: Exception) -> bool:
        """Whether the model refused a batch as too short to be masked; such batches are padded from then on."""
        if self._pads or not isinstance(error, ValueError) or call.inputs is None:
            return False
        self._pads = True
        refused = [call.inputs, *call.replacements]
        padded = [self._fit(inputs) for inputs in refused]
        if all(new is old for new, old in zip(padded, refused, strict=True)):
            self._pads = False
            return False
        call.inputs, *call.replacements = padded
        call.batch = call.inputs
        self.loop.say(_TOO_SHORT)
        return True

    def begin(self) -> None:
        """A training begins, of a model that may be another one."""
        self.state.forget()
        self.window.restart()
        self.attempts.running, self._pads, self.splitting.refused, self._has_measured = None, False, "", False

    def run(self, call: Call) -> Any:
        """Forward and backward of the batch that the window has noted last; its loss.

        Raises ``InfeasiblePlanError`` when no smaller micro-batch is left, and what the loop raises.
        """
        budget, window = self.budget, self.window
        self._replay = None  # of a batch that was computed again without an error
        if budget.too_long is not None:
            self.left_out.before(call)
        usual = not budget.is_limited and call.rows is None and window.planned == 1 and self._processes == 1
        if not usual and not self._is_plain(call):
            return self._retried(call, lambda: self.once(call))
        try:
            call.loss = self.loop.compute(call, call.batch, None, whole_window=False)
        except Exception as error:
            failed = error
        else:
            if call.before.is_full:
                self.state.learn(call.before)
            return call.loss

        def raise_again() -> Any:
            self.attempts.running = lambda: self.splitting.piece(call)
            raise failed

        return self._retried(call, raise_again)

    def _retried(self, call: Call, first: Callable[[], Any]) -> Any:
        def attempt() -> Any:
            try:
                return first()
            except Exception as error:
                call.before.interrupted = interrupted_norm(error)
                raise

        try:
            call.loss = self.attempts.run(
                "training",
                self.budget,
                attempt,
                lambda: self.again(call),
                lambda piece: self.left_out.take(call, piece),
                lambda error: self._is_unfit(error) or self._is_too_short(call, error) or self.other(call, error),
            )
        finally:
            self._replay = None
        self.state.learn(call.before)
        return call.loss

    def _is_plain(self, call: Call) -> bool:
        """Whether the loop computes a batch as it is: nothing was taken out of it, weighted or split."""
        if self.budget.is_limited and self.splitting.is_split(call):
            return False
        return call.rows is None and not self._is_weighted()

    def _is_unfit(self, error: Exception) -> bool:
        """Whether a part of a batch has shown that batches cannot be split; they no longer are."""
        if not isinstance(error, UnfitStepError) or self.splitting.refused:
            return False
        self.splitting.refused = f"{self.loop.title} {error}"
        self.loop.say(f"batches are not split any more: {self.splitting.refused}")
        return True

    def once(self, call: Call) -> Any:
        """The same without a retry."""
        self.attempts.running = lambda: self.splitting.piece(call)
        if self._is_plain(call):
            return self.loop.compute(call, call.batch, None, whole_window=False)
        if self.splitting.is_split(call) and self.rule.is_due():
            try:
                self._measure_rule(call)
            except NoRuleError as error:
                self.loop.say(f"batches are not split any more: {error}")
        return self._compute(call)

    def _is_weighted(self) -> bool:
        """Whether every batch of this window has a weight of its own."""
        if self.window.is_one_whole_batch and self._processes == 1:
            return False
        return self._weights_windows and self.rule.is_certain

    # A window again.

    def again(self, call: Call) -> Any:
        """Compute the window again up to ``call``, the newest batch; its loss."""
        replay = self._replay = self._replay or Replay(self.loop, self.window, self.state, call)
        replay.rewind()
        cut = (
            call.inputs is not None
            and not self.splitting.cannot_split(call)
            and is_too_large(*call.size(), self.budget)
        )
        if cut and not replay.has_rule:
            self._find_rule(call)
            replay.has_rule = True
        for earlier in self.window.calls:
            earlier.loss = self._compute(earlier)
            replay.computed(earlier)
        self.attempts.not_restored(replay.lost())
        return call.loss

    def _find_rule(self, call: Call) -> None:
        """Measure what the loss divides by unless that is certain, and whether a user's step can be split."""
        if self.rule.is_certain and not (self.loop.own_step or self.loop.has_hooks()):
            return
        try:
            self._measure_rule(call)
        except NoRuleError as error:
            hint = _GIVE_LESS if isinstance(error.__cause__, UnfitStepError) else _GIVE_RULE
            raise CannotRetryError(f"{error}; {hint}") from error

    def _measure_rule(self, call: Call) -> None:
        """Measure what the loss divides by; where this batch cannot be measured, an earlier measurement holds."""
        try:
            self.rule.take(self._measure(call))
            self._has_measured = True
        except NoRuleError as error:
            if not (self._has_measured and isinstance(error, NotMeasuredError)):
                self.rule.take((), str(error))
                raise

    def rehearse(self, batch: Batch, arguments: object) -> None:
        """Compute a batch until it fits; only the limit stays, of the loop and its model nothing changes."""
        self.splitting.rehearses = True
        with untouched(self.loop, self.state):
            call = self.window.add(batch, arguments)

            def attempt() -> None:
                self.attempts.running = lambda: self.splitting.piece(call)
                self.window.restore_gradients()
                self._compute(call)

            try:
                self.attempts.run(
                    "pre-flight", self.budget, attempt, attempt,
                    lambda piece: self.left_out.take(call, piece), lambda error: self._is_too_short(call, error),
                )  # fmt: skip
            finally:
                self.splitting.rehearses = False
                self.window.restore_gradients()
                self.window.restart()

    # Micro-batches.

    def _compute(self, call: Call) -> Any:
        """Compute one batch. Random numbers and the loop's state are left as by its first micro-batch."""
        self.attempts.running = lambda: self.splitting.piece(call)  # counting tokens needs memory, too
        loss, copies, behind, changes = None, list[InPlace](), None, dict[str, Any]()
        clips = 0 if call.inputs is None or self.splitting.cannot_split(call) else batch_size(call.inputs)
        is_weighted, total = self._is_weighted(), self._total(call)
        before = call.before if self._replay is None else self.state.before(full=True)
        for number, (part, piece) in enumerate(self.splitting.parts(call)):
            self.attempts.running = piece
            cut = number > 0 or piece.samples < clips
            if number == 0 and (cut or self._replay) and not self.splitting.splits_statistics:
                copies = self.state.copies(changed_before=self._replay is None and self.state.has_learnt)
            if number:
                put_values(copies)
                self.state.between(before)
                self.state.draw_again(before)
                behind = behind or cpu_state()
                seed_cpu((seed_of(behind) + number) % 2**31)
            weight = None
            if (cut or is_weighted) and self.rule.name is not None:
                # Gradients of several processes are averaged: a share of all clips counts for each of them.
                weight = self.rule.share(part, total)
                weight = weight * self._processes if is_weighted and self.rule.name != "sum" else weight
            if cut and isinstance(weight, torch.Tensor) and not bool(weight != 0):
                continue  # a mean over no tokens is not a number
            share = self.loop.compute(call, part, weight, whole_window=is_weighted)
            loss = share if loss is None else loss + share
            if number == 0:
                changes = {**self.state.changes(before), **changed_values(copies)}
                if self._replay is not None:
                    self._replay.first_computed(call, before, copies)
        if behind is not None:
            set_cpu_state(behind)
            last = {**self.state.changes(before), **changed_values(copies)}
            self._name_counts(changes, last, self.state.other_draws(before))
        return torch.zeros((), device=self.loop.parameters()[0].device) if loss is None else loss

    def _total(self, call: Call) -> Any:
        """What the loss of the window is divided by, or that of the batch where the loop weights batches itself."""
        if self.rule.name in (None, "sum"):
            return 1
        parts = [part for part in (call.inputs, *call.replacements) if part is not None]
        if not self._is_weighted():
            return self.count(parts)
        if self.window.total is None:
            self.window.total = self.count(self.window.batches or parts)  # a rehearsal has no window
        return self.window.total

    def count(self, batches: Sequence[Any]) -> Any:
        """What the loss of all ``batches`` together is divided by."""
        return sum(self.rule.count(batch) for batch in batches)

    def _name_counts(self, first: dict[str, Any], last: dict[str, Any], drawn: list[str]) -> None:
        """Report state that the last micro-batch has left otherwise than the first."""
        paths = [path for path, value in last.items() if not same_value(value, first.get(path))]
        if self._replay is not None:
            self._replay.paths += paths + drawn
            return
        for names, do in ((paths, "count micro-batches"), (drawn, "may draw other random numbers")):
            if names:
                self.loop.say(f"{listed(names)} of {self.loop.name} {do} where batches are split")

    def finish(self, left_out: float | torch.Tensor) -> float:
        """The window is complete: scale gradients up for the clips that all processes have ``left_out``."""
        self.budget.step_done()
        factor = 1.0
        if float(left_out) and self.rule.is_certain and self.rule.name != "sum":
            total = float(self._total(self.window.calls[-1]))
            if float(left_out) >= total:
                raise every_clip_left_out()
            factor = total / (total - float(left_out))
            for p in self.loop.parameters():
                if p.grad is not None:
                    p.grad.mul_(factor)
        return factor
