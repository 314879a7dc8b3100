"""One line about memory at the end of the Trainer's progress bar."""

from __future__ import annotations

from typing import Any

from ..view.units import GIB
from .thresholds import PeakUse


def one_line(fullest: PeakUse | None, waited: float | None, useful: float | None) -> str:
    """``gpu 12.3/15.0 GiB 82 % · wait 3 % · MFU 38 %``, as far as it is known; unused cache counts as free."""
    parts = []
    if fullest is not None:
        name = "ram" if fullest.place < 0 else "gpu" if fullest.place == 0 else f"gpu{fullest.place}"
        used, total = (fullest.total - fullest.left) / GIB, fullest.total / GIB
        parts.append(f"{name} {used:.1f}/{total:.1f} GiB {fullest.share:.0%}".replace("%", " %"))
    if waited is not None:
        parts.append(f"wait {100 * waited:.0f} %")
    if useful is not None:
        parts.append(f"MFU {100 * useful:.0f} %")
    return " · ".join(parts)


class ProgressPostfix:
    """Puts the line behind the bar of a Trainer's ``ProgressCallback``, which draws it with its next step."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def show(self, line: str) -> None:
        """Nothing where the Trainer has no such bar."""
        for callback in self._handler.callbacks if self._handler is not None else ():
            bar = getattr(callback, "training_bar", None)
            if bar is not None and hasattr(bar, "set_postfix_str"):
                bar.set_postfix_str(line, refresh=False)
