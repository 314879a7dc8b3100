"""Gradient norms that are on a GPU, on the stand-in runtime, whose copies are real."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from asrconfig_go.guard.optimizer_step import LEAST, GradientNorms


def norms_of_a_gpu() -> dict[str, Any]:
    """What is found of a step far above the others, and of one whose norm is not finite; where the copy lies."""
    given = [*[3.0] * LEAST, 90.0, 3.0, float("inf")]
    norms = iter(torch.tensor(norm, device="cuda") for norm in given)
    accelerator = SimpleNamespace(clip_grad_norm_=lambda: next(norms))
    followed = GradientNorms()
    followed.follow(SimpleNamespace(accelerator=accelerator))
    found = []
    for _ in given:
        passed = accelerator.clip_grad_norm_()
        found.append(followed.look())
    return {
        "unusual": [each and list(map(str, each)) for each in found if each is not None],
        "pinned": followed._host is not None and followed._host.is_pinned(),
        "passed": str(passed.device),
    }
