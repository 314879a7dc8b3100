"""Keeps the memory figures out of the logs that the Trainer prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers.trainer_callback import PrinterCallback, ProgressCallback

from .._base.override import override
from .scalars import PREFIX


def leave_out_of_print(handler: Any) -> list[Callable[[], None]]:
    """Print logs without the memory figures; returns functions that undo this.

    They are for curves: a line with dozens of numbers for eight GPUs hides the loss. Reporters and
    other callbacks get them all.
    """
    printers = [callback for callback in handler.callbacks if isinstance(callback, PrinterCallback | ProgressCallback)]
    return [override(printer, "on_log", _without(printer.on_log)) for printer in printers]


def _without(on_log: Callable[..., Any]) -> Callable[..., Any]:
    def printed(*arguments: Any, logs: Any = None, **others: Any) -> Any:
        printable = logs and {name: value for name, value in logs.items() if not name.startswith(PREFIX)}
        return on_log(*arguments, logs=printable, **others)

    return printed
