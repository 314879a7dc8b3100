"""A watched training of two processes: ``watched_ranks.py OUTPUT FAILS``.

Each process writes what it has seen to ``OUTPUT/rank<n>.json``. With ``FAILS`` 1 the second one fails at step 2: the
first must not wait for it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.watch.callback import AdaptiveMemoryCallback
from tiny_training import Regression, leave, tiny_trainer


class Fail(TrainerCallback):  # type: ignore[misc]
    def on_step_begin(self, args: Any, state: Any, *others: Any, **kwargs: Any) -> None:
        if state.global_step == 2 and args.process_index == 1:
            raise ValueError("on purpose")


def main() -> None:
    output, rank = Path(sys.argv[1]), os.environ["RANK"]
    torch.manual_seed(0)
    callback = AdaptiveMemoryCallback(interval_ms=10)
    others = [Fail()] if sys.argv[2] == "1" else []
    trainer = tiny_trainer(output, model=Regression(), callbacks=[callback, *others], samples=32, ddp_backend="gloo")
    trainer.train()
    told = {
        "sampled": callback._watch is not None,
        "ranks": [vars(peaks) for peaks in callback.summary().ranks],
        "summary": str(callback.summary()),
        "callbacks": len(trainer.callback_handler.callbacks),
    }
    (output / f"rank{rank}.json").write_text(json.dumps(told))
    leave()


if __name__ == "__main__":
    main()
