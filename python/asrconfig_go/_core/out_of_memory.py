"""Errors of a training step: what they mean, how they read, and the release of the memory that they hold."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import traceback
from typing import Any

from ..errors import AsrConfigError
from . import native
from .output import logger, shortened

# After what did not fit, torch's messages continue on the same line with statistics, general advice and a link.
_DETAILS = re.compile(r"\.?\s+(?:Process \d+ has|Including non-PyTorch memory|Of the allocated memory|If reserved)\b.*")
_FROM_WORKER = re.compile(r"Caught \w+ in ")
_ERROR_LINE = re.compile(r"[\w.]+: ")


def classify(error: BaseException) -> dict[str, Any]:
    """``{"class", "advice"}`` of an error or of its cause, which core/recovery decides by type and text.

    The class is ``"gpu_oom"``, ``"maybe"`` (it may have been), ``"host_oom"``, ``"poisoned"`` (this process cannot use
    the GPU any more) or ``"other"``.
    """
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    answer: dict[str, Any] = native.call("recovery.classify", {"type": name, "text": str(error)})
    cause = error.__cause__
    # A loader's "worker exited unexpectedly" has the reason in its cause. Our own errors are final.
    if answer["class"] == "other" and cause is not None and not isinstance(error, AsrConfigError):
        answer_of_cause = classify(cause)
        return answer_of_cause if answer_of_cause["class"] != "other" else answer
    return answer


def is_gpu_oom(error: BaseException, maybe: bool = False) -> bool:
    """Whether GPU memory ran out; ``maybe``: or may have."""
    return classify(error)["class"] in (("gpu_oom", "maybe") if maybe else ("gpu_oom",))


def clear_frames(error: BaseException) -> None:
    """Empty the local variables in the traceback of ``error``, which hold the step's tensors.

    The same is done for the exceptions that it was raised from, and for the last one of a notebook, which holds the
    tensors of an earlier cell.
    """
    chain: list[BaseException | None] = [error, getattr(sys, "last_value", None)]
    visited: set[int] = set()
    while chain:
        current = chain.pop()
        if current is not None and id(current) not in visited:
            visited.add(id(current))
            for frame, _ in traceback.walk_tb(current.__traceback__):
                with contextlib.suppress(RuntimeError):  # the frame is still running
                    frame.clear()
                    # Up to Python 3.12 a frame keeps the dict of locals once read, until it is read again.
                    frame.f_locals.get("")
            chain += [current.__cause__, current.__context__]


def remove_traceback(error: BaseException) -> str:
    """Remove the traceback of ``error``, which is kept while its memory is needed, and return it as text.

    Even a cleared frame keeps the variables that its function shares with inner ones. In a module with hooks these are
    the module's inputs.
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


def add_note(error: BaseException, text: str) -> None:
    """Add ``text`` to the notes of an exception; Python 3.10 has none, so there it is logged."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        logger.error(text)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or the name of its type if the text is empty.

    Of torch's out-of-memory errors only what did not fit is returned. The text of an error from a DataLoader's worker
    begins with a traceback; the line after that is returned.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    error_lines = [line for line in lines if _ERROR_LINE.match(line)] if _FROM_WORKER.match(lines[0]) else []
    return shortened(_DETAILS.sub("", error_lines[-1] if error_lines else lines[0]))
