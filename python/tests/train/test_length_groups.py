"""Clips grouped by measured lengths, where the Trainer's dataset has no column of them."""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import Trainer, TrainingArguments

from asrconfig_go import ASRConfigManager
from asrconfig_go.errors import InvalidArgumentError
from speech_models import wav2vec2
from training_fixtures import make_plan

SECONDS = [0.03 + 0.01 * (7 * i % 23) for i in range(48)]
IS_NEW = "train_sampling_strategy" in TrainingArguments.__dataclass_fields__
GROUPED: dict[str, Any] = {"train_sampling_strategy": "group_by_length"} if IS_NEW else {"group_by_length": True}


class Rows:
    """Makes the input of rows that have their number alone, and notes which were made."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        self.made += rows["id"]
        return {"input_values": [[0.1] * int(16_000 * SECONDS[i]) for i in rows["id"]], "id": rows["id"]}


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    waves = [torch.tensor(row["input_values"]) for row in rows]
    return {
        "input_values": torch.nn.utils.rnn.pad_sequence(waves, batch_first=True),
        "labels": torch.tensor([[1, 2, 3]] * len(rows)),
    }


def clips(lengths: bool = False, count: int = 48) -> tuple[Any, Rows]:
    column = {"length": [round(16_000 * s) for s in SECONDS[:count]]} if lengths else {}
    rows = Rows()
    return datasets.Dataset.from_dict({"id": list(range(count)), **column}).with_transform(rows), rows


def made(tmp_path: Path, data: Any, durations: list[float], **settings: Any) -> tuple[Any, ASRConfigManager]:
    torch.manual_seed(0)
    manager = ASRConfigManager()
    manager.config = make_plan(
        micro_batching="fixed", length_handling="grouped", group_by_length=True, target_batch_size=8,
        per_device_train_batch_size=4, gradient_accumulation_steps=2,
    )  # fmt: skip
    manager.durations = array("d", durations)
    args = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=1, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no", logging_strategy="no", per_device_eval_batch_size=4,
        **{"remove_unused_columns": False, **GROUPED, **settings},
    )  # fmt: skip
    return Trainer(wav2vec2("mean"), args, train_dataset=data, data_collator=collate), manager


def test_groups_are_those_of_a_column_of_lengths_and_no_row_is_made_for_them(tmp_path: Path) -> None:
    orders = []
    for lengths in (True, False):
        data, rows = clips(lengths)
        trainer, manager = made(tmp_path, data, SECONDS)
        manager.train(trainer, verbose=False)
        assert sorted(rows.made) == list(range(48)), "each once, in training"
        orders.append(rows.made)
    assert orders[0] == orders[1]
    steps = [[SECONDS[i] for i in orders[1][at + 1 : at + 8]] for at in range(0, 48, 8)]
    assert all(step == sorted(step, reverse=True) for step in steps), "behind the first one, which may be another's"


def test_lengths_are_those_that_the_trainer_reads_from_a_column(tmp_path: Path) -> None:
    plain = clips(lengths=True)[0].with_format(None)
    trainer, manager = made(tmp_path, plain, SECONDS)
    own = trainer._get_train_sampler(*([plain] if IS_NEW else []))
    trainer, manager = made(tmp_path, clips()[0], SECONDS)
    manager.attach(trainer)
    ours = trainer._get_train_sampler(*([trainer.train_dataset] if IS_NEW else []))
    assert type(ours) is type(own)
    assert (list(ours.lengths), ours.batch_size) == (list(own.lengths), own.batch_size)


def test_the_guard_alone_is_enough_and_everything_is_put_back(tmp_path: Path) -> None:
    data, rows = clips()
    trainer, manager = made(tmp_path, data, SECONDS)
    before = set(vars(trainer))
    guard = manager.attach(trainer)
    trainer.train()
    assert len(rows.made) == 48
    guard.detach()
    assert not {name for name in set(vars(trainer)) - before if "sampler" in name or "asrconfig" in name}
    assert trainer.train_dataset is data
    manager.train(trainer, verbose=False)
    assert not {name for name in set(vars(trainer)) - before if "sampler" in name or "asrconfig" in name}


@pytest.mark.parametrize(
    ("durations", "words"), [([], "were not measured"), (SECONDS[:9], "of 9 rows, not of these 48")]
)
def test_unknown_lengths_are_named_with_what_to_do(tmp_path: Path, durations: list[float], words: str) -> None:
    trainer, manager = made(tmp_path, clips()[0], durations)
    with pytest.raises(InvalidArgumentError, match=f"has no column 'length', and .*{words}") as caught:
        manager.train(trainer, verbose=False)
    assert "add_durations(dataset, 'length')" in str(caught.value.hint)
    trainer, manager = made(tmp_path, clips(lengths=True)[0], durations)
    manager.train(trainer, verbose=False)
    trainer, manager = made(tmp_path, clips()[0], durations, **dict.fromkeys(GROUPED, "random" if IS_NEW else False))
    manager.train(trainer, verbose=False)


def test_clips_without_a_length_are_the_shortest(tmp_path: Path) -> None:
    trainer, manager = made(tmp_path, clips()[0], [math.nan, *SECONDS[1:]])
    manager.attach(trainer)
    assert trainer._get_train_sampler(*([trainer.train_dataset] if IS_NEW else [])).lengths[:2] == [0, 1_600]


def test_a_column_that_the_trainer_takes_away_is_used(tmp_path: Path) -> None:
    data = datasets.Dataset.from_dict({
        "input_values": [[0.1] * 4000] * 16, "labels": [[1, 2]] * 16, "length": list(range(16, 0, -1))
    })  # fmt: skip
    trainer, manager = made(tmp_path, data, [], remove_unused_columns=True)
    manager.attach(trainer)
    assert next(iter(trainer.get_train_dataloader()))["input_values"].shape == (4, 4000)
    manager.train(trainer, verbose=False)


def test_evaluation_without_lengths_comes_in_the_datasets_order(tmp_path: Path) -> None:
    (evaluation, rows), (lengthy, sorted_rows) = clips(count=16), clips(True, count=16)
    trainer, manager = made(tmp_path, clips()[0], SECONDS)
    manager.attach(trainer)
    trainer.evaluate(evaluation)
    assert rows.made == list(range(16))
    trainer.evaluate(lengthy)
    assert sorted(sorted_rows.made) == list(range(16)) != sorted_rows.made
    assert GROUPED.items() <= vars(trainer.args).items()


@pytest.mark.skipif(not IS_NEW, reason="this transformers does not balance batches by length")
def test_batches_balanced_by_length_take_the_durations_too(tmp_path: Path) -> None:
    pytest.importorskip("transformers.trainer_pt_utils").__dict__.get("BatchRebalanceSampler") or pytest.skip(
        "nor this"
    )
    data, rows = clips()
    trainer, manager = made(tmp_path, data, SECONDS, train_sampling_strategy="batch_rebalance")
    manager.attach(trainer)
    assert trainer._get_train_sampler(data).lengths[:2] == [round(16_000 * s) for s in SECONDS[:2]]
    assert not rows.made
