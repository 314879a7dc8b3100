"""Faults of rows of labels, by their numbers in the dataset."""

from __future__ import annotations

from typing import Any

import pytest

from asrconfig_go.data.label_faults import LabelTally, label_column, tally_labels
from asrconfig_go.data.label_rules import rules_of
from asrconfig_go.data.splits import load_split
from asrconfig_go.recipe import build_processor, load_model, make_collator

datasets = pytest.importorskip("datasets")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
np = pytest.importorskip("numpy")


def digits(kind: str, count: int = 8) -> tuple[Any, Any]:
    """Clips of digits with their labels, and the processor of a tiny model."""
    spoken = load_split("train").select(range(count))
    processor = build_processor(spoken["text"], kind)
    stored = spoken.cast_column("audio", datasets.Audio(decode=False))
    return stored.map(lambda row: {"labels": processor(text=row["text"]).input_ids}), processor


def test_positions_do_not_count_the_start_token_that_the_collator_removes() -> None:
    rows, processor = digits("tiny-whisper")
    model = load_model("tiny-whisper", processor)
    rules, positions = rules_of(model, processor), model.config.max_target_positions
    start, end, token = model.config.decoder_start_token_id, model.config.eos_token_id, rows[0]["labels"][-2]
    for count, fits in ((positions - 1, True), (positions, False)):
        labels = [start, *[token] * count, end]
        tally = LabelTally(rules)
        tally.add(0, labels)
        assert (tally.counts == {}) == fits
        batch = make_collator(processor, model)([{**rows[0], "labels": labels}])
        if fits:
            model(**batch)
        else:
            with pytest.raises(ValueError, match="cannot exceed"):
                model(**batch)


def test_classes() -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    conv = {"conv_dim": (8,) * 7, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = Wav2Vec2ForSequenceClassification(Wav2Vec2Config(**small, **conv, num_labels=4))
    rows = datasets.Dataset.from_dict({"label": [0, 1, 4, -1, None, 3, -100]})
    tally = tally_labels(rows, "label", rules_of(model))
    assert tally is not None
    assert tally.counts == {"outside": 1, "negative": 1, "missing": 1}
    assert {name: row for name, (row, *_) in tally.first.items()} == {"outside": 2, "negative": 3, "missing": 4}
    model.config.problem_type = "multi_label_classification"
    assert rules_of(model).kind == ""


def test_rows_in_another_order_have_their_own_numbers() -> None:
    _, processor = digits("tiny-wav2vec2")
    rules = rules_of(load_model("tiny-wav2vec2", processor), processor)
    rows = datasets.Dataset.from_dict({"labels": [[3], [99], [3, 4], [5], [], [4]]})
    for part, first in ((rows, {"outside": 1, "empty": 4}), (rows.select([5, 4, 1, 4]), {"outside": 2, "empty": 1})):
        tally = tally_labels(part, "labels", rules)
        assert tally is not None and tally.rows == len(part)
        assert {name: row for name, (row, *_) in tally.first.items()} == first
    assert tally_labels(rows.select([0, 2]), "labels", rules).counts == {}  # type: ignore[union-attr]
    listed = tally_labels([{"labels": np.array([3])}, {"labels": np.array([99])}], "labels", rules)
    assert listed is not None and listed.counts == {"outside": 1}


def test_what_is_not_looked_at() -> None:
    """Labels that are made when a row is read, streams, and columns of another kind."""
    rows = datasets.Dataset.from_dict({"labels": [[3], [99]], "text": ["a", "b"]})
    assert label_column(rows, ["labels"]) == "labels"
    assert label_column(rows.with_transform(lambda batch: batch), ["labels"]) is None
    assert label_column(rows.to_iterable_dataset(), ["labels"]) is None
    assert label_column(torch.utils.data.TensorDataset(torch.zeros(2)), ["labels"]) is None
    _, processor = digits("tiny-wav2vec2")
    assert tally_labels(rows, "text", rules_of(load_model("tiny-wav2vec2", processor))) is None
