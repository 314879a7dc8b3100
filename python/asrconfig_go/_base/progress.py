"""Progress bars, by tqdm where it is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Advance = Callable[[int, int | None], None]  # (done, total)


class ProgressBar:
    """A tqdm bar that shows only on work of more than half a second; nothing without tqdm.

    ``note`` gives what is shown behind the time left.
    """

    def __init__(
        self, what: str, unit: str, total: int | None, shown: bool, note: Callable[[], str] = lambda: ""
    ) -> None:
        self._bar, self._note = _tqdm(what, unit, total) if shown else None, note

    def __enter__(self) -> Advance:
        return self._advance

    def _advance(self, done: int, total: int | None) -> None:
        if self._bar is not None:
            self._bar.total = total
            try:
                self._bar.set_postfix_str(self._note(), refresh=False)
                self._bar.update(done - self._bar.n)
            except (OSError, ValueError):  # nobody reads it any more
                self._bar = None

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.close()


def _tqdm(what: str, unit: str, total: int | None) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=what, unit=unit, delay=0.5, leave=False)
