"""With two processes, each names the bad clips of its own batches, and both leave them out of the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.ranks_training import launch, results, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without processes"),
]
BAD = [3, 9]
KINDS = ["ctc mean", "whisper", "raising"]


def spec(kind: str) -> dict[str, Any]:
    if kind == "raising":
        return {**spec("whisper"), "nan": [], "beyond": BAD}
    return {"kind": kind, "epochs": 1, "accumulation": 2, "batch": 2, "nan": BAD, "options": {"bad_clips": "skip"}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("ranks")
    runs = [spec(kind) for kind in KINDS]
    runs.append({**spec("ctc mean"), "options": {}})
    runs.append({**spec("ctc mean"), "options": {"bad_clips": "raise"}, "caught": True})
    runs += [{**spec("raising"), "options": {"bad_clips": policy}, "caught": True} for policy in ("raise", "report")]
    status, output, _ = launch(runs, folder, 300)
    assert status == 0, output
    return folder, results(folder, len(runs))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_without_the_clips_is_that_of_one_process(trained: Any, kind: str, tmp_path: Path) -> None:
    first, second = trained[1][KINDS.index(kind)]
    assert sorted(row for rank in (first, second) for rows in rank["named"] for row in rows) == BAD
    assert first["left_out"] + second["left_out"] == len(BAD)
    assert torch.equal(first["weights"], second["weights"])
    alone = run({**spec(kind), "batch": 4}, str(tmp_path))
    assert sorted(row for rows in alone["named"] for row in rows) == BAD
    moved = (alone["weights"] - alone["start"]).norm()
    assert float((first["weights"] - alone["weights"]).norm() / moved) < 1e-5


def test_where_a_clip_is_reported_every_process_goes_on(trained: Any) -> None:
    first, second = trained[1][len(KINDS)]
    assert first["steps"] == second["steps"] == 2
    assert {row for rank in (first, second) for rows in rank["named"] for row in rows} & set(BAD)


@pytest.mark.parametrize(("run", "named"), [(1, "BadClipError"), (2, "BadClipError"), (3, "IndexError")])
def test_where_one_raises_the_other_ends(trained: Any, run: int, named: str) -> None:
    errors = sorted(rank["error"] for rank in trained[1][len(KINDS) + run])
    assert any(error.startswith(named) for error in errors)
    assert all(error.startswith((named, "OtherProcessFailedError")) for error in errors)
