"""Errors of a training step: their class, and the release of the memory that they hold."""

from __future__ import annotations

import contextlib
import gc
import logging
import re
import sys
import traceback
from typing import Any

from .._core import native
from ..errors import AsrConfigError
from .output import shortened

logger: logging.Logger = logging.getLogger("asrconfig_go")


def classify(error: BaseException) -> dict[str, Any]:
    """``{"class", "advice"}`` of an error, or of its cause, by type and text, as core/recovery classifies it.

    The class is ``"gpu_oom"``, ``"maybe"`` (it may have been), ``"host_oom"``, ``"poisoned"`` (this process cannot use
    the GPU any more) or ``"other"``.
    """
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    answer: dict[str, Any] = native.call("recovery.classify", {"type": name, "text": str(error)})
    cause = error.__cause__
    # A loader's "worker exited unexpectedly" has the reason in its cause. Our own errors are final.
    if answer["class"] == "other" and cause is not None and not isinstance(error, AsrConfigError):
        behind = classify(cause)
        return behind if behind["class"] != "other" else answer
    return answer


def clear_frames(error: BaseException) -> None:
    """Empty the local variables of everything that failed: they hold the step's tensors.

    Exceptions that it was raised from count, and so does the notebook's last one, which would hold those of an earlier
    cell.
    """
    chain: list[BaseException | None] = [error, getattr(sys, "last_value", None)]
    visited: set[int] = set()
    while chain:
        current = chain.pop()
        if current is not None and id(current) not in visited:
            visited.add(id(current))
            for frame, _ in traceback.walk_tb(current.__traceback__):
                with contextlib.suppress(RuntimeError):  # it is still running
                    frame.clear()
                    # Up to Python 3.12 a frame keeps the dict of locals once read, until it is read again.
                    frame.f_locals.get("")
            chain += [current.__cause__, current.__context__]


def without_frames(error: BaseException) -> str:
    """Take the frames from ``error``, which is to be kept while its memory is needed, and return them as text.

    Even once cleared, a frame keeps the variables that its function shares with others: those of a module with hooks
    are its inputs.
    """
    clear_frames(error)
    text = "".join(traceback.format_tb(error.__traceback__))
    current: BaseException | None = error
    while current is not None and current.__traceback__ is not None:
        current.__traceback__ = None
        current = current.__cause__ or current.__context__
    return text


def free_memory() -> None:
    """Collect garbage and release the GPU's cached memory."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def note(error: BaseException, text: str) -> None:
    """Add ``text`` to the exception's own report; Python 3.10 has no notes, so it is logged."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        logger.error(text)


# Behind what did not fit, torch's messages go on in the same line with statistics, general advice and a link.
_DETAILS = re.compile(r"\.?\s+(?:Process \d+ has|Including non-PyTorch memory|Of the allocated memory|If reserved)\b.*")

_IN_WORKER = re.compile(r"Caught \w+ in ")
_RAISED = re.compile(r"[\w.]+: ")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type's name; of torch's out-of-memory error what did not fit.

    Of one that a DataLoader's worker hands over with its traceback, the line that follows that.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    raised = [line for line in lines if _RAISED.match(line)] if _IN_WORKER.match(lines[0]) else []
    return shortened(_DETAILS.sub("", (raised or lines[:1])[-1]))
