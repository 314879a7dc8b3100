"""Datasets of every kind with a small model and the collator that fits both, as users bring them to a Trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

from speech_models import CTC_SIZES, w2v_bert, wav2vec2, whisper

ROWS = 24
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
HEADS = {**CTC_SIZES, "tdnn_dim": (8, 8, 8, 8, 16), "xvector_output_dim": 8, "classifier_proj_size": 8, "num_labels": 2}
Kind = tuple[Any, Any, Callable[[list[Any]], dict[str, Any]]]


class OwnDataset(torch.utils.data.Dataset):  # type: ignore[misc]
    """Rows by number, and nothing else."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return self.rows[i]


class WaveNetwork(torch.nn.Module):  # type: ignore[misc]
    """Classifies waveforms by a convolution, and names its input as nobody else does."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = torch.nn.Conv1d(1, 8, 10, 5), torch.nn.Linear(8, 2)

    def forward(self, wave: Any, target: Any = None) -> dict[str, Any]:
        logits = self.head(self.net(wave[:, None]).relu().mean(-1))
        loss = None if target is None else torch.nn.functional.cross_entropy(logits, target)
        return {"loss": loss, "logits": logits}


class SpectrogramNetwork(torch.nn.Module):  # type: ignore[misc]
    """Needs the number of frames of each spectrogram, too."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = torch.nn.Conv1d(6, 8, 3, padding=1), torch.nn.Linear(8, 2)

    def forward(self, mel: Any, frame_lens: Any, label: Any = None) -> dict[str, Any]:
        assert int(frame_lens.max()) == mel.shape[2]
        hidden = self.net(mel).relu().sum(-1) / frame_lens[:, None]
        return {"loss": torch.nn.functional.cross_entropy(self.head(hidden), label), "hidden": hidden}


def padded(rows: list[Any], name: str, dtype: Any = torch.float32) -> Any:
    return pad_sequence([torch.as_tensor(np.asarray(row[name]), dtype=dtype) for row in rows], batch_first=True)


def mask(rows: list[Any], name: str) -> Any:
    """As feature extractors and tokenizers make it."""
    dtype = torch.long if name == "input_ids" else torch.int32
    return pad_sequence([torch.ones(len(row[name]), dtype=dtype) for row in rows], batch_first=True)


def collate(rows: list[Any]) -> dict[str, Any]:
    """Rows with one of the usual inputs and labels, padded."""
    name = next(name for name in ("input_values", "input_features", "input_ids") if name in rows[0])
    batch = {name: padded(rows, name, torch.long if name == "input_ids" else torch.float32)}
    if batch[name].dim() == 2 or (name == "input_features" and batch[name].shape[2] == 8):
        batch["attention_mask"] = mask(rows, name)
    labels = [torch.as_tensor(row["labels"]) for row in rows]
    one = not labels[0].dim()
    batch["labels"] = torch.stack(labels) if one else pad_sequence(labels, batch_first=True, padding_value=-100)
    return batch


def collate_waves(rows: list[Any]) -> dict[str, Any]:
    return {"wave": padded(rows, "speech"), "target": torch.tensor([row["who"] for row in rows])}


def collate_pairs(rows: list[Any]) -> dict[str, Any]:
    """Of tuples: spectrograms (batch, bins, frames), their frames, and who it is."""
    mels = pad_sequence([mel for mel, _ in rows], batch_first=True).transpose(1, 2)
    return {
        "mel": mels,
        "frame_lens": torch.tensor([len(mel) for mel, _ in rows]),
        "label": torch.tensor([who for _, who in rows]),
    }


def rows(name: str, shape: tuple[int, ...], labels: Any, step: int = 0) -> datasets.Dataset:
    """A dataset with one input a row, of which every third is longer by ``step`` and by twice that."""
    source = np.random.default_rng(0)
    sizes = [(shape[0] + step * (i % 3), *shape[1:]) for i in range(ROWS)]
    whole = name == "input_ids"
    values = [source.integers(1, 40, size) if whole else source.standard_normal(size, "float32") for size in sizes]
    return datasets.Dataset.from_dict({name: [v.tolist() for v in values], "labels": [labels(i) for i in range(ROWS)]})


def text(i: int) -> list[int]:
    return [3, 4, 5][: 1 + i % 3]


def side(i: int) -> int:
    return i % 2


def of_waves(labels: Any = text) -> datasets.Dataset:
    return rows("input_values", (8000,), labels, 800)


def longer_whisper() -> Any:
    """One that hears 1.28 s."""
    config = whisper().config
    config.max_source_positions = 64
    return transformers.WhisperForConditionalGeneration(config)


def head(kind: str) -> Any:
    return getattr(transformers, kind)(transformers.Wav2Vec2Config(**HEADS))


def ast() -> Any:
    sizes = {"max_length": 64, "num_mel_bins": 16, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}
    return transformers.ASTForAudioClassification(transformers.ASTConfig(**sizes, **SMALL))


def bert() -> Any:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=40, max_position_embeddings=64, **SMALL)
    )


def gpt2() -> Any:
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    return transformers.GPT2ForSequenceClassification(transformers.GPT2Config(vocab_size=40, **sizes, **ends))


def distilbert() -> Any:
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 64}
    return transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(vocab_size=40, **sizes))


def of_words() -> datasets.Dataset:
    return rows("input_ids", (25,), side, 10)


KNOWN: dict[str, Callable[[], Kind]] = {
    "samples": lambda: (of_waves(), wav2vec2("mean"), collate),
    "samples and lengths": lambda: (
        of_waves().map(lambda row: {"length": len(row["input_values"])}), wav2vec2("mean"), collate,
    ),
    "samples, own dataset": lambda: (OwnDataset(list(of_waves().with_format("numpy"))), wav2vec2("mean"), collate),
    "samples, list": lambda: (list(of_waves()), wav2vec2("mean"), collate),
    "Whisper features": lambda: (rows("input_features", (4, 128), text), longer_whisper(), collate),
    "w2v-BERT features": lambda: (rows("input_features", (40, 8), text, 20), w2v_bert(), collate),
    "AST features": lambda: (rows("input_values", (64, 16), side), ast(), collate),
    "words, BERT": lambda: (of_words(), bert(), collate),
    "words, DistilBERT": lambda: (of_words(), distilbert(), collate),
    "words, GPT-2": lambda: (OwnDataset(list(of_words())), gpt2(), collate),
    "classes of clips": lambda: (of_waves(side), head("Wav2Vec2ForSequenceClassification"), collate),
    "speakers": lambda: (of_waves(side), head("Wav2Vec2ForXVector"), collate),
}  # fmt: skip
"""Planned without a word on how batches are made."""


def own_waves() -> Kind:
    return OwnDataset([{"speech": row["input_values"], "who": i % 2} for i, row in enumerate(of_waves())]), \
        WaveNetwork(), collate_waves  # fmt: skip


def own_spectrograms() -> Kind:
    source = torch.Generator().manual_seed(0)
    mels = [torch.randn(60 + 10 * (i % 4), 6, generator=source) for i in range(ROWS)]
    return OwnDataset([(mel, i % 2) for i, mel in enumerate(mels)]), SpectrogramNetwork(), collate_pairs


OWN: dict[str, Callable[[], Kind]] = {"own waves": own_waves, "own spectrograms": own_spectrograms}
"""Planned by their collators."""
