"""Labels that do not fit the model."""

from __future__ import annotations

from pathlib import Path

from material import ctc, labelled, train
from outcome import Outcome, hearing, situation


@situation
def label_outside_the_vocabulary(folder: Path) -> Outcome:
    """A label id that the CTC head does not have."""
    rows, processor = labelled()
    outside = len(processor.tokenizer)
    rows = rows.map(lambda row, i: {"labels": row["labels"] + [outside] * (i == 5)}, with_indices=True)
    with hearing() as heard:
        train(ctc(processor), rows, processor, folder, attach={"bad_clips": "skip"})
    return heard.named("label", str(outside), "5")


@situation
def blank_is_another_than_the_tokenizers_pad(folder: Path) -> Outcome:
    """The model's pad_token_id is not the tokenizer's."""
    rows, processor = labelled()
    with hearing() as heard:
        train(ctc(processor, pad_token_id=5), rows, processor, folder)
    return heard.named("pad_token_id", "5", "0")
