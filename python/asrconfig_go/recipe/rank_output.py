"""Prints on the first process only, and hides transformers' progress bars elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def first_process() -> bool:
    """Whether this is the first of the processes that torchrun started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def quiet(silent: bool) -> Iterator[None]:
    """Show no bars of transformers, as that of writing a model, if ``silent``; put things back as they were."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    if silent:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if silent and enabled:
            logging.enable_progress_bar()
