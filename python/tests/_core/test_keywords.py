"""Names that nothing takes are refused with the one that is meant, by every function that takes settings by keyword."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.plan import PlanOptions, estimate_run_time
from training_fixtures import make_plan


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


CALLS: tuple[tuple[Callable[..., Any], str, str], ...] = (
    (lambda **s: ac.compare_gpus("wav2vec2-base", hours=1, mean_s=5, max_s=9, **s), "num_train_epochs", "epochs=1"),
    (lambda **s: ac.ASRConfigManager(gpu="T4").profile_dataset("nowhere", **s), "sampling", "'sampling_rate'"),
    (lambda **s: ac.ASRConfigManager(gpu="T4").measure_loader("nowhere", **s), "second", "'seconds'"),
    (lambda **s: make_plan().launch_files("nowhere", **s), "machine", "'machines'"),
    (lambda **s: estimate_run_time("", "T4", steps=1, batch=1, seconds=1, **s), "eval_sample", "'eval_samples'"),
    (lambda **s: ac.AdaptiveMemoryCallback(**s), "warn", "'warn_at'"),
    (lambda **s: ac.ASRConfigManager(gpu="T4").callback(**s), "warnat", "'warn_at'"),
    (_guarded, "micro_batches", "'micro_batch'"),
)


@pytest.mark.parametrize(("call", "name", "meant"), CALLS, ids=[name for _, name, _ in CALLS])
def test_every_function_that_takes_settings_refuses_unknown_ones(
    call: Callable[..., Any], name: str, meant: str
) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InvalidArgumentError) as refused:
        call(**{name: 1})
    assert f"did you mean {meant}?" in refused.value.hint
