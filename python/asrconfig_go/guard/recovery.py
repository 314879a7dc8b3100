"""What recovers the steps of one loop, a Trainer's or one's own: the engine, and what looks at its clips."""

from __future__ import annotations

from ..errors import InfeasiblePlanError
from .bad_clips import BadClips
from .clip_findings import ClipRows
from .clip_measurement import GradientNorms
from .engine import Engine
from .guard_options import GuardOptions
from .loop import Call, Loop
from .loss_rule import LossRule
from .micro_batches import Attempts, Budget
from .splitting import OversizedClips


class Recovery:
    """Computes the batches of a loop as ``GuardOptions`` say.

    Attributes:
        engine: Computes the batches of a window.
        bad: Looks at their losses.
        left_out: Takes out clips that do not fit alone.
        norms: Of the gradients of each optimizer step.
    """

    def __init__(
        self,
        loop: Loop,
        rule: LossRule,
        budget: Budget,
        attempts: Attempts,
        options: GuardOptions,
        rows: ClipRows | None = None,
        *,
        processes: int = 1,
        weights_windows: bool = True,
    ) -> None:
        engine = self.engine = Engine(
            loop, rule, budget, attempts, split=options.split, split_statistics=options.split_batch_statistics,
            processes=processes, weights_windows=weights_windows,
        )  # fmt: skip
        self.norms = GradientNorms()
        bad = self.bad = BadClips(options.bad_clips, engine, self.norms, rows)
        self.left_out = engine.left_out = OversizedClips(
            options.too_long, budget, engine.window, rule, lambda call: bad.does_not_fit(call, "left out")
        )

    def run(self, call: Call) -> None:
        """Compute the newest batch of the window, and name a clip that is bad or does not fit alone."""
        try:
            self.engine.run(call)
            self.bad.look(call)
        except InfeasiblePlanError as error:
            piece = self.engine.attempts.piece()
            if piece is not None and piece.is_one_clip:
                self.bad.does_not_fit(call, "raised", error)
            raise
