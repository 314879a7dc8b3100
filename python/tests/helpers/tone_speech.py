"""Speech of tones, one for each letter, and a CTC model that hears them: alignments whose times are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from asrconfig_go.audio import CTCAligner
from asrconfig_go.data import Segment

RATE, HOP = 16_000, 320
LETTERS = "abcdefghijklmnopqrst"
LETTER_S, GAP_S = 0.1, 0.4


def spoken(words: Sequence[str], gaps: Sequence[float] | None = None, noise: float = 1e-3) -> tuple[Any, list[Segment]]:
    """The samples of ``words``, each followed by a gap in seconds, and when each is said."""
    source = np.random.default_rng(0)
    parts: list[Any] = []
    segments: list[Segment] = []
    samples = 0
    for word, gap in zip(words, gaps or [GAP_S] * len(words), strict=True):
        times = np.arange(round(LETTER_S * RATE)) / RATE
        tones = np.concatenate([np.sin(2 * np.pi * _hertz(LETTERS.index(c)) * times) for c in word])
        segments.append(Segment(samples / RATE, (samples + len(tones)) / RATE, word))
        parts += [0.5 * tones, noise * source.standard_normal(round(gap * RATE))]
        samples += len(tones) + round(gap * RATE)
    return np.concatenate(parts).astype(np.float32), segments


def aligner(**options: Any) -> CTCAligner:
    """Hears ``spoken`` letters."""
    from transformers import Wav2Vec2FeatureExtractor

    from asrconfig_go.recipe.processors import ctc_tokenizer

    tokenizer = ctc_tokenizer(LETTERS)
    extractor = Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=False)
    processor = SimpleNamespace(feature_extractor=extractor, tokenizer=tokenizer)
    return CTCAligner(_model(tokenizer.get_vocab()), processor, **options)


def _hertz(letter: int) -> int:
    return RATE // HOP * (10 + 3 * letter)


def _model(vocabulary: dict[str, int]) -> Any:
    import torch
    from transformers import Wav2Vec2Config

    class Tones(torch.nn.Module):  # type: ignore[misc]
        device = torch.device("cpu")
        config = Wav2Vec2Config(vocab_size=len(vocabulary), conv_dim=(1,), conv_kernel=(HOP,), conv_stride=(HOP,))

        def forward(self, input_values: Any) -> Any:
            power = torch.fft.rfft(input_values.unfold(1, HOP, HOP)).abs() / HOP
            logits = torch.full((*power.shape[:2], len(vocabulary)), -5.0)
            logits[..., 0], logits[..., vocabulary["|"]] = 1.0, 0.5
            for letter, c in enumerate(LETTERS):
                logits[..., vocabulary[c]] = -5 + 60 * power[..., 10 + 3 * letter]
            return SimpleNamespace(logits=logits)

    Tones.config.pad_token_id = 0
    return Tones()
