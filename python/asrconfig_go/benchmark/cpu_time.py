"""Processor time of this training alone: this process, the workers it has now, and those that have ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from pathlib import Path

_FIELDS_BEFORE = 11  # of /proc/PID/stat, between the name and utime


def cpu_seconds() -> float:
    """Since each began, user and system. Where there is no /proc, workers count when they have ended."""
    ended = os.times()
    spent = time.process_time() + ended.children_user + ended.children_system
    return spent + sum(_of_child(child.pid) for child in multiprocessing.active_children())


def _of_child(pid: int | None) -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[_FIELDS_BEFORE]) + int(fields[_FIELDS_BEFORE + 1])) / os.sysconf("SC_CLK_TCK")
    return 0.0
