"""Which clips a plan trains on and where they are cut; a loader of your own; how many steps there are."""

from __future__ import annotations

import math
import multiprocessing
import random
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import select_clips
from asrconfig_go.errors import EmptyDatasetError, InvalidArgumentError
from asrconfig_go.plan import Selection
from training_fixtures import make_plan

NAN = math.nan


def test_left_out_kept_and_to_be_cut() -> None:
    plan = make_plan(max_length_s=60.0, chunk_length_s=30.0)
    chosen = select_clips([10, 30.0, 31.0, 60.0, 60.01, NAN, 7200.0], plan)
    assert (list(chosen.kept), list(chosen.to_cut)) == ([0, 1, 2, 3], [2, 3])
    assert (list(chosen.too_long), list(chosen.unreadable)) == ([4, 6], [5])
    assert chosen.kept_hours * 3600 == pytest.approx(131)
    assert chosen.too_long_hours * 3600 == pytest.approx(7260.01)
    assert chosen.to_cut_hours * 3600 == pytest.approx(91)
    assert repr(chosen).splitlines() == [
        "4 of 7 clips kept (2.18 min)",
        "2 clips longer than 60 s left out (2.02 h)",
        "1 clip that cannot be read left out",
        "2 clips to be split into pieces of at most 30 s (91 s)",
    ]


def test_every_clip_is_in_one_place() -> None:
    source = random.Random(1)
    for _ in range(50):
        seconds = [source.choice([NAN, source.uniform(0, 100)]) for _ in range(100)] + [0.0]
        plan = make_plan(
            max_length_s=source.choice([None, source.uniform(1, 100)]), chunk_length_s=source.uniform(1, 60)
        )
        chosen = select_clips(seconds, plan)
        assert sorted([*chosen.kept, *chosen.too_long, *chosen.unreadable]) == list(range(101))
        assert set(chosen.to_cut) <= set(chosen.kept)


@pytest.mark.parametrize("durations", [[1.0, None], [1.0, -1.0], [math.inf], ["3"], [True], "345", 7, None])
def test_what_is_no_duration_is_refused(durations: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="durations"):
        select_clips(durations, make_plan())


@pytest.mark.parametrize(
    ("durations", "why"),
    [([], "0: 0 unreadable"), ([NAN], "1: 1 unreadable"), ([31.0, NAN], "2: 1 are over 30 s, 1 unreadable")],
)
def test_nothing_left(durations: list[float], why: str) -> None:
    with pytest.raises(EmptyDatasetError, match=f"no clip is left of {why}") as caught:
        select_clips(durations, make_plan(max_length_s=30.0))
    assert ("max_length_s" in caught.value.hint) is (31.0 in durations), "raised only where that helps"


class Indexed:
    """A torch dataset of numbers."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        return 10 * i


def taken(dataset: Any) -> tuple[Any, Selection]:
    selected: tuple[Any, Selection] = make_plan(max_length_s=30.0).select(dataset, [5.0, 31.0, 29.0, NAN])
    return selected


def test_selecting_from_lists() -> None:
    assert taken(["a", "b", "c", "d"])[0] == ["a", "c"]
    assert taken(("a", "b", "c", "d"))[0] == ("a", "c")
    rows = ["a", "b"]
    dataset, chosen = make_plan(max_length_s=30.0).select(rows, [1.0, 2.0])
    assert dataset is rows
    assert len(chosen.kept) == 2


def test_selecting_from_a_torch_dataset() -> None:
    pytest.importorskip("torch")
    dataset, _ = taken(Indexed())
    assert [dataset[i] for i in range(len(dataset))] == [0, 20]


def test_selecting_from_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": ["a", "b", "c", "d"]})
    assert list(taken(dataset)[0]["text"]) == ["a", "c"]
    with pytest.raises(InvalidArgumentError, match="dictionary of splits"):
        taken(datasets.DatasetDict(train=dataset))
    with pytest.raises(InvalidArgumentError, match="IterableDataset"):
        taken(dataset.to_iterable_dataset())


def test_durations_are_measured_where_none_are_given(make_wav: Any) -> None:
    paths = [make_wav("short.wav", 0.5), make_wav("long.wav", 2.0)]
    dataset, chosen = make_plan(max_length_s=1.0).select(paths)
    assert dataset == paths[:1]
    assert chosen.too_long_hours * 3600 == pytest.approx(2.0)
    with pytest.raises(InvalidArgumentError, match="durations of an Indexed"):
        make_plan().select(Indexed())


def test_a_wrong_number_of_durations() -> None:
    with pytest.raises(InvalidArgumentError, match="2 durations for a dataset of 3 clips"):
        make_plan().select(["a", "b", "c"], [1.0, 2.0])


def test_a_loader_of_one_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    workers = {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 3, "dataloader_persistent_workers": True}
    plan = make_plan(dataloader_pin_memory=True, **workers)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    expected = {"num_workers": 2, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 3}
    assert plan.loader_settings() == expected
    monkeypatch.undo()
    start = multiprocessing.get_all_start_methods()[0]
    for settings in (plan.loader_settings(), plan.loader_settings(start_method=start)):  # type: ignore[arg-type]
        loader = torch.utils.data.DataLoader(Indexed(), batch_size=2, **settings)
        assert [batch.tolist() for batch in loader] == [[0, 10], [20, 30]]
        assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 3, True)
    assert loader.multiprocessing_context.get_start_method() == start
    with pytest.raises(InvalidArgumentError, match="'thread' is not known"):
        plan.loader_settings(start_method="thread")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clips", "batch", "accumulation", "epochs"), [(16, 4, 1, 3), (17, 4, 2, 3), (3, 4, 4, 2), (21, 2, 4, 1.5)]
)
def test_steps_as_the_trainer_counts_them(
    tmp_path: Path, clips: int, batch: int, accumulation: int, epochs: float
) -> None:
    pytest.importorskip("transformers")
    from tiny_training import tiny_trainer

    plan = make_plan(
        per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, num_train_epochs=epochs
    )
    settings = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "num_train_epochs": epochs,
    }
    rounded = tiny_trainer(tmp_path, samples=3, per_device_train_batch_size=1, gradient_accumulation_steps=2)
    rounded.train()
    trainer = tiny_trainer(tmp_path, samples=clips, **settings)
    trainer.train()
    assert trainer.state.global_step == trainer.state.max_steps
    if rounded.state.max_steps == 2:
        assert plan.max_steps(clips) == trainer.state.max_steps
    else:  # this transformers leaves out the rest of an epoch's batches
        assert plan.max_steps(clips) >= trainer.state.max_steps


@pytest.mark.parametrize("clips", [0, -1, 2.5, None])
def test_steps_of_no_clips(clips: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="clips"):
        make_plan().max_steps(clips)
