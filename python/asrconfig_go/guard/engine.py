"""Computes the batches of an accumulation window, and all of them again when one does not fit.

``BadClips`` calls it for a Trainer's loop and for a user's own, which answer as a ``Loop``. While nothing fails and
nothing is to be split, it calls the loop's own step once for each batch, and notes the state before it. After an
out-of-memory error it puts the state back, and computes the window in smaller micro-batches. It may then write to
gradients, random generators, and tensors that the step itself changes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._core.batches import batch_size
from .._core.output import listed
from .._core.padding import padded_for_masks
from .._core.random_state import cpu_state, seed_cpu, seed_of, set_cpu_state
from ..errors import InfeasiblePlanError
from .accumulation_window import Replay, Splitting, Window, is_too_large
from .clip_findings import SHORTER_CLIPS, OversizedClips
from .guard_options import GuardOptions
from .loop import Batch, Call, Loop, UnfitStepError
from .loss_rule import LossRule
from .micro_batches import Attempts, Budget, CannotRetryError, Step
from .rule_measurement import NoRuleError, NotMeasuredError, RuleMeasurement, untouched
from .step_state import InPlace, StepState, changed_values, interrupted_norm, put_values, same_value

_USE_SMALLER_BATCHES = "use smaller batches"
_PASS_RULE = 'pass rule="mean", "token_mean", "sum" or a function from a batch to a number: what its loss divides by'
_TOO_SHORT = (
    "batches of which every clip is shorter than a mask of SpecAugment are padded with silence, as the model takes no "
    "shorter ones: set model.config.mask_time_length below the frames of the shortest clips, mask_time_prob to 0, or "
    "leave such clips out"
)
_MAX_SEED = 2**31


class Engine:
    """Computes the batches of one loop, and recovers from out-of-memory errors.

    Attributes:
        attempts: The retries, with their events.
        splitting: Splits batches into micro-batches.
        state: What a step changes besides weights and gradients.
        window: The batches of the optimizer step that is being computed.
        left_out: Takes clips out that do not fit alone.
        resolve_error: Called with a batch and an error that is not about memory; returns whether it has taken the
            cause out of the batch, which is then computed again. ``BadClips`` sets it.
    """

    def __init__(
        self,
        loop: Loop,
        rule: LossRule,
        budget: Budget,
        attempts: Attempts,
        options: GuardOptions,
        *,
        processes: int = 1,
        weights_windows: bool = True,
    ) -> None:
        """``processes`` are the ranks over which gradients are averaged.

        ``weights_windows``: the loop has all batches of a window before it computes the first, so that each can be
        weighted by its share of the window.
        """
        self.loop, self.rule, self.budget, self.attempts = loop, rule, budget, attempts
        self._processes, self._weights_windows = processes, weights_windows
        split, split_statistics = options.split, options.split_batch_statistics
        self.splitting = Splitting(loop, rule, budget, split, split_statistics)
        self.state = StepState(loop)
        self.window = Window(loop, rule, self.state, self._fit)
        self.left_out = OversizedClips(options.too_long, budget, self.window, rule)
        self._measure = RuleMeasurement(loop, rule, self.state, split, split_statistics)
        self.resolve_error: Callable[[Call, Exception], bool] = lambda *_: False
        self._replay: Replay | None = None  # while a window is computed again
        self._pads = False  # whether batches that are too short are padded
        self._has_measured = False  # whether the rule was ever measured in this training

    def _fit(self, inputs: Batch) -> Any:
        """Pad a batch for SpecAugment's masks, once the model has refused one that was too short."""
        return padded_for_masks(inputs, self.loop.model) if self._pads else inputs

    def _pad_too_short(self, call: Call, error: Exception) -> bool:
        """Pad a batch that the model refused as too short for a mask; return whether that was the error's cause."""
        if self._pads or not isinstance(error, ValueError) or call.inputs is None:
            return False
        refused = [call.inputs, *call.replacements]
        padded = [padded_for_masks(inputs, self.loop.model) for inputs in refused]
        if all(new is old for new, old in zip(padded, refused, strict=True)):
            return False
        self._pads = True
        call.inputs, *call.replacements = padded
        call.batch = call.inputs
        self.loop.say(_TOO_SHORT)
        return True

    def begin(self) -> None:
        """Forget what was learnt in earlier trainings: another one begins, perhaps of another model."""
        self.state.forget()
        self.window.restart()
        self.attempts.running, self.splitting.refused = None, ""
        self._pads, self._has_measured = False, False

    def run(self, call: Call) -> Any:
        """Compute forward and backward of the window's newest batch, with retries; returns its loss, detached.

        Raises ``InfeasiblePlanError`` when no smaller micro-batch is left, and any other error of the loop.
        """
        budget, window = self.budget, self.window
        self._replay = None  # ``BadClips`` leaves one: it replays windows without an error
        if budget.too_long is not None:
            self.left_out.before(call)
        # Most batches pass this test, which is faster than ``_is_plain``.
        is_usual = not budget.is_limited and call.rows is None and window.planned == 1 and self._processes == 1
        if not is_usual and not self._is_plain(call, self.splitting.is_split(call)):
            return self._with_retries(call, lambda: self.run_once(call))
        try:
            call.loss = self.loop.compute(call, call.batch, None, whole_window=False)
        except Exception as error:
            first_error = error
        else:
            if call.before.is_full:
                self.state.learn(call.before)
            return call.loss

        def raise_first_error() -> Any:
            self.attempts.running = lambda: self.splitting.piece(call)
            raise first_error

        return self._with_retries(call, raise_first_error)

    def _with_retries(self, call: Call, first: Callable[[], Any]) -> Any:
        """Return what ``first`` returns; after an error that can be recovered, compute the window again."""

        def attempt() -> Any:
            try:
                return first()
            except Exception as error:
                call.before.interrupted = interrupted_norm(error)
                raise

        def resolve(error: Exception) -> bool:
            return self._stop_splitting(error) or self._pad_too_short(call, error) or self.resolve_error(call, error)

        step = Step(
            place="training", budget=self.budget, first=attempt, again=lambda: self.replay_window(call),
            leave_out=lambda piece: self.left_out.take(call, piece), resolve=resolve,
        )  # fmt: skip
        try:
            call.loss = self.attempts.run(step)
        finally:
            self._replay = None
        self.state.learn(call.before)
        return call.loss

    def _is_plain(self, call: Call, is_split: bool) -> bool:
        """Whether the loop's own step computes a batch: no clip was left out, and it is neither weighted nor split."""
        return not is_split and call.rows is None and not self._is_weighted()

    def _stop_splitting(self, error: Exception) -> bool:
        """Split no more batches where a micro-batch cannot be weighted; return whether that was the error."""
        if not isinstance(error, UnfitStepError) or self.splitting.refused:
            return False
        self.splitting.refused = f"{self.loop.title} {error}"
        self.loop.say(f"batches are not split any more: {self.splitting.refused}")
        return True

    def run_once(self, call: Call) -> Any:
        """Compute forward and backward of a batch as ``run`` does, without retries."""
        self.attempts.running = lambda: self.splitting.piece(call)
        is_split = self.splitting.is_split(call)
        if self._is_plain(call, is_split):
            return self.loop.compute(call, call.batch, None, whole_window=False)
        if is_split and self.rule.is_due():
            try:
                self._measure_rule(call)
            except NoRuleError as error:
                self.loop.say(f"batches are not split any more: {error}")
        return self._compute(call)

    def _is_weighted(self) -> bool:
        """Whether every batch of this window is weighted by its share of the window."""
        if self.window.planned <= 1 and self.window.calls[-1].rows is None and self._processes == 1:
            return False  # a single batch, of which no clip was left out
        return self._weights_windows and self.rule.is_certain

    def replay_window(self, call: Call) -> Any:
        """Compute the window again up to its newest batch, ``call``; returns the loss of that.

        Raises ``CannotRetryError`` where the state cannot be put back, or the rule that splitting requires is unknown.
        """
        replay = self._replay = self._replay or Replay(self.loop, self.window, self.state, call)
        replay.rewind()
        can_split = call.inputs is not None and not self.splitting.cannot_split(call)
        if can_split and not replay.has_rule and is_too_large(*call.size(), self.budget):
            self._check_rule(call)
            replay.has_rule = True
        for earlier in self.window.calls:
            earlier.loss = self._compute(earlier)
            replay.computed(earlier)
        self.attempts.not_restored(replay.lost())
        return call.loss

    def _check_rule(self, call: Call) -> None:
        """Measure what the loss divides by unless that is certain, and whether a user's step can be split.

        Raises ``CannotRetryError`` where no rule fits.
        """
        if self.rule.is_certain and not (self.loop.is_custom or self.loop.has_hooks()):
            return
        try:
            self._measure_rule(call)
        except NoRuleError as error:
            hint = _USE_SMALLER_BATCHES if isinstance(error.__cause__, UnfitStepError) else _PASS_RULE
            raise CannotRetryError(f"{error}; {hint}") from error

    def _measure_rule(self, call: Call) -> None:
        """Measure what the loss divides by; keep an earlier measurement where this batch cannot be measured."""
        try:
            self.rule.take(self._measure(call))
            self._has_measured = True
        except NoRuleError as error:
            if not (self._has_measured and isinstance(error, NotMeasuredError)):
                self.rule.take((), str(error))
                raise

    def rehearse(self, batch: Batch, arguments: object) -> None:
        """Compute a batch in ever smaller micro-batches until it fits, for a pre-flight check.

        Only the budget is changed: the loop, its model and their state are left as they were.
        """
        self.splitting.rehearses = True
        with untouched(self.loop, self.state):
            call = self.window.add(batch, arguments)

            def attempt() -> None:
                self.attempts.running = lambda: self.splitting.piece(call)
                self.window.restore_gradients()
                self._compute(call)

            step = Step(
                place="pre-flight", budget=self.budget, first=attempt, again=attempt,
                leave_out=lambda piece: self.left_out.take(call, piece),
                resolve=lambda error: self._pad_too_short(call, error),
            )  # fmt: skip
            try:
                self.attempts.run(step)
            finally:
                self.splitting.rehearses = False
                self.window.restore_gradients()
                self.window.restart()

    def _compute(self, call: Call) -> Any:
        """Compute one batch in micro-batches, and return the sum of their weighted losses.

        A step of the whole batch draws random numbers and changes the loop's state once. So every micro-batch begins
        from the state before the batch. Further ones get CPU random numbers of their own, and the CPU's generator is
        left as by the first.
        """
        self.attempts.running = lambda: self.splitting.piece(call)  # counting tokens may run out of memory, too
        loss, copies, changes = None, list[InPlace](), dict[str, Any]()
        random_after, seed = None, 0  # the CPU's generator after the first micro-batch, and a seed of that state
        clips = 0 if call.inputs is None or self.splitting.cannot_split(call) else batch_size(call.inputs)
        is_weighted, total = self._is_weighted(), self._total(call)
        before = call.before if self._replay is None else self.state.before(full=True)
        for number, (part, piece) in enumerate(self.splitting.parts(call)):
            self.attempts.running = piece
            is_part = number > 0 or piece.samples < clips
            if number == 0 and (is_part or self._replay) and not self.splitting.splits_statistics:
                copies = self.state.copies(changed_before=self._replay is None and self.state.has_learnt)
            if number:
                put_values(copies)
                self.state.between(before)
                self.state.draw_again(before)
                random_after = random_after or cpu_state()
                seed = seed or seed_of(random_after)
                seed_cpu((seed + number) % _MAX_SEED)
            weight = self._weight(part, total, is_weighted) if is_part or is_weighted else None
            if is_part and isinstance(weight, torch.Tensor) and not bool(weight != 0):
                continue  # a mean over no tokens is NaN
            part_loss = self.loop.compute(call, part, weight, whole_window=is_weighted)
            loss = part_loss if loss is None else loss + part_loss
            if number == 0:
                changes = {**self.state.changes(before), **changed_values(copies)}
                if self._replay is not None:
                    self._replay.first_computed(call, before, copies)
        if random_after is not None:
            set_cpu_state(random_after)
            last = {**self.state.changes(before), **changed_values(copies)}
            self._report_differences(changes, last, self.state.other_draws(before))
        return torch.zeros((), device=self.loop.parameters()[0].device) if loss is None else loss

    def _weight(self, part: Any, total: Any, is_weighted: bool) -> Any:
        """The weight of a micro-batch in ``total``; None while no rule is known."""
        if self.rule.name is None:
            return None
        weight = self.rule.share(part, total)
        # Gradients are averaged over ranks, so a share of the clips of all ranks counts once for each of them.
        return weight * self._processes if is_weighted and self.rule.name != "sum" else weight

    def _total(self, call: Call) -> Any:
        """What the loss of the window is divided by, or that of the batch where the loop weights batches itself."""
        if self.rule.name in (None, "sum"):
            return 1
        parts = [part for part in (call.inputs, *call.replacements) if part is not None]
        if not self._is_weighted():
            return self.count(parts)
        if self.window.total is None:
            self.window.total = self.count(self.window.batches or parts)  # a rehearsal has fetched no batches
        return self.window.total

    def count(self, batches: Sequence[Any]) -> Any:
        """What the loss of all ``batches`` together is divided by: a number, or a tensor on their device."""
        return sum(self.rule.count(batch) for batch in batches)

    def _report_differences(self, first: dict[str, Any], last: dict[str, Any], drawn: list[str]) -> None:
        """Report state that depends on the number of micro-batches, and generators that drew more than once."""
        paths = [path for path, value in last.items() if not same_value(value, first.get(path))]
        if self._replay is not None:
            self._replay.paths += paths + drawn
            return
        for names, effect in ((paths, "count micro-batches"), (drawn, "may draw other random numbers")):
            if names:
                self.loop.say(f"{listed(names)} of {self.loop.name} {effect} where batches are split")

    def finish(self, left_out: float | torch.Tensor) -> float:
        """Scale the gradients of a complete window up for clips that were left out; returns the factor.

        ``left_out`` is the part of the window's divisor that those clips had, in all processes. Raises
        ``InfeasiblePlanError`` where no clip of the window is left.
        """
        self.budget.step_done()
        factor = 1.0
        if float(left_out) and self.rule.is_certain and self.rule.name != "sum":
            total = float(self._total(self.window.calls[-1]))
            if float(left_out) >= total:
                raise InfeasiblePlanError(
                    "every clip of an optimizer step, in all processes, was left out: too long for the GPU, or bad",
                    SHORTER_CLIPS,
                )
            factor = total / (total - float(left_out))
            for p in self.loop.parameters():
                if p.grad is not None:
                    p.grad.mul_(factor)
        return factor
