"""LoRA: what trains, what stays, what is refused; and that adapters come back from a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.data.source import CLIPS
from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError, UnsupportedError
from asrconfig_go.plan import UnsupportedSettingWarning, add_lora

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from speech_models import CTC_SIZES, Clips, wav2vec2, whisper

MODELS: dict[str, Any] = {"ctc mean": lambda: wav2vec2("mean"), "whisper": whisper}
T4: dict[str, Any] = {"gpu": "T4", "verbose": False}


def batch(kind: str) -> dict[str, Any]:
    clips = Clips(kind)
    return {name: torch.stack([clips[i][name] for i in range(4)]) for name in clips[0]}


def logits(model: Any, kind: str) -> Any:
    with torch.no_grad():
        return model.eval()(**batch(kind)).logits


def build(kind: str) -> Any:
    torch.manual_seed(0)
    return MODELS[kind]()


@pytest.mark.parametrize("kind", list(MODELS))
def test_adapters_and_a_new_head_train_and_nothing_else(kind: str) -> None:
    model = build(kind)
    expected, before = logits(model, kind), torch.get_rng_state()
    adapted = add_lora(model, 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(logits(adapted, kind), expected)
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    heads = {name for name in trained if "lm_head" in name}
    assert all(".q_proj.lora_" in name or ".v_proj.lora_" in name for name in trained - heads)
    assert len(trained - heads) == 4 * sum(name.endswith("q_proj.base_layer") for name, _ in adapted.named_modules())
    assert len(heads) == (2 if kind == "ctc mean" else 0)
    again = dict(add_lora(build(kind), 2).named_parameters())
    assert all(torch.equal(p, again[name]) for name, p in adapted.named_parameters())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_adapter_gets_a_gradient_from_the_trainer(tmp_path: Path, kind: str, checkpointing: bool) -> None:
    """Behind a frozen front checkpoints of the reentrant kind, which a plan never takes, would give Whisper none."""
    model = add_lora(build(kind), 2)
    start = {name: p.clone() for name, p in model.named_parameters()}
    options: dict[str, Any] = {"trace": False, "lora_rank": 2, "gradient_checkpointing": checkpointing, **T4}
    config, manager = ac.create_optimal_config(CLIPS, "wav2vec2-base", **options)
    assert config.apply(model, environment=False).not_done == ()
    args = config.to_training_arguments(
        tmp_path, model=model, use_cpu=True, fp16=False, report_to=[], max_steps=3, warmup_steps=0, optim="sgd",
        learning_rate=0.1, dataloader_num_workers=0, dataloader_pin_memory=False, save_strategy="no", disable_tqdm=True,
        remove_unused_columns=True, dataloader_prefetch_factor=None, dataloader_persistent_workers=False,
        per_device_train_batch_size=4,
    )  # fmt: skip
    trainer = transformers.Trainer(model, args, train_dataset=Clips(kind))
    manager.attach(trainer, memory=False)
    trainer.train()
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert not torch.equal(p, start[name]), name
        else:
            assert torch.equal(p, start[name]), name


@pytest.mark.parametrize("kind", list(MODELS))
def test_adapters_come_back_from_a_file(tmp_path: Path, kind: str) -> None:
    model = add_lora(build(kind), 2)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p += torch.randn_like(p)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(build(kind), tmp_path)
    assert torch.equal(logits(loaded, kind), logits(model, kind))
    assert not torch.equal(logits(model, kind), logits(build(kind), kind))


def wavlm() -> Any:
    return transformers.WavLMForCTC(transformers.WavLMConfig(**CTC_SIZES))


@pytest.mark.parametrize(
    ("model", "rank", "error", "message"),
    [
        (lambda: wav2vec2("mean"), 0, InvalidArgumentError, "lora_rank = 0 is not between 1 and 4096"),
        (lambda: add_lora(whisper(), 3), 2, InvalidArgumentError, "has adapters of rank 3"),
        (wavlm, 2, UnsupportedError, "WavLMForCTC does not call its projections"),
        (lambda: torch.nn.Linear(2, 2), 2, UnsupportedError, "Linear has no query and value projections"),
    ],
)  # fmt: skip
def test_what_cannot_be_adapted(model: Any, rank: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        add_lora(model(), rank)
    add_lora(wav2vec2("mean"), 8)


@pytest.mark.slow
def test_estimates_know_adapters() -> None:
    options: dict[str, Any] = {"batch": 2, "seconds": 10, "gpu": "T4", "lora_rank": 8}
    with pytest.raises(UnsupportedError, match="published formula does not know lora_rank"):
        ac.estimate_memory("whisper-small", estimator="published", **options)
    adapted = ac.estimate_memory("whisper-small", estimator="trace", progress=False, **options)
    full = ac.estimate_memory("whisper-small", estimator="trace", progress=False, **{**options, "lora_rank": 0})
    assert adapted.peak_allocated < 0.75 * full.peak_allocated


@pytest.mark.slow
def test_a_plan_that_does_not_fit_names_adapters_and_fits_with_them() -> None:
    options: dict[str, Any] = {"model_name": "whisper-large-v3", "trace": False, **T4}
    with pytest.raises(InfeasiblePlanError) as caught:
        ac.create_optimal_config(CLIPS, **options)
    assert re.search(r"\(lora_rank=32\), with gradient checkpointing: [\d.]+ GiB, fits", caught.value.hint)
    config, _ = ac.create_optimal_config(CLIPS, lora_rank=32, **{**options, "trace": None})
    assert config.lora_rank == 32 and config.predicted_bytes < config.budget_bytes
    assert "adapters of rank 32" in repr(config)
    small: dict[str, Any] = {"model_name": "whisper-tiny", "trace": True, "progress": False, **T4}
    plain, _ = ac.create_optimal_config(CLIPS, **small)
    adapted, _ = ac.create_optimal_config(CLIPS, lora_rank=8, **small)
    assert adapted.learning_rate == pytest.approx(10 * plain.learning_rate)
    assert adapted.model_memory_bytes < 0.3 * plain.model_memory_bytes


@pytest.mark.slow
def test_a_model_with_adapters_is_planned_as_one_that_gets_them() -> None:
    options: dict[str, Any] = {"trace": True, "progress": False, **T4}
    before, _ = ac.create_optimal_config(CLIPS, wav2vec2("mean"), lora_rank=2, **options)
    with_them, _ = ac.create_optimal_config(CLIPS, add_lora(wav2vec2("mean"), 2), **options)
    assert with_them.lora_rank == before.lora_rank == 2
    assert with_them.predicted_bytes == before.predicted_bytes
    assert with_them.learning_rate == before.learning_rate
    with pytest.raises(InvalidArgumentError, match="has adapters of rank 2 already"):
        ac.create_optimal_config(CLIPS, add_lora(wav2vec2("mean"), 2), lora_rank=4, **options)


def test_a_plan_with_adapters_refuses_a_model_without(tmp_path: Path) -> None:
    model = wav2vec2("mean")
    config, manager = ac.create_optimal_config(CLIPS, model, lora_rank=2, trace=True, progress=False, **T4)
    with pytest.warns(UnsupportedSettingWarning, match=r"model = add_lora\(model, 2\)"):
        config.apply(model, environment=False)
    trainer = transformers.Trainer(model, transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[]))
    for call in (manager.attach, manager.train):
        with pytest.raises(InvalidArgumentError, match="adapters of rank 2, and the Trainer's Wav2Vec2ForCTC has none"):
            call(trainer)
    trainer = transformers.Trainer(add_lora(model, 2), trainer.args)
    manager.attach(trainer, memory=False).detach()


@pytest.mark.parametrize("kind", list(MODELS))
def test_the_trace_holds_what_a_real_step_holds(tmp_path: Path, kind: str) -> None:
    """Parameters, gradients and optimizer state of a step on the CPU, in float32, byte by byte."""
    with ac.MemoryModel.trace(build(kind), lora_rank=2, optimizer="adamw_torch", progress=False, cache=False) as traced:
        at_peak = traced.estimate(4, 0.1 if kind == "ctc mean" else 0.32).timeline
    model = add_lora(build(kind), 2)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model.train()(**batch(kind)).loss.backward()
    optimizer.step()
    tensors_by_part = {
        "parameters": list(model.parameters()),
        "gradients": [p.grad for p in model.parameters() if p.grad is not None],
        "optimizer": [t for state in optimizer.state.values() for t in state.values() if t.numel() > 1],
    }
    assert at_peak is not None
    for name, tensors in tensors_by_part.items():
        unlike = {t.data_ptr(): 512 * -(-t.numel() * t.element_size() // 512) for t in tensors}  # as CUDA rounds them
        assert max(at_peak.components[name]) == sum(unlike.values()), name


def test_adapters_that_add_text_to_batches_of_sound_are_refused_before_the_first_step(tmp_path: Path) -> None:
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="SEQ_2_SEQ_LM")
    model = peft.get_peft_model(whisper(), config)
    trainer = transformers.Trainer(model, transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[]))
    manager = ac.ASRConfigManager()
    for call in (manager.attach, manager.train):
        with pytest.raises(InvalidArgumentError, match="adds input_ids to batches of input_features"):
            call(trainer)
