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

    tqdm is imported when the bar is shown: that takes longer than most short work. ``note`` gives what is shown behind
    the time left.
    """

    def __init__(
        self, what: str, unit: str, total: int | None, shown: bool, note: Callable[[], str] = lambda: ""
    ) -> None:
        self._options = {"desc": what, "unit": unit, "total": total}
        self._shown, self._note, self._started = shown, note, time.time()
        self._bar: Any = None

    def __enter__(self) -> Advance:
        return self._advance

    def _advance(self, done: int, total: int | None) -> None:
        if not self._shown or time.time() < self._started + _DELAY_S:
            return
        try:
            self._bar = self._bar if self._bar is not None else _tqdm(self._options, self._started)
            self._bar.total = total
            self._bar.set_postfix_str(self._note(), refresh=False)
            self._bar.update(done - self._bar.n)
        except (ImportError, OSError, ValueError):  # no tqdm, or nobody reads it any more
            self._bar, self._shown = None, False

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.close()


def _tqdm(options: dict[str, Any], started: float) -> Any:
    """A bar of work that started earlier; the first update draws it."""
    from tqdm.auto import tqdm

    bar = tqdm(**options, delay=_DELAY_S, leave=False)
    bar.start_t = bar.last_print_t = started
    return bar
