"""Losses of sentence-transformers."""

from __future__ import annotations

import atexit
import functools
import importlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from library_adapters import VOCABULARY
from library_memory import ROWS, Kind, Shape
from library_trainers import (
    arguments,
)
from library_trl import (
    table,
    texts,
    tokenizer,
)


@functools.cache
def _bert() -> str:
    """A folder with a tiny BERT of random weights."""
    transformers = importlib.import_module("transformers")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3,
        num_labels=1,
    )  # fmt: skip
    with torch.random.fork_rng():  # the first run draws what later ones draw
        torch.manual_seed(0)
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def encoder() -> Any:
    """Sentences to the mean of their tokens' vectors."""
    library = importlib.import_module("sentence_transformers")
    models = importlib.import_module("sentence_transformers.models")
    words = models.Transformer(_bert())
    return library.SentenceTransformer(modules=[words, models.Pooling(16, "mean")], device="cpu").double()


def pairs(labels: Sequence[Any] | None = None, columns: int = 2) -> Any:
    """Columns of sentences, and a label for each row."""
    named = {f"sentence{i}": texts(ROWS, i) for i in range(columns)}
    return table(**named) if labels is None else table(**named, label=list(labels))


_SIMILAR = [i % 5 / 4 for i in range(ROWS)]
_SAME = [i % 2 for i in range(ROWS)]
_CLASSES = [i % 3 for i in range(ROWS)]


def embedding(
    loss: Callable[[Any, Any], Any], rows: Callable[[], Any] = pairs, rate: float = 0.02, **settings: Any
) -> Kind:
    """``loss`` makes one of the module of losses and the model."""
    library = importlib.import_module("sentence_transformers")
    losses = importlib.import_module("sentence_transformers.losses")

    def build(shape: Shape, folder: str) -> Any:
        model = encoder()
        function = loss(losses, model)
        for part in function.values() if isinstance(function, dict) else (function,):
            part.double()
        return library.SentenceTransformerTrainer(
            model=model,
            args=arguments(shape, folder, library.SentenceTransformerTrainingArguments, learning_rate=rate, **settings),
            train_dataset=rows(),
            loss=function,
        )

    return Kind(build)


def cross_encoder() -> Kind:
    library = importlib.import_module("sentence_transformers.cross_encoder")
    losses = importlib.import_module("sentence_transformers.cross_encoder.losses")

    def build(shape: Shape, folder: str) -> Any:
        model = library.CrossEncoder(_bert(), num_labels=1, device="cpu").double()
        return library.CrossEncoderTrainer(
            model=model,
            args=arguments(shape, folder, library.CrossEncoderTrainingArguments, learning_rate=0.02),
            train_dataset=pairs([float(label) for label in _SAME]),
            loss=losses.BinaryCrossEntropyLoss(model),
        )

    return Kind(build)


def _two_losses(losses: Any, model: Any) -> dict[str, Any]:
    return {"a": losses.CosineSimilarityLoss(model), "b": losses.SoftmaxLoss(model, 16, 3)}


def _two_tables() -> Any:
    return importlib.import_module("datasets").DatasetDict({"a": pairs(_SIMILAR), "b": pairs(_CLASSES)})


SENTENCES: dict[str, Callable[[], Kind]] = {
    "CosineSimilarityLoss": lambda: embedding(
        lambda losses, m: losses.CosineSimilarityLoss(m), lambda: pairs(_SIMILAR)
    ),
    "SoftmaxLoss": lambda: embedding(lambda losses, m: losses.SoftmaxLoss(m, 16, 3), lambda: pairs(_CLASSES)),
    "MultipleNegativesRankingLoss": lambda: embedding(lambda losses, m: losses.MultipleNegativesRankingLoss(m)),
    "CachedMultipleNegativesRankingLoss": lambda: embedding(
        lambda losses, m: losses.CachedMultipleNegativesRankingLoss(m, mini_batch_size=2)
    ),
    "TripletLoss": lambda: embedding(lambda losses, m: losses.TripletLoss(m), lambda: pairs(columns=3)),
    "ContrastiveLoss": lambda: embedding(lambda losses, m: losses.ContrastiveLoss(m), lambda: pairs(_SAME), rate=0.2),
    "OnlineContrastiveLoss": lambda: embedding(lambda losses, m: losses.OnlineContrastiveLoss(m), lambda: pairs(_SAME)),
    "CoSENTLoss": lambda: embedding(lambda losses, m: losses.CoSENTLoss(m), lambda: pairs(_SIMILAR)),
    "MatryoshkaLoss of CosineSimilarityLoss": lambda: embedding(
        lambda losses, m: losses.MatryoshkaLoss(m, losses.CosineSimilarityLoss(m), [16, 8]), lambda: pairs(_SIMILAR)
    ),
    "BatchAllTripletLoss": lambda: embedding(
        lambda losses, m: losses.BatchAllTripletLoss(m), lambda: pairs(_CLASSES, columns=1)
    ),
    "two datasets, two losses": lambda: embedding(_two_losses, _two_tables, multi_dataset_batch_sampler="round_robin"),
    "CrossEncoder, BinaryCrossEntropyLoss": cross_encoder,
}
