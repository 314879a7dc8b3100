"""Model FLOPs utilization: the plan's arithmetic against PyTorch's own counter, in a batch and in a training."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    Trainer,
    TrainingArguments,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from asrconfig_go import AdaptiveMemoryCallback, ASRConfigManager
from asrconfig_go.plan.plan_records import Arithmetic
from asrconfig_go.watch import report as report_of, watch_setup
from asrconfig_go.watch.batch_shapes import (
    BatchShapes,
    UsefulWork,
    useful_work,
)

RATE = 1e12


def speech_model(kind: str) -> Any:
    if kind == "ctc":
        config = Wav2Vec2Config(
            hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256, conv_dim=(64,) * 7,
            layerdrop=0.0, num_conv_pos_embedding_groups=1,  # PyTorch counts gradients of grouped ones as of one group
        )  # fmt: skip
        return Wav2Vec2ForCTC(config)
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    tokens = {"vocab_size": 500, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2, "decoder_start_token_id": 3}
    return WhisperForConditionalGeneration(
        WhisperConfig(
            d_model=64, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=256, decoder_ffn_dim=256, **heads, **tokens
        )
    )


def batch(kind: str, clips: int, seconds: float, tokens: int) -> dict[str, Any]:
    labels = torch.randint(4, 30, (clips, tokens))
    if kind == "ctc":
        return {"input_values": torch.randn(clips, int(16_000 * seconds)), "labels": labels}
    return {"input_features": torch.randn(clips, 80, 3000), "labels": labels}


@pytest.mark.parametrize("kind", ["ctc", pytest.param("whisper", marks=pytest.mark.slow)])
def test_arithmetic_is_what_pytorch_counts(kind: str) -> None:
    model = speech_model(kind).train()
    model.set_attn_implementation("eager")  # of a fused kernel the counter counts what is computed again, too
    manager = ASRConfigManager(gpu="T4")
    manager.profile_dataset([[0.0] * 1000 * seconds for seconds in (3, 8, 20)], sampling_rate=1000)
    manager.profile_model(model)
    config = manager.plan(trace=True)
    assert config.arithmetic is not None and config.arithmetic.rate == pytest.approx(65e12)
    shapes = BatchShapes(model, work=UsefulWork(config.arithmetic, RATE))
    for clips, seconds, tokens in [(2, 4.0, 9), (1, 15.0, 40)]:
        named = batch(kind, clips, seconds, tokens)
        with FlopCounterMode(display=False) as counter:
            model(**named).loss.backward()
        needed = shapes.take()["arithmetic_s"]
        assert needed * RATE == pytest.approx(counter.get_total_flops(), rel=0.005)
    model.eval()
    with torch.no_grad():
        model(**batch(kind, 1, 4.0, 9))
    assert "arithmetic_s" not in shapes.take(), "an evaluation is no training"


def test_utilization_is_known_with_a_plan_on_a_gpu_with_a_published_rate() -> None:
    plan: Any = SimpleNamespace(arithmetic=Arithmetic((0.0, 1e9, 0.0), "seconds", RATE))
    unpublished: Any = SimpleNamespace(arithmetic=Arithmetic((0.0, 1e9, 0.0), "seconds", None))
    gpu = torch.device("cuda")
    assert useful_work(None, gpu) is None and useful_work(unpublished, gpu) is None
    assert useful_work(plan, torch.device("cpu")) is None, "nobody publishes the rate of a CPU"
    on_gpu = useful_work(plan, gpu)
    assert on_gpu is not None and on_gpu.seconds(2, 3.0, {}) == pytest.approx(0.006)


def test_a_training_tells_its_utilization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = speech_model("ctc")
    clips = [{name: value[0] for name, value in batch("ctc", 1, 0.5, 4).items()} for _ in range(8)]
    arguments = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=2, max_steps=4, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(model, arguments, train_dataset=clips)
    manager = ASRConfigManager()
    manager.profile_dataset([[0.0] * 16_000], sampling_rate=16_000)
    manager.profile_model(model)
    config = manager.plan(trace=True)
    monkeypatch.setattr(watch_setup, "useful_work", lambda plan, device: UsefulWork(plan.arithmetic, RATE))
    trainer.add_callback(AdaptiveMemoryCallback(config))
    trainer.train()
    report = report_of(tmp_path)
    steps = json.loads((tmp_path / "asrconfig_monitor.json").read_text())["steps"]
    assert config.arithmetic is not None
    trained = [i for i, kind in enumerate(steps["kind"]) if kind == "train"]
    needed, spent = ([steps[name][i] for i in trained] for name in ("arithmetic_s", "spent_s"))
    assert len(needed) == 4 and needed == pytest.approx([needed[0]] * 4), "four equal batches"
    share = sum(needed) / sum(spent)
    assert 0 < share < 1
    assert report.steps.model_flops_utilization == pytest.approx(share)
    assert "useful work" in str(report) or "useful work" in report._repr_html_()
