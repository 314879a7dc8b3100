"""Arguments that are not the plan's are named before the first step, with the memory that they would take."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Trainer, TrainerCallback, TrainingArguments, Wav2Vec2Config, Wav2Vec2ForCTC

import asrconfig_go as ac
from asrconfig_go._core.training_session import SESSION_KEY
from asrconfig_go.plan.argument_check import PlannedTraining
from speech_models import wav2vec2
from tiny_training import Points, Regression
from training_fixtures import UNGUARDED, make_plan

L4: dict[str, Any] = {"gpu_name": "NVIDIA L4", "bf16": True, "gradient_checkpointing": True}
# As large as XLS-R-1B, in few layers, which are traced sooner.
LARGE: dict[str, Any] = {
    "hidden_size": 5120, "num_hidden_layers": 4, "num_attention_heads": 16, "intermediate_size": 20480,
    "feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True, "vocab_size": 40,
    "ctc_loss_reduction": "mean",
}  # fmt: skip


class BeforeStepOne(Exception):
    """Ends a training when its first step begins."""


class End(TrainerCallback):  # type: ignore[misc]
    """Raises it."""

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        raise BeforeStepOne


def told(records: list[logging.LogRecord]) -> list[str]:
    return [r.getMessage() for r in records if "not as planned" in r.getMessage()]


def arguments(config: ac.TrainingConfig, **changes: Any) -> Any:
    """The plan's own, changed, as a machine with that GPU has them."""
    same = {
        "per_device_train_batch_size": config.per_device_train_batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "optim": config.optimizer,
        "gradient_checkpointing": config.gradient_checkpointing,
    }
    args = TrainingArguments("out", **{**same, "use_cpu": True, "report_to": [], **changes})
    if "bf16" not in changes and "fp16" not in changes:
        args.bf16 = config.bf16
    return args


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[ac.TrainingConfig, ac.ASRConfigManager]:
    """XLS-R-1B on clips of up to 8 s, on an L4 of the catalogue."""
    import numpy as np
    import soundfile

    clips = tmp_path_factory.mktemp("clips")
    for i in range(8):
        soundfile.write(clips / f"{i}.flac", np.zeros(16_000 * (i + 1)), 16_000)
    planned: dict[str, Any] = {"gpu": "L4", "gradient_checkpointing": True, "every_n_layers": 1}
    return ac.create_optimal_config(str(clips), "xls-r-1b", trace=False, verbose=False, **planned)


# Of durations that are not those of the made-up rows.
@pytest.mark.filterwarnings("ignore::asrconfig_go.train.planned_batches.PlanNotFollowedWarning")
@pytest.mark.parametrize("managed", [True, False], ids=["manager.train", "callback"])
def test_the_published_example_is_named_before_step_one(
    planned: tuple[ac.TrainingConfig, ac.ASRConfigManager],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    managed: bool,
) -> None:
    """Own TrainingArguments, with the batch, the accumulation and fp16 of the plan alone, on a card that has bf16."""
    config, manager = planned
    assert (config.bf16, config.fp16, config.gradient_checkpointing) == (True, False, True)
    with torch.device("meta"):
        model = Wav2Vec2ForCTC(Wav2Vec2Config(**LARGE))
    args = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=config.per_device_train_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        fp16=config.fp16,
        learning_rate=config.learning_rate,
        report_to=[],
        use_cpu=True,
    )
    rows = [{"input_values": torch.zeros(16_000), "labels": torch.tensor([1, 2])}] * 256
    callbacks = [manager.callback(panel=False), End()]
    trainer = Trainer(model.to_empty(device="cpu"), args, train_dataset=rows, callbacks=callbacks)
    with pytest.raises(BeforeStepOne):
        manager.train(trainer, max_retries=0, verbose=False) if managed else trainer.train()
    (message,) = told(caplog.records)
    assert "fp32 instead of bf16, gradient checkpointing off instead of on" in message
    assert re.search(r"predicted (2[3-9]|[3-9]\d)\.\d GiB of 22\.5 GiB on NVIDIA L4, which does not fit", message)
    assert "pass bf16=config.bf16, gradient_checkpointing=config.gradient_checkpointing" in message
    assert "or use config.to_training_arguments(output_dir)" in message
    assert not hasattr(trainer.callback_handler, SESSION_KEY)


@pytest.mark.parametrize(
    ("changes", "words", "remedy"),
    [
        ({"bf16": False}, "fp32 instead of bf16", "bf16=config.bf16"),
        ({"gradient_checkpointing": False}, "gradient checkpointing off", "gradient_checkpointing=config."),
        ({"optim": "adafactor"}, "adafactor instead of adamw_torch", "optim=config.optimizer"),
        (
            {"per_device_train_batch_size": 16},
            "batches of 16 × 4 instead of 8 × 4",
            "per_device_train_batch_size=config.",
        ),
        ({"gradient_accumulation_steps": 1}, "batches of 8 × 1 instead", "gradient_accumulation_steps=config."),
    ],
)
def test_each_difference_is_named_with_its_argument(changes: dict[str, Any], words: str, remedy: str) -> None:
    config, model = make_plan(**L4), wav2vec2("mean")
    check = PlannedTraining(config, 2.0).check
    assert check(arguments(config), model) == ""
    assert check(arguments(config, optim="adamw_torch_fused"), model) == "", "the same state and memory"
    message = check(arguments(config, **changes), model)
    assert words in message
    assert remedy in message
    assert re.search(r"predicted \d\.\d GiB of 22\.5 GiB on NVIDIA L4 →", message)
    mended = {name: getattr(config, field) for name, field in re.findall(r"(\w+)=config\.(\w+)", message)}
    assert mended.keys() == changes.keys()
    assert check(arguments(config, **mended), model) == "", "as it says"


def test_settings_with_the_guard_and_without_it_are_as_planned() -> None:
    plan = {**L4, "gradient_checkpointing": False, "micro_batching": "memory", "unguarded": UNGUARDED}
    config, model = make_plan(**plan), wav2vec2("mean")
    for form in (config, config.without_guard()):
        assert PlannedTraining(config, 2.0).check(arguments(form), model) == ""
    mixed = arguments(config, gradient_checkpointing=True)
    assert "gradient checkpointing on" in PlannedTraining(config, 2.0).check(mixed, model)


def test_without_lengths_or_a_gpu_nothing_is_predicted() -> None:
    model = wav2vec2("mean")
    for config in (make_plan(**L4), make_plan(**{**L4, "gpu_name": ""})):
        seconds = None if config.gpu_name else 2.0
        message = PlannedTraining(config, seconds).check(arguments(config, bf16=False), model)
        assert "fp32 instead of bf16 → pass bf16=config.bf16" in message


@pytest.mark.filterwarnings("ignore:planned bf16 = True:asrconfig_go.plan.UnsupportedSettingWarning")
def test_what_the_arguments_were_built_with_is_not_named_again(tmp_path: Path) -> None:
    config, model = make_plan(**L4), wav2vec2("mean")
    check = PlannedTraining(config, 2.0).check
    assert check(config.to_training_arguments(tmp_path), model) == "", "a CPU has no bf16: that was reported"
    args = config.to_training_arguments(tmp_path, gradient_checkpointing=False, per_device_train_batch_size=2)
    assert check(args, model) == "", "overrides were warned of, and it fits"
    args = config.to_training_arguments(tmp_path, gradient_checkpointing=False, per_device_train_batch_size=4096)
    assert "gradient checkpointing off instead of on, batches of 4096 × 1" in PlannedTraining(config, 200.0).check(
        args, model
    )
    assert pickle.loads(pickle.dumps(args)).gradient_accumulation_steps == 1


def test_a_check_that_fails_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> str:
        raise RuntimeError("broken")

    monkeypatch.setattr(PlannedTraining, "check", fails)
    callback = ac.AdaptiveMemoryCallback(make_plan(), panel=False)
    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], max_steps=1, save_strategy="no")
    trainer = Trainer(Regression(), args, train_dataset=Points(8), callbacks=[callback])
    trainer.train()
    assert trainer.state.global_step == 1
    assert any("broken" in r.getMessage() for r in caplog.records)
