"""The recorded peaks of generations, to which core/memory/analytic is held, by the real torch.cuda."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuda_forked import run_on_cuda
from cuda_process import stand_in  # noqa: F401
from locations import REPOSITORY

RECORDED = json.loads((REPOSITORY / "core/memory/analytic/testdata/generation.json").read_text())


def _named(row: dict[str, Any]) -> str:
    return "-".join(str(row[name]) for name in ("model", "beams", "tokens", "precision"))


@pytest.mark.slow
@pytest.mark.parametrize("row", RECORDED, ids=_named)
def test_an_evaluation_that_generates_takes_what_is_recorded(row: dict[str, Any]) -> None:
    asked = (row["model"], row["beams"], row["tokens"], row["precision"])
    found = run_on_cuda(
        "generation_peak", *asked, module="cuda_generation", gpu="A100-40GB", allocator="expandable_segments:True",
        copy_limit_bytes=1 << 24,
    )  # fmt: skip
    assert found == pytest.approx(row["peak"], rel=1e-3)
