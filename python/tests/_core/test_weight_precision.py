"""Weights that are stored in 16 bits: refused or named in plans, by the guard and by the callback, before step 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Trainer, TrainingArguments

import asrconfig_go as ac
from asrconfig_go._core.modules import half_weights
from asrconfig_go.data.splits import load_split
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import attach
from speech_models import wav2vec2
from tiny_training import Points, Regression


def head_alone(model: Any) -> Any:
    """Frozen in 16 bits but for a part in 32, as with adapters."""
    model.half().requires_grad_(False)
    model.lm_head.float().requires_grad_(True)
    return model


def partly(model: Any) -> Any:
    model.lm_head.half()
    return model


def test_what_is_trained_counts() -> None:
    assert half_weights(wav2vec2("mean")) == ""
    assert half_weights(wav2vec2("mean").half()) == half_weights(partly(wav2vec2("mean"))) == "float16"
    assert half_weights(wav2vec2("mean").bfloat16()) == "bfloat16"
    assert half_weights(head_alone(wav2vec2("mean"))) == ""
    assert half_weights("wav2vec2-base") == half_weights(Regression) == ""


@pytest.mark.parametrize("precision", [None, "fp32", "fp16"])
def test_a_plan_refuses_float16(precision: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"stored in float16[\s\S]*model\.float\(\)"):
        ac.create_optimal_config("nowhere", wav2vec2("mean").half(), gpu="T4", precision=precision, verbose=False)


@pytest.mark.parametrize("make", [lambda: wav2vec2("mean"), lambda: wav2vec2("mean").bfloat16()])
def test_a_plan_names_bfloat16(make: Any) -> None:
    model = make()
    clips = [str(row["audio"]["path"]) for row in load_split("train").select(range(4)) if row["audio"]["path"]]
    config, _ = ac.create_optimal_config(clips, model, gpu="L4", trace=False, verbose=False)
    matching = [text for text in config.warnings if "stored in bfloat16" in text]
    assert len(matching) == (half_weights(model) == "bfloat16")
    assert all("model.float()" in text for text in matching)


def trainer_of(folder: Path, model: Any, callbacks: Any = ()) -> Any:
    args = TrainingArguments(str(folder), use_cpu=True, report_to=[], max_steps=1, save_strategy="no")
    return Trainer(model, args, train_dataset=Points(8), callbacks=list(callbacks))


def test_the_guard_refuses_what_the_scaler_does_not_take(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, Regression().half())
    trainer.args.fp16 = True
    for guard in (lambda: attach(trainer), lambda: ac.ASRConfigManager().train(trainer, verbose=False)):
        with pytest.raises(InvalidArgumentError, match=r"scaler takes none of float16[\s\S]*model\.float\(\)"):
            guard()
    trainer.model.float()
    attach(trainer).detach()


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "1/256 of a weight"), ("float16", "underflow")])
def test_the_guard_names_training_without_a_copy_in_float32(tmp_path: Path, dtype: str, name: str) -> None:
    guard = attach(trainer_of(tmp_path, Regression().to(getattr(torch, dtype))))
    (note,) = [note for note in guard.notes if "stored in" in note]
    assert f"stored in {dtype}" in note
    assert name in note
    guard.detach()
    assert not any("stored in" in note for note in attach(trainer_of(tmp_path, Regression())).notes)


@pytest.mark.parametrize("guarded", [False, True])
def test_the_callback_names_them_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, guarded: bool) -> None:
    callback = ac.AdaptiveMemoryCallback(panel=False)
    model = Regression()
    model.unused = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    trainer = trainer_of(tmp_path, model, [callback])
    ac.ASRConfigManager().train(trainer, verbose=False) if guarded else trainer.train()
    assert len([r for r in caplog.records if "stored in bfloat16" in r.getMessage()]) == 1
