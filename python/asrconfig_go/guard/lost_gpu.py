"""Writes the state of a training whose process can no longer use its GPU."""

from __future__ import annotations

import dataclasses
import json
import logging
import traceback
from pathlib import Path
from typing import Any

from .._base.files import write_whole
from ..recovery.guard_event import GuardEvent

logger: logging.Logger = logging.getLogger("asrconfig_go")

_FILE = "asrconfig-failure.json"


def keep_what_can_be_kept(trainer: Any, events: list[GuardEvent], error: Exception) -> str:
    """Write the training state to ``output_dir``; returns a sentence with the file and the last checkpoint.

    Weights and the optimizer's state are behind the broken context: reading them would fail, or hang. The Trainer's
    state, with its log, is not. A file that cannot be written is reported, not raised: there is an error already.
    """
    from transformers.trainer_utils import get_last_checkpoint

    folder = Path(trainer.args.output_dir)
    state = trainer.state
    record = {
        "error": "".join(traceback.format_exception_only(type(error), error)).strip(),
        "global_step": state.global_step,
        "epoch": state.epoch,
        "max_steps": state.max_steps,
        "log_history": state.log_history,
        "events": [dataclasses.asdict(event) for event in events],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _FILE, json.dumps(record, indent=1, default=str).encode())
        last = get_last_checkpoint(str(folder))
    except OSError as failed:
        return f"cannot write the state of the training: {failed}"
    advice = f"continue from {last}" if last else "there is no checkpoint to continue from"
    return f"the log is in {folder / _FILE}; {advice}"
