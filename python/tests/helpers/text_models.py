"""Tiny models of text, with rows as a tokenizer makes them and collators as transformers' data collators do."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import datasets
import torch
import transformers

VOCABULARY, CLASSES, LONGEST, ROWS = 120, 3, 40, 48
SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_SPEECH = re.compile(r"\b(clips?|audio|speech|transcripts?|sample rates?|durations?|16 kHz|codecs?)\b", re.IGNORECASE)


def bert(positions: int = 64) -> Any:
    config = transformers.BertConfig(
        **SMALL, vocab_size=VOCABULARY, max_position_embeddings=positions, num_labels=CLASSES
    )
    return transformers.BertForSequenceClassification(config)


def roberta() -> Any:
    config = transformers.RobertaConfig(**SMALL, vocab_size=VOCABULARY, max_position_embeddings=66, num_labels=CLASSES)
    return transformers.RobertaForSequenceClassification(config)


def distilbert() -> Any:
    config = transformers.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=32, vocab_size=VOCABULARY, max_position_embeddings=64,
        num_labels=CLASSES,
    )  # fmt: skip
    return transformers.DistilBertForSequenceClassification(config)


def gpt2() -> Any:
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=VOCABULARY, n_positions=64)
    return transformers.GPT2LMHeadModel(config)


def t5() -> Any:
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=VOCABULARY, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


def texts(count: int = ROWS, longest: int = LONGEST) -> Any:
    """Tokens of 4 to ``longest`` with a class and a shorter text each."""
    drawn = random.Random(0)
    rows = []
    for length in [longest, *(drawn.randint(4, longest) for _ in range(count - 1))]:
        ids = [drawn.randrange(10, VOCABULARY) for _ in range(length)]
        rows.append(
            {
                "input_ids": ids,
                "attention_mask": [1] * length,
                "label": length % CLASSES,
                "target": ids[: length // 2 + 1],
            }
        )
    return datasets.Dataset.from_list(rows)


def padded(rows: list[Any], name: str, value: int) -> Any:
    longest = max(len(row[name]) for row in rows)
    return torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])


def for_classes(rows: list[Any]) -> dict[str, Any]:
    """As DataCollatorWithPadding."""
    labels = torch.tensor([row["label"] for row in rows])
    return {
        "input_ids": padded(rows, "input_ids", 0),
        "attention_mask": padded(rows, "attention_mask", 0),
        "labels": labels,
    }


def for_language(rows: list[Any]) -> dict[str, Any]:
    """As DataCollatorForLanguageModeling without masks."""
    batch = for_classes(rows)
    return {**batch, "labels": padded(rows, "input_ids", -100)}


def for_translation(rows: list[Any]) -> dict[str, Any]:
    """As DataCollatorForSeq2Seq."""
    return {**for_classes(rows), "labels": padded(rows, "target", -100)}


MODELS: dict[str, tuple[Callable[[], Any], Callable[[list[Any]], dict[str, Any]]]] = {
    "BERT": (bert, for_classes),
    "RoBERTa": (roberta, for_classes),
    "DistilBERT": (distilbert, for_classes),
    "GPT-2": (gpt2, for_language),
    "T5": (t5, for_translation),
}


def speech_words(text: str) -> list[str]:
    """What is said of speech where texts are meant; JSON names and CSS classes are not said."""
    plain = re.sub(r"<style.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)
    return [f"{m.group()}: …{plain[max(0, m.start() - 60) : m.end() + 60]}…" for m in _SPEECH.finditer(plain)]
