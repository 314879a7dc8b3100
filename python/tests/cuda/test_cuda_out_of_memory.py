"""GPU memory that really runs out in planned, guarded trainings on the stand-in runtime.

What is trained, where memory runs out and what is compared is in ``cuda_ooms.py``; ``benchmarks/cuda_ooms.py`` runs all
models at all places.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from cuda_tests.forked import run_on_cuda
from cuda_tests.process import stand_in  # noqa: F401

QUICK = {"wav2vec2": ["forward, first layers, step 0, twice", "backward, head, step 1", "optimizer, step 0"]}
SLOW = {
    "wav2vec2": [
        "backward, middle, step 4, 75 % stay",
        "optimizer, step 0, twice",
        "60 % from the begin",
        "callback, step 2, restarted",
    ],
    "WavLM": ["forward, middle, step 2, 75 % stay", "75 % from the begin"],
    "Whisper": ["forward, head, step 5", "evaluation behind step 3", "generation behind step 3"],
}


@functools.cache
def runs(quick: bool) -> Any:
    return run_on_cuda("disturbed_trainings", QUICK if quick else SLOW, module="cuda_tests.ooms", timeout=300)


ALL = [
    *((True, model, title) for model, titles in QUICK.items() for title in titles),
    *(pytest.param(False, model, title, marks=pytest.mark.slow) for model, titles in SLOW.items() for title in titles),
]


@pytest.mark.parametrize(
    ("quick", "model"), [(True, "wav2vec2"), *(pytest.param(False, m, marks=pytest.mark.slow) for m in SLOW)]
)
def test_nothing_happens_while_there_is_memory(quick: bool, model: str) -> None:
    assert runs(quick)[model]["differences"] == []


@pytest.mark.parametrize(("quick", "model", "title"), ALL)
def test_training_is_that_of_an_undisturbed_run(quick: bool, model: str, title: str) -> None:
    """Shapes of weights, steps, samples of each, learning rates, entries of the log, and nothing left on the GPU."""
    run = runs(quick)[f"{model}: {title}"]
    assert run["differences"] == []
    assert (run["steps"], run["optimizer_steps"], len(run["order"])) == (6, 6, 6)
    assert sorted(i for step in run["order"] for i in step) == sorted([*range(24), *range(24)])


@pytest.mark.parametrize(("quick", "model", "title"), ALL)
def test_what_happened_is_reported(quick: bool, model: str, title: str) -> None:
    run = runs(quick)[f"{model}: {title}"]
    place = title.split(",")[0].split(" ")[0]
    expected = {"forward": "training", "backward": "training", "generation": "evaluation", "75": "training",
                "60": "training"}.get(place, place)  # fmt: skip
    if place == "callback":
        assert (run["restarts"], run["ooms"], run["events"]) == (1, 1, [])
    else:
        assert run["events"][0][0] == expected
        assert 1 <= len(run["events"]) <= run["ooms"]  # trying two samples may fail, too, and costs nothing
    if expected in ("training", "evaluation"):
        assert run["events"][0][2:] == [8, 4]
    told = [text for text in run["messages"] if "CUDA out of memory. Tried to allocate" in text]
    assert len(told) == len(run["events"]) + run["restarts"]
    assert not any("PYTORCH_CUDA_ALLOC_CONF" in text for text in told)  # torch's advice is not ours
