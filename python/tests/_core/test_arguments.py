"""Values of wrong types and names that nothing takes: an error of this package, with the name that is meant."""

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
from asrconfig_go.plan import PlanOptions, estimate_run_time
from asrconfig_go.predict import cost_of_longest, split_by_memory
from training_fixtures import make_plan

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
        "host_s": np.float32(0),
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


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("epochs", 3, "did you mean num_train_epochs=3?"),
        ("num_epochs", 3, "did you mean num_train_epochs=3?"),
        ("batch_size", 16, "did you mean target_batch_size=16?"),
        ("fp16", True, 'did you mean precision="fp16"?'),
        ("bf16", True, 'did you mean precision="bf16"?'),
        ("learning_rate", 1e-4, "did you mean base_learning_rate=0.0001?"),
        ("lr", 1e-4, "did you mean base_learning_rate=0.0001?"),
        ("optim", "adafactor", "did you mean optimizer='adafactor'?"),
        ("max_duration", 20, "did you mean max_length_s=20?"),
        ("num_train_epoch", 3, "did you mean 'num_train_epochs'?"),
        ("per_device_train_batch_size", 4, "set it in the plan: config.per_device_train_batch_size = 4"),
        ("nonsense", 1, "it takes "),
    ],
)
def test_an_unknown_setting_names_the_one_that_is_meant(name: str, value: Any, hint: str) -> None:
    for make in (lambda **s: ac.create_optimal_config("nowhere", "wav2vec2-base", **s), PlanOptions):
        with pytest.raises(InvalidArgumentError) as refused:
            make(**{name: value})
        assert refused.value.message.endswith(f"takes no {name!r}")
        assert hint in refused.value.hint


def test_what_is_the_trainers_is_named_as_such() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InvalidArgumentError, match=r"to_training_arguments\(output_dir, max_steps=5\)"):
        PlanOptions(max_steps=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match=r"to_training_arguments\(output_dir\)"):
        PlanOptions(output_dir="out")  # type: ignore[call-arg]


def _guarded(**settings: Any) -> Any:
    return ac.ASRConfigManager(gpu="T4").attach(object(), **settings)


MISNAMED: tuple[tuple[Callable[..., Any], str, str], ...] = (
    (lambda **s: ac.compare_gpus("wav2vec2-base", hours=1, mean_s=5, max_s=9, **s), "num_train_epochs", "epochs=1"),
    (lambda **s: ac.ASRConfigManager(gpu="T4").profile_dataset("nowhere", **s), "sampling", "'sampling_rate'"),
    (lambda **s: ac.ASRConfigManager(gpu="T4").measure_loader("nowhere", **s), "second", "'seconds'"),
    (lambda **s: make_plan().launch_files("nowhere", **s), "machine", "'machines'"),
    (lambda **s: estimate_run_time("", "T4", steps=1, batch=1, seconds=1, **s), "eval_sample", "'eval_samples'"),
    (lambda **s: ac.AdaptiveMemoryCallback(**s), "warn", "'warn_at'"),
    (lambda **s: ac.ASRConfigManager(gpu="T4").callback(**s), "warnat", "'warn_at'"),
    (_guarded, "micro_batches", "'micro_batch'"),
)


@pytest.mark.parametrize(("call", "name", "meant"), MISNAMED, ids=[name for _, name, _ in MISNAMED])
def test_every_function_that_takes_settings_refuses_unknown_ones(
    call: Callable[..., Any], name: str, meant: str
) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InvalidArgumentError) as refused:
        call(**{name: 1})
    assert f"did you mean {meant}?" in refused.value.hint
