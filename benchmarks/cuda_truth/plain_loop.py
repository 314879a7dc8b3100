"""A training loop as people write it by hand, run by the recorder and on CUDA alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import models
import torch
from cases import Case

STEPS = 3
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw_torch": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=True),
}


def train(case: Case, model: Any, place: Callable[[Any], Any], after_step: Callable[[], None]) -> None:
    """Three steps on "cuda"; ``place`` puts a batch there."""
    about = models.MODELS[case.model]
    length, labels = round(case.seconds * models.units(about)), round(case.seconds * about.labels_per_second)
    model.to("cuda").train()
    optimizer = _OPTIMIZERS[case.optimizer]([p for p in model.parameters() if p.requires_grad])
    # From the usual scale random weights overflow, and no step is taken.
    scaler = torch.amp.GradScaler("cuda", init_scale=1.0, enabled=case.precision == "fp16")
    dtype = DTYPES.get(case.precision)
    for _ in range(STEPS):
        for _ in range(case.accumulation):
            batch = place(models.batch(about, case.batch, length, labels))
            with torch.autocast("cuda", dtype=dtype or torch.float16, enabled=dtype is not None):
                loss = model(**batch)["loss"] / case.accumulation
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        after_step()
