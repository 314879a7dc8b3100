"""Computes the batches of an accumulation window, and all of them again when one does not fit.

It knows tensors, a model, an optimizer and what a ``Loop`` answers, not whose loop that is. While nothing fails and
nothing is to be split, it calls the loop's own step once for each batch and notes what there was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._core.batches import UnsplittableBatchError, batch_size, check_rows, extent, shallow
from .._core.output import listed
from .._core.padding import long_enough
from .._core.random_state import cpu_state, seed_cpu, seed_of, set_cpu_state
from ..errors import InvalidArgumentError
from .accumulation_window import Window
from .loop import Batch, Before, Call, Loop, Split, UnfitStepError
from .loss_rule import LossRule
from .micro_batches import STATISTICS_HINT, Attempts, Budget, CannotRetryError, Piece, by_length, evenly, is_split
from .oversized_clips import OversizedClips, every_clip_left_out
from .rule_measurement import NoRuleError, NotMeasuredError, RuleMeasurement, untouched
from .step_state import InPlace, StepState, changed_values, interrupted_norm, put_values, same_value

_GIVE_SPLIT = "pass split=…, a function from a batch and a size to a list of batches"
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
        cut_statistics: bool = False,
        processes: int = 1,
        weights_windows: bool = True,
    ) -> None:
        """``weights_windows`` is whether all batches of a window are known with its first one.

        Each can then be weighted as its share of them.
        """
        self.loop, self.rule, self.budget, self.attempts = loop, rule, budget, attempts
        self.split, self._cut_statistics, self._processes = split, cut_statistics, processes
        self._weights_windows = weights_windows
        self._requested = f"micro_batch = {budget.samples}" if budget.samples else ""  # for errors
        self.state = StepState(loop)
        self.window = Window(loop, rule, self.state, self._fit)
        self._measure = RuleMeasurement(loop, rule, self.state, split, cut_statistics)
        self.left_out: OversizedClips
        """Takes clips out that do not fit alone; sets itself."""
        self.is_shared = False
        """Whether other processes take part in every forward: batches are then not split, as theirs are not."""
        self.other: Callable[[Call, Exception], bool] = lambda *_: False
        """Asked about an error that is not of memory: whether it has taken out what raised it."""
        self._replay: Replay | None = None
        self._rehearses, self._pads, self._refused, self._has_measured = False, False, "", False

    def _fit(self, inputs: Batch) -> Any:
        """Pad a batch once the model has refused one that was too short."""
        return long_enough(inputs, self.loop.model) if self._pads else inputs

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
        self.attempts.running, self._pads, self._refused, self._has_measured = None, False, "", False

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
            self.attempts.running = lambda: self._piece(call)
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
        if self.budget.is_limited and self._is_split(call):
            return False
        return call.rows is None and not self._is_weighted()

    def _is_unfit(self, error: Exception) -> bool:
        """Whether a part of a batch has shown that batches cannot be split; they no longer are."""
        if not isinstance(error, UnfitStepError) or self._refused:
            return False
        self._refused = f"{self.loop.title} {error}"
        self.loop.say(f"batches are not split any more: {self._refused}")
        return True

    def once(self, call: Call) -> Any:
        """The same without a retry."""
        self.attempts.running = lambda: self._piece(call)
        if self._is_plain(call):
            return self.loop.compute(call, call.batch, None, whole_window=False)
        if self._is_split(call) and self.rule.is_due():
            try:
                self._measure_rule(call)
            except NoRuleError as error:
                self.loop.say(f"batches are not split any more: {error}")
        return self._compute(call)

    def _is_weighted(self) -> bool:
        """Whether every batch of this window has a weight of its own."""
        if self.window.is_one and self._processes == 1:
            return False
        return self._weights_windows and self.rule.is_certain

    def _is_split(self, call: Call) -> bool:
        """Whether a batch is computed in micro-batches: it is too large, and may be split."""
        if not self.budget.is_limited or self.is_shared or self.rule.unfit or call.inputs is None:
            return False
        if self.rule.name is None and not (self.budget.has_failed or self._rehearses):
            return False
        self.loop.prepare()
        if not (reason := self.cannot_split(call)):
            return is_split(*call.size(), self.budget)
        hint = STATISTICS_HINT if reason == self.depends_on_batch() else _GIVE_SPLIT
        if self._requested:
            raise InvalidArgumentError(f"{self._requested} would not train as the whole batch does: {reason}", hint)
        self.loop.say(f"batches are not split, as that would change the result: {reason}; {hint}")
        return False

    def cannot_split(self, call: Call) -> str:
        """Why this batch cannot be split; "" where it can."""
        if self._refused:
            return self._refused
        try:
            check_rows(call.inputs) if self.split is None else call.size()
        except UnsplittableBatchError as error:
            return str(error.message)
        return self.depends_on_batch()

    def depends_on_batch(self) -> str:
        """The layers that see which clips a batch holds, in words; "" for none, or where they may see fewer."""
        if self._cut_statistics:
            return ""
        live = [
            name
            for name, module in self.loop.model.named_modules()
            if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats)
        ]
        more = f" and {len(live) - 1} more" if len(live) > 1 else ""
        return f"{live[0]}{more} of the model normalise over the clips of a batch" if live else ""

    def _piece(self, call: Call) -> Piece | None:
        """The micro-batch that is computed first."""
        if call.inputs is None:
            return None
        try:
            count, clip_extent = call.size()
        except UnsplittableBatchError as error:
            return Piece(1, extent(call.inputs), cannot_split=str(error.message))
        reason = self.cannot_split(call)
        size = count if reason or not self._is_split(call) else self.budget.size(clip_extent, count)
        hint = STATISTICS_HINT if reason and reason == self.depends_on_batch() else ""
        return Piece(size, clip_extent, cannot_split=reason, hint=hint or (_GIVE_SPLIT if reason else ""))

    # A window again.

    def again(self, call: Call) -> Any:
        """Compute the window again up to ``call``, the newest batch; its loss."""
        replay = self._replay = self._replay or Replay(self, call)
        replay.rewind()
        cut = call.inputs is not None and not self.cannot_split(call) and is_split(*call.size(), self.budget)
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
        self._rehearses = True
        with untouched(self.loop, self.state):
            call = self.window.call(batch, arguments)

            def attempt() -> None:
                self.attempts.running = lambda: self._piece(call)
                self.window.restore_gradients()
                self._compute(call)

            try:
                self.attempts.run(
                    "pre-flight", self.budget, attempt, attempt,
                    lambda piece: self.left_out.take(call, piece), lambda error: self._is_too_short(call, error),
                )  # fmt: skip
            finally:
                self._rehearses = False
                self.window.restore_gradients()
                self.window.restart()

    # Micro-batches.

    def _compute(self, call: Call) -> Any:
        """Compute one batch. Random numbers and the loop's state are left as by its first micro-batch."""
        self.attempts.running = lambda: self._piece(call)  # counting tokens needs memory, too
        loss, copies, behind, changes = None, list[InPlace](), None, dict[str, Any]()
        clips = 0 if call.inputs is None or self.cannot_split(call) else batch_size(call.inputs)
        is_weighted, total = self._is_weighted(), self._total(call)
        before = call.before if self._replay is None else self.state.before(full=True)
        for number, (part, piece) in enumerate(self._parts(call)):
            self.attempts.running = piece
            cut = number > 0 or piece.samples < clips
            if number == 0 and (cut or self._replay) and not self._cut_statistics:
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

    def _parts(self, call: Call) -> Iterator[tuple[Any, Piece]]:
        """The micro-batches of a batch, and those that replace its clips."""
        if call.inputs is not None:
            if not self._is_split(call):
                yield shallow(call.inputs), self._piece(call) or Piece(1, extent(call.inputs))
            else:
                # Splitting needs memory, too: what fails before there are parts is of their size.
                self.attempts.running = self._piece(call)
                if self.split is None and self.rule.trims:
                    yield from by_length(call.inputs, self.budget, self.loop.model)
                else:
                    yield from evenly(call.inputs, self.budget, self.split)
        for part in call.replacements:
            yield shallow(part), Piece(batch_size(part), extent(part), of_replacement=True)

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


class Replay:
    """A window that is computed again: what the failed attempt had changed, and what of it cannot be put back."""

    def __init__(self, engine: Engine, failed: Call) -> None:
        self._engine, self._failed = engine, failed
        self._copies = engine.state.copies(failed.before)
        self._statistics = engine.state.statistics()
        self._generators = engine.state.generator_states()  # behind the whole batch, or where it failed
        self._writes: dict[int, int] = {}  # of the first micro-batch of the batch that failed
        self._began: Before | None = None
        self.paths: list[str] = []
        """What cannot be put back."""
        self.has_rule = False
        """Whether the rule was measured: micro-batches that do not fit either leave no memory to measure it again."""

    def rewind(self) -> None:
        """Put back what there was when the window began. Raises ``CannotRetryError`` where that is impossible."""
        window, state, step = self._engine.window, self._engine.state, self._engine.loop.title
        if window.weights_changed():
            raise CannotRetryError(f"{step} changes weights, and failed in between")
        if any(call.changed for call in window.calls):
            raise CannotRetryError(f"{step} has changed its batch in place")
        if not window.restore_gradients():
            raise CannotRetryError(
                f"{step} has added to gradients that were there before it began: clear them behind each optimizer "
                "step, or freeze their parameters"
            )
        put_values(self._copies)
        # Where it fails again, what only failures change is left: somebody may count them.
        self.paths += state.put_back(window.first, self._failed.before, changed_before=self._began is not None)
        self._began = state.before(full=True)

    def first_computed(self, call: Call, before: Before, copies: list[InPlace]) -> None:
        """The first micro-batch of a batch is over: how often it has written to tensors in place, and what it drew."""
        if call is self._failed:
            self._engine.state.compare_draws(before, self._generators)
        self._writes = self._engine.state.writes(before)
        changed = changed_values(copies)
        self.paths += [e.path for e in copies if e.path in changed and not self._writes.get(id(e.tensor))]
        self._engine.state.watch([e for e in copies if e.path in changed])

    def computed(self, call: Call) -> None:
        """A batch is over: what the failed attempt had changed in place as often already is put back to that."""
        if call is not self._failed:
            put_values(self._copies)
            return
        changed = [entry for entry in self._copies if entry.writes]
        again = [entry for entry in changed if entry.writes == self._writes.get(id(entry.tensor))]
        put_values(again)
        self.paths += [e.path for e in changed if e not in again or id(e.tensor) not in self._statistics]

    def lost(self) -> list[str]:
        """The paths of what could not be put back."""
        assert self._began is not None  # by rewind
        return [*self.paths, *self._engine.state.unseen(self._engine.window.first, self._began)]
