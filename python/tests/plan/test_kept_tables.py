"""What traces told the planner is found again for the same question alone, and asked again when its file is broken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._core.files import cache_folder
from asrconfig_go.plan.planner import Tracer
from asrconfig_go.plan.traced_answers import TracedAnswers, Wanted

ANSWER = {"memory": [{"seconds": 0.1 + 0.2, "batch": 4}], "high_bytes": None, "note": "größer"}
WANTED = Wanted(
    precision="fp32", gradient_checkpointing=False, every_n_layers=1, offload_checkpoints=False,
    optimizer="adamw_torch", allocator="", share=4, budget_bytes=2 << 30, max_length_s=None, longest_s=2.0,
    high=False, beside_bytes=0, generates=False, beams=1, tokens=0, sizes=(), devices=1,
)  # fmt: skip
OTHERS: dict[str, Any] = {
    "precision": "bf16", "gradient_checkpointing": True, "every_n_layers": 2, "offload_checkpoints": True,
    "optimizer": "sgd", "allocator": "expandable_segments:True", "share": 8, "budget_bytes": 1 << 30,
    "max_length_s": 1.5, "longest_s": 3.0, "high": True, "beside_bytes": 1 << 20, "generates": True, "beams": 2,
    "tokens": 9, "sizes": (1, 4), "devices": 2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path))


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The questions that were not answered from the cache."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    questions: list[Any] = []

    def begin(self: TracedAnswers, memory: Any, wanted: Wanted, durations: Any, batch_fn: Any) -> None:
        questions.append((wanted, list(durations)))

    monkeypatch.setattr(Tracer, "_opened", lambda *_: None)
    monkeypatch.setattr(TracedAnswers, "__init__", begin)
    monkeypatch.setattr(TracedAnswers, "answer", lambda _: ANSWER)
    return questions


def asked(
    wanted: Wanted, durations: list[float], model: Any = "wav2vec2-base", gpu: str = "T4", **options: Any
) -> dict[str, Any]:
    return Tracer(model, **options).trace(wanted, durations, gpu)


def others() -> Iterator[Wanted]:
    """``WANTED`` with one value after the other changed; those of checkpointing stay so, as they need it."""
    wanted = WANTED
    for name in OTHERS:
        other = dataclasses.replace(wanted, **{name: OTHERS[name]})
        yield other
        if name == "gradient_checkpointing":
            wanted = other


def test_one_question_is_asked_once_while_its_file_is_whole(questions: list[Any]) -> None:
    assert asked(WANTED, [1.0, 2.0]) == ANSWER
    assert asked(WANTED, [1.0, 2.0]) == ANSWER
    assert len(questions) == 1
    (path,) = cache_folder("tables").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert asked(WANTED, [1.0, 2.0]) == ANSWER
    assert len(questions) == 2


@pytest.mark.parametrize(
    ("options", "wanted", "durations"),
    [
        ({"model": "wav2vec2-large"}, WANTED, [1.0, 2.0]),
        ({"gpu": "L4"}, WANTED, [1.0, 2.0]),
        ({"freeze": True}, WANTED, [1.0, 2.0]),
        ({"lora_rank": 8}, WANTED, [1.0, 2.0]),
        ({"trace": False}, WANTED, [1.0, 2.0]),
        *(({}, wanted, [1.0, 2.0]) for wanted in others()),
        ({}, WANTED, [1.0, 2.1]),
    ],
)
def test_another_question_is_asked(questions: list[Any], options: Any, wanted: Wanted, durations: list[float]) -> None:
    asked(WANTED, [1.0, 2.0])
    asked(wanted, durations, **options)
    assert len(questions) == 2


def test_batches_of_the_user_s_own_are_asked_each_time(questions: list[Any]) -> None:
    for _ in range(2):
        asked(WANTED, [1.0], batch_fn=lambda batch, length, labels: {})
    assert len(questions) == 2
