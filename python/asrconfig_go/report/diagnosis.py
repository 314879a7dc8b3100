"""What held a run back, each with what shows it and one thing to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._base import native
from .._base.records import from_json, to_json

if TYPE_CHECKING:
    from ..monitor.run_log import RunLog


@dataclass(frozen=True)
class Finding:
    """``title`` says what is the case, ``evidence`` the figures that show it, ``change`` what to do.

    ``kind`` names the rule. ``setting`` and ``value`` are that change for programs, "" where it is no setting.
    """

    kind: str
    severity: str
    title: str
    evidence: str
    change: str
    setting: str
    value: str


def diagnose(run_log: RunLog, run: Mapping[str, Any] | None = None) -> tuple[Finding, ...]:
    """Findings about what a monitor saw, the gravest first; ``run`` is what is known of the training's settings."""
    findings = native.call("diagnosis.of", {"run_log": to_json(run_log), "run": dict(run or {})})
    return tuple(from_json(Finding, finding) for finding in findings or ())
