"""GPUs that PyTorch reports and that are not there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch


def cuda_has(monkeypatch: pytest.MonkeyPatch, *cards: tuple[str, str | None, int]) -> None:
    """Let CUDA have started with GPUs of these names, UUIDs (None: not reported) and bytes, in its order."""
    known = [
        SimpleNamespace(name=name, total_memory=total, **({} if uuid is None else {"uuid": uuid}))
        for name, uuid, total in cards
    ]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(known))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: known[i])
