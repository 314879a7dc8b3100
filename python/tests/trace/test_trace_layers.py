"""What is written down of a model of many identical layers is what running all of it gives."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from torch import nn

from asrconfig_go.trace import trace_training, training_loop
from asrconfig_go.trace._shortened import Layers, Whole
from trace_fixtures import as_recorded

DEPTH = 24
POINTS = [(2, 301, 0), (3, 407, 0), (5, 503, 0), (1, 301, 0), (1, 503, 0)]


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, place: int) -> None:
        super().__init__()
        self.place, self.window = place, 4
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class Tower(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer(place) for place in range(DEPTH)), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for place, layer in enumerate(self.layers):
            x = self.between(place, layer(x))
        return {"loss": self.head(x).sum()}

    def between(self, place: int, x: torch.Tensor) -> torch.Tensor:
        return x


class Uneven(Tower):
    """Something that the layers themselves do not show happens in the middle."""

    def between(self, place: int, x: torch.Tensor) -> torch.Tensor:
        return x.sigmoid() if place == DEPTH // 2 else x


class Counting(Tower):
    """Works with all of its layers alone."""

    def between(self, place: int, x: torch.Tensor) -> torch.Tensor:
        return x * len(self.layers[DEPTH - 1].up.weight)


def squares(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(batch, length, 8)}


def wav2vec2() -> nn.Module:
    config = transformers.Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=DEPTH, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16),
        conv_kernel=(10, 32), conv_stride=(10, 32), num_conv_pos_embeddings=16, do_stable_layer_norm=True,
        feat_extract_norm="layer", layerdrop=0.1,
    )  # fmt: skip
    return transformers.Wav2Vec2ForCTC(config)


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=12, decoder_layers=12, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50, max_target_positions=40, vocab_size=200,
        num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


OWN = {"batch_fn": squares, "points": POINTS}
CASES: list[tuple[Any, dict[str, Any], int]] = [
    (Tower, OWN, 5),
    (Uneven, OWN, 0),
    (Counting, OWN, 0),
    (wav2vec2, {"precision": "fp16"}, 10),
    (wav2vec2, {"gradient_checkpointing": "reentrant", "optimizer": "adafactor"}, 8),
    (whisper, {"precision": "bf16", "gradient_checkpointing": True}, 8),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "options", "fewest"), CASES)
def test_written_down_is_as_run(
    model: Any, options: dict[str, Any], fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []
    write = Whole.write

    def noted(self: Whole, shape: dict[str, int]) -> bool:
        written.append(write(self, shape))
        return written[-1]

    monkeypatch.setattr(Whole, "write", noted)
    short = trace_training(model, accumulation=3, **options)
    monkeypatch.setattr(training_loop, "_WORTH", 1000)
    full = trace_training(model, accumulation=3, **options)
    assert sum(written) >= fewest if fewest else not any(written)
    assert as_recorded(short) == as_recorded(full)
    assert (short.ops, short.modules, short.calls, short.lengths) == (
        full.ops, full.modules, full.calls, full.lengths,
    )  # fmt: skip


def test_first_second_and_last_are_kept() -> None:
    model = Tower()
    layers, all_of_them = Layers(model), list(model.layers)
    layers.leave_out()
    assert layers.left_out == DEPTH - 3
    assert list(model.layers) == [all_of_them[place] for place in (0, 1, -1)]
    inside, after = (
        [layers.standing_in(2 * n + 1) for n in (0, 5, 23)],
        [layers.standing_in(2 * n + 2) for n in (5, 23)],
    )
    assert (inside, after, layers.standing_in(0)) == ([1, 3, 47], [4, 48], 0)


def frozen(layer: Any) -> None:
    layer.up.weight.requires_grad_(False)


def hooked(layer: Any) -> None:
    layer.down.register_forward_hook(lambda *_: None)


def narrower(layer: Any) -> None:
    layer.window = 2


def in_evaluation(layer: Any) -> None:
    layer.down.eval()


@pytest.mark.parametrize("change", [frozen, hooked, narrower, in_evaluation])
def test_layers_that_differ_are_kept(change: Any) -> None:
    model = Tower()
    change(model.layers[10])
    layers, changed = Layers(model), model.layers[10]
    layers.leave_out()
    assert changed in list(model.layers)
    assert len(model.layers) == 7


def test_few_layers_are_left_alone() -> None:
    model = nn.Sequential(nn.ModuleList(Layer(place) for place in range(5)))
    assert Layers(model).left_out == 0
