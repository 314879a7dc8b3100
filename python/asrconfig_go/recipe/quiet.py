"""Bars of transformers, such as that of writing a model, shown or not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(silent: bool) -> Iterator[None]:
    """Show none of them if ``silent``, and put things back as they were."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    if silent:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if silent and shown:
            logging.enable_progress_bar()
