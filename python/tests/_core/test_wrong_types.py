"""Values of wrong types, one argument at a time: what is raised is an error of this package, or nothing."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asrconfig_go as ac
from asrconfig_go.audio import AddNoise, ChangeSpeed, DecodedCache, ResampledCache, Reverberation, load_audio
from asrconfig_go.data.source import CLIPS
from asrconfig_go.errors import AsrConfigError, InternalError, InvalidArgumentError
from asrconfig_go.predict import cost_of_longest, split_by_memory

CLIP, MODEL = str(sorted(CLIPS.glob("*.mp3"))[0]), "facebook/wav2vec2-base"
ODD = [None, "abc", "a\0b", b"x", -1, 1.5, math.nan, math.inf, 10**30, True, [None], {}, object(), float, np.int64(5)]
ODD += [np.float32(0.5), Path(), [1, "a"], -(10**30)]
LENGTHS: dict[str, Any] = {"durations": [1.0, 2.0, 3.0] * 5, "step_samples": 4, "memory": [(5.0, 8)]}

# A call that works, and the arguments that are then replaced: those of the signature where nothing is said.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "scan": (ac.scan_audio, {"source": [CLIP], "progress": False}),
    "labels": (ac.check_labels, {"source": CLIP, "texts": ["a"], "progress": False}),
    "durations": (ac.add_durations, {"dataset": [CLIP]}),
    "rate": (ac.measure_loader, {"dataset": CLIP, "seconds": 0.01}),
    "model": (ac.profile_model, {"model": MODEL}),
    "memory": (ac.estimate_memory, {"model": MODEL, "batch": 2, "seconds": 5.0, "gpu": "T4", "estimator": "published"}),
    "trace": (ac.MemoryModel.load, {"trace": "none.trace"}),
    "compare": (ac.compare_gpus, {"model": MODEL, "gpus": ["T4"], "hours": 10, "trace": False}),
    "largest": (ac.largest_models, {"gpu": "T4", "family": "wav2vec2"}),
    "step time": (ac.estimate_step_time, {"model": MODEL, "gpu": "T4", "batch": 2, "seconds": 5.0}),
    "batching": (ac.compare_batching, LENGTHS),
    "longest": (cost_of_longest, LENGTHS),
    "cut": (split_by_memory, {"durations": [1.0, 2.0], "memory": [(5.0, 8)]}),
    "sampler": (ac.StepSampler, {"durations": [1.0, 2.0, 3.0], "step_samples": 2}),
    "config": (ac.TrainingConfig.from_dict, {"data": {}}),
    "select": (ac.select_clips, {"durations": [1.0], "config": None}),
    "callback": (ac.AdaptiveMemoryCallback, {}),
    "clip": (load_audio, {"source": CLIP}),
    "decoded": (DecodedCache, {"max_bytes": 100}),
    "resampled": (ResampledCache, {"folder": "cache"}),
    "noise": (AddNoise, {}),
    "speed": (ChangeSpeed, {}),
    "rooms": (Reverberation.made, {"count": 1, "rt60_s": (0.1, 0.1)}),
}


def arguments_of(call: Callable[..., Any]) -> Iterator[str]:
    """Names of arguments, those of keywords by their typed dictionary included."""
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter.name
            continue
        settings = parameter.annotation.removeprefix("Unpack[").removesuffix("]")
        yield from vars(sys.modules[call.__module__])[settings].__annotations__


SLOW = ("compare", "largest", "step time", "rate")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CALLS])
def test_each_argument(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, arguments = CALLS[name]
    refused = 0
    for argument in arguments_of(call):
        for value in ODD:
            if callable(value) and argument in ("load", "tokenizer", "processor"):
                continue  # somebody's own function, whose errors are theirs
            try:
                repr(call(**{**arguments, argument: value}))
            except AsrConfigError as error:
                assert not isinstance(error, InternalError), (argument, value)
                refused += 1
    assert refused


def test_numbers_of_numpy_are_numbers() -> None:
    table: dict[str, Any] = {
        **LENGTHS,
        "step_samples": np.int64(4),
        "ranks": np.int32(1),
        "overhead_s": np.float32(4),
        "seed": np.uint8(0),
    }
    assert ac.compare_batching(**table).strategies == ac.compare_batching(**LENGTHS).strategies
    shape = {"batch": np.int64(2), "seconds": np.float32(5)}
    settings: dict[str, Any] = {"gpu": "T4", "estimator": "published"}
    estimates = [ac.estimate_memory(MODEL, **x, **settings) for x in (shape, {"batch": 2, "seconds": 5})]
    assert estimates[0] == estimates[1]
    assert len(ac.scan_audio([CLIP], workers=np.int64(1), batch_size=np.int64(2), progress=False)) == 1
    with pytest.raises(InvalidArgumentError, match="not finite"):
        ac.scan_audio([CLIP], seed=np.float64("nan"), progress=False)
