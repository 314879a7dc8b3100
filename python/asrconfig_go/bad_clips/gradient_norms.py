"""The gradient norm of each optimizer step, read once the GPU has it, and what is unusual among them."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from .._base.override import override

FACTOR = 10.0  # times the median of the recent steps
RECENT, LEAST = 50, 20  # steps, and how many of them are needed


class GradientNorms:
    """Keeps the norms that clipping the gradients of a loop returns, once in each optimizer step.

    A norm is copied to the host while the optimizer runs, and read when the next window begins: nothing waits for it.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._least = 0.0  # of them, or below
        self._host: Any = None
        self._event: Any = None
        self._undo: Callable[[], None] = lambda: None
        self.newest: Any = None
        """The norm of the newest step, unless it is known to be usual; until ``look``."""
        self.scaled = False
        """Whether a loss scaler skips steps whose gradients overflow, as it is meant to."""
        self.clips_on_cpu = False
        """Whether gradients are clipped, and their norm is known at once."""
        self.not_finite: Callable[[], None] = lambda: None
        """Called when such a norm is not finite, before weights change."""

    def follow(self, accelerator: Any) -> None:
        """Note what ``clip_grad_norm_`` of this accelerator returns."""
        self.remove()
        scaler = getattr(accelerator, "scaler", None)
        self.scaled = scaler is not None and bool(scaler.is_enabled())
        clip = accelerator.clip_grad_norm_

        def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
            norm = clip(*args, **kwargs)
            self.note(norm)
            return norm

        self._undo = override(accelerator, "clip_grad_norm_", clip_grad_norm_)

    def remove(self) -> None:
        """Leave the accelerator as it was found."""
        self._undo()
        self._undo, self.newest, self.clips_on_cpu = (lambda: None), None, False
        self._recent.clear()
        self._least = 0.0

    def note(self, norm: Any) -> None:
        """The norm of the optimizer step that is being made."""
        if isinstance(norm, torch.Tensor) and norm.is_cuda:
            self.newest = self._on_its_way(norm)
        elif norm is not None:
            self.clips_on_cpu, norm = True, float(norm)
            if norm <= FACTOR * self._least:  # then it is not far above their median either
                self._recent.append(norm)
                self._least = min(norm, self._least)
                return
            self.newest = norm
            if not math.isfinite(norm) and not self.scaled:
                self.not_finite()

    def _on_its_way(self, norm: Any) -> Any:
        if self._host is None:
            self._host, self._event = torch.empty((), pin_memory=True), torch.cuda.Event()
        self._host.copy_(norm.detach().reshape(()), non_blocking=True)
        self._event.record()
        return self._host

    def look(self) -> tuple[float, float] | None:
        """The norm of the step that is over, and the median of those before, where that is unusual; else None."""
        newest, self.newest = self.newest, None
        if newest is None:
            return None
        if newest is self._host:
            self._event.synchronize()
        norm = float(newest)
        if not math.isfinite(norm):
            return None if self.scaled else (norm, math.nan)
        recent, usual = self._recent, math.inf
        if len(recent) >= LEAST and norm > FACTOR * min(recent):
            usual = statistics.median(recent)
        recent.append(norm)
        self._least = min(recent)
        return (norm, usual) if norm > FACTOR * usual > 0 else None
