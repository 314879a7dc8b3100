"""What traces told the planner is found again for the same question alone, and asked again when its file is broken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._core.files import cache_folder
from asrconfig_go.plan.planner import KeptTable, Tracer
from asrconfig_go.plan.traced_answers import TracedAnswers, Wanted

ANSWER = {"memory": [{"seconds": 0.1 + 0.2, "batch": 4}], "high_bytes": None, "note": "größer"}
WANTED = Wanted(
    precision="fp32", gradient_checkpointing=False, every_n_layers=1, offload_checkpoints=False,
    optimizer="adamw_torch", allocator="", share=4, budget_bytes=2 << 30, max_length_s=None, longest_s=2.0,
    high=False, beside_bytes=0, generates=False, beams=1, tokens=0,
)  # fmt: skip
OTHERS: dict[str, Any] = {
    "precision": "bf16", "gradient_checkpointing": True, "every_n_layers": 2, "offload_checkpoints": True,
    "optimizer": "sgd", "allocator": "expandable_segments:True", "share": 8, "budget_bytes": 1 << 30,
    "max_length_s": 1.5, "longest_s": 3.0, "high": True, "beside_bytes": 1 << 20, "generates": True, "beams": 2,
    "tokens": 9,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path))


def test_an_answer_comes_back_as_it_was() -> None:
    assert KeptTable.of("a").find() is None
    KeptTable.of("a").store(ANSWER)
    assert KeptTable.of("a").find() == ANSWER
    assert KeptTable.of("b").find() is None


def test_a_broken_file_is_no_answer_and_goes() -> None:
    source = random.Random(0)
    table = KeptTable.of("a")
    for number in range(300):
        table.store(ANSWER)
        (path,) = cache_folder("tables").iterdir()
        data = bytearray(path.read_bytes())
        if number % 3 == 0:
            del data[source.randrange(len(data)) :]
        elif number % 3 == 1:
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        else:
            data += source.randbytes(source.choice((1, 100, 1 << 20)))
        path.write_bytes(data)
        assert table.find() is None
        assert not path.exists()


def test_an_answer_without_a_place_is_not_kept() -> None:
    KeptTable.of("large").store({"note": "x" * (1 << 20)})
    assert KeptTable.of("large").find() is None
    cache_folder("tables").write_bytes(b"")
    KeptTable.of("a").store(ANSWER)
    assert KeptTable.of("a").find() is None


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


def tracer(model: Any = "wav2vec2-base", gpu: str = "T4", **options: Any) -> Tracer:
    settings: dict[str, Any] = {"freeze": False, "progress": False, **options}
    return Tracer(model, gpu=gpu, **settings)


def others() -> Iterator[Wanted]:
    """``WANTED`` with one value after the other changed; those of checkpointing stay so, as they need it."""
    wanted = WANTED
    for name in Wanted._fields:
        other = wanted._replace(**{name: OTHERS[name]})
        yield other
        if name == "gradient_checkpointing":
            wanted = other


def test_one_question_is_asked_once(questions: list[Any]) -> None:
    assert tracer().trace(WANTED, [1.0, 2.0]) == ANSWER
    assert tracer().trace(WANTED, [1.0, 2.0]) == ANSWER
    assert len(questions) == 1


@pytest.mark.parametrize(
    ("options", "wanted", "durations"),
    [
        ({"model": "wav2vec2-large"}, WANTED, [1.0, 2.0]),
        ({"gpu": "L4"}, WANTED, [1.0, 2.0]),
        ({"freeze": True}, WANTED, [1.0, 2.0]),
        ({"lora_rank": 8}, WANTED, [1.0, 2.0]),
        ({"record": False}, WANTED, [1.0, 2.0]),
        *(({}, wanted, [1.0, 2.0]) for wanted in others()),
        ({}, WANTED, [1.0, 2.1]),
    ],
)
def test_another_question_is_asked(questions: list[Any], options: Any, wanted: Wanted, durations: list[float]) -> None:
    tracer().trace(WANTED, [1.0, 2.0])
    tracer(**options).trace(wanted, durations)
    assert len(questions) == 2


def test_batches_of_the_user_s_own_are_asked_each_time(questions: list[Any]) -> None:
    own = tracer(batch_fn=lambda batch, length, labels: {})
    own.trace(WANTED, [1.0])
    own.trace(WANTED, [1.0])
    assert len(questions) == 2
