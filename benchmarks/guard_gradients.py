"""Gradients of one optimizer step over the same 16 clips, cut in four ways, under the guard and by the plain Trainer.

    python benchmarks/guard_gradients.py

Small speech models on the CPU, dropout off, clips and transcripts of unequal length. Shown is the relative difference
of the gradient to that of a plain Trainer's one batch of 16, in float32 and in float64: what vanishes in float64 is
rounding. The last column is how far that one batch's gradient is itself from the one in float64. In float64 what is
left of Whisper's is the weights of micro-batches, which are shares of tokens in float32. Exit status 1 when the guard
is off by more than 1e-6 beyond the one batch's own rounding, or in float64 by more than 1e-7.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
from guard_runs import RATES, Clips, Collate
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

from asrconfig_go.guard import attach
from speech_models import MODELS, Keep

CUTS = ((16, 1), (8, 2), (4, 4), (1, 16))
AIMS = {torch.float32: 1e-6, torch.float64: 1e-7}


def gradient(kind: str, batch: int, accumulation: int, precision: Any, guarded: bool) -> torch.Tensor:
    """All of the step's gradient, as float64."""
    torch.manual_seed(0)
    keep = Keep()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            max_steps=1,
            max_grad_norm=0.0,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(
            MODELS[kind]().to(precision),
            arguments,
            train_dataset=Clips(kind, 16, seed=1),
            data_collator=Collate(kind, precision == torch.float64),
            callbacks=[keep],
        )
        trainer.remove_callback(PrinterCallback)
        if guarded:
            attach(trainer)
        trainer.train()
    flat: torch.Tensor = keep.gradient.double()
    return flat


def main() -> int:
    """Print the table."""
    hf_logging.set_verbosity_error()
    torch.set_num_threads(1)
    good = True
    titles = ["model", "precision", "by", *(f"{micro} × {accumulation}" for micro, accumulation in CUTS), "rounding"]
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
    for kind in RATES:
        exact = gradient(kind, 16, 1, torch.float64, guarded=False)
        for precision, aim in AIMS.items():
            expected = gradient(kind, 16, 1, precision, guarded=False)
            rounding = _off(expected, exact)
            for guarded in (True, False):
                off = [_off(gradient(kind, *cut, precision, guarded), expected) for cut in CUTS]
                good &= not guarded or max(off) <= aim + rounding
                by, name = "guard" if guarded else "plain Trainer", str(precision).removeprefix("torch.")
                cells = " | ".join(f"{value:.1e}" for value in [*off, rounding])
                print(f"| {kind} | {name} | {by} | {cells} |", flush=True)
    print(f"\nguard within 1e-6 and rounding in float32, and 1e-7 in float64: {'reached' if good else 'MISSED'}")
    return int(not good)


def _off(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


if __name__ == "__main__":
    sys.exit(main())
