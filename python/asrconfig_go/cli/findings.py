"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``status`` is ``"ok"``, ``"note"`` or ``"broken"``; ``advice`` what to do next."""

    status: str
    subject: str
    detail: str
    advice: str = ""
