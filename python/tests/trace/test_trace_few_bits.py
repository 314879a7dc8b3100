"""Traces of models whose weights bitsandbytes has; their allocations are compared in test_cuda_trace.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.plan import add_lora
from asrconfig_go.predict import MemoryModel
from asrconfig_go.recipe.model_building import quantized
from asrconfig_go.trace._arena import statistics

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("bitsandbytes")

from speech_models import Clips, wav2vec2

pytestmark = pytest.mark.filterwarnings("ignore")  # of bitsandbytes, on what the CPU lacks


@pytest.fixture(params=[8, 4])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    torch.manual_seed(0)
    wav2vec2("mean").save_pretrained(tmp_path)
    return add_lora(transformers.Wav2Vec2ForCTC.from_pretrained(tmp_path, **quantized(request.param)), 2)


def held(model: Any) -> int:
    """Bytes of weights, scales and tables, each rounded as the allocator does."""
    beside = [t for module in model.modules() for t in statistics(module)]
    tensors = {t.data_ptr(): t for t in (*model.parameters(), *model.buffers(), *beside)}
    assert len(beside) >= 6
    return sum(-(-t.numel() * t.element_size() // 512) * 512 for t in tensors.values())


def test_weights_are_counted_in_their_bits_and_stay_what_they_are(model: Any) -> None:
    clips = Clips("ctc mean")
    batch = {name: torch.stack([clips[0][name], clips[1][name]]) for name in clips[0]}
    before = model.train()(**batch).loss
    with MemoryModel.trace(model, gpu="T4", precision="fp16", progress=False) as memory:
        loaded = next(row for row in memory.estimate(1, 0.2).phases if row.phase == "load")
    assert loaded.peak_allocated == held(model)
    assert torch.equal(model(**batch).loss, before)


def test_a_plan_for_them_is_traced(model: Any) -> None:
    with MemoryModel.trace(model, gpu="T4", precision="fp16", progress=False) as memory:
        one, two = (memory.estimate(n, 0.2).peak_allocated for n in (1, 2))
    assert one < two
