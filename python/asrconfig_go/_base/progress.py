"""Progress bars, by tqdm where it is installed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

Advance = Callable[[int, int | None], None]  # (done, total)

_DELAY_S = 0.5


class ProgressBar:
    """A tqdm bar that shows only on work of more than half a second; nothing without tqdm.

    tqdm is imported when the bar is shown: that takes longer than most short work. ``note`` returns the bar's postfix.
    """

    def __init__(
        self, label: str, unit: str, total: int | None, visible: bool, note: Callable[[], str] = lambda: ""
    ) -> None:
        self._options: dict[str, Any] = {"desc": label, "unit": unit, "total": total}
        self._shown, self._note, self._started = visible, note, time.time()
        self._bar: Any = None

    def __enter__(self) -> Advance:
        return self._advance

    def _advance(self, done: int, total: int | None) -> None:
        if not self._shown or time.time() < self._started + _DELAY_S:
            return
        try:
            if self._bar is None:
                from tqdm.auto import tqdm

                self._bar = tqdm(**self._options, delay=_DELAY_S, leave=False)
                self._bar.start_t = self._bar.last_print_t = self._started  # the work began earlier
            self._bar.total = total
            self._bar.set_postfix_str(self._note(), refresh=False)
            self._bar.update(done - self._bar.n)
        except (ImportError, OSError, ValueError):  # no tqdm, or nobody reads it any more
            self._bar, self._shown = None, False

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.close()
