"""The position of a callback among a Trainer's callbacks."""

from __future__ import annotations

from types import FrameType
from typing import Any

from transformers.trainer_callback import CallbackHandler

_FRAMES_TO_HANDLER = 5  # subclasses that call super() put their own frames in between


def lead(handler: Any, callback: Any) -> None:
    """Move ``callback`` to the front. While the handler walks the list, this neither skips nor repeats anyone."""
    if handler is not None:
        handler.callbacks.remove(callback)
        handler.callbacks.insert(0, callback)


def handler_of(frame: FrameType | None, callback: Any) -> Any:
    """The handler that is calling ``callback``: it is not passed to the callback, so it is read from the frame."""
    for _ in range(_FRAMES_TO_HANDLER):
        if frame is None:
            break
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackHandler) and any(member is callback for member in caller.callbacks):
            return caller
        frame = frame.f_back
    return None
