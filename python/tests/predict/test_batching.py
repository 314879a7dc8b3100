"""Steps by length, and what they cost, without a Trainer."""

from __future__ import annotations

import math
import random
import warnings
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from asrconfig_go._core.declared import OVERHEAD_S
from asrconfig_go.errors import EmptyDatasetError, InfeasiblePlanError, InvalidArgumentError
from asrconfig_go.predict import BatchingWarning, StepSampler, compare_batching, cost_of_longest, split_by_memory
from asrconfig_go.predict.length_table import GRID_S, fits_in, memory_table
from asrconfig_go.predict.memory_settings import Shape
from asrconfig_go.predict.opened_trace import OpenedTrace
from asrconfig_go.predict.step_sampler import cheapest

TABLE = [(s / 2, int(60 / (s / 2))) for s in range(1, 61)]


def clips(count: int, seed: int = 1) -> list[float]:
    source = random.Random(seed)
    return [min(30.0, source.lognormvariate(1.8, 0.6)) for _ in range(count)]


class Fake(OpenedTrace):
    """A memory model in which a micro-batch may hold 60 seconds."""

    def __init__(self) -> None:
        self.length_per_second = 16_000

    def largest_batches(self, longest: Sequence[Shape], limit_bytes: int | None = None, **_: Any) -> list[int]:
        return [min(32, int((limit_bytes or 60) / shape.seconds)) for shape in longest]


@pytest.mark.parametrize("mode", ["random", "bucketed", "stratified"])
@pytest.mark.parametrize(("count", "ranks"), [(2000, 1), (2003, 2), (2001, 4)])
def test_every_clip_comes_once_over_all_processes(mode: str, count: int, ranks: int) -> None:
    durations = clips(count)
    sampler = StepSampler(durations, 32, mode=mode, memory=TABLE, seed=5)  # type: ignore[arg-type]
    parts = [sampler.shard(rank, ranks) for rank in range(ranks)]
    for epoch in (0, 3):
        for part in parts:
            part.set_epoch(epoch)
        shares = [list(part) for part in parts]
        assert {len(share) for share in shares} == {len(part) for part in parts} == {math.ceil(count / 32)}
        steps = [[i for share in shares for i in share[k]] for k in range(len(sampler))]
        assert sorted(i for step in steps for i in step) == list(range(count))
        assert {len(step) for step in steps[: count // 32 - 1]} == {32}
        assert all(share for share in shares[0]), "every process has a clip in every step"
        for share in shares:
            assert share == [sorted(batch, key=lambda i: -durations[i]) for batch in share]
    again = StepSampler(array("d", durations), 32, mode=mode, memory=TABLE, seed=5).shard(0, ranks)  # type: ignore[arg-type]
    again.set_epoch(3)
    assert list(again) == shares[0]
    again.set_epoch(2)
    assert list(again) != shares[0]


def test_the_last_clips_are_left_out_when_asked() -> None:
    sampler = StepSampler(clips(100), 32, drop_last=True)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert [len(step) for step in sampler] == [32, 32, 32]
        epochs.append({i for step in sampler for i in step})
    assert len(sampler) == 3
    assert epochs[0] != epochs[1], "others in each epoch"


def test_fewer_clips_than_processes_share_one_more_step() -> None:
    parts = [StepSampler(clips(65), 32).shard(rank, 4) for rank in range(4)]
    assert [[len(batch) for batch in part] for part in parts] == [[8, 5, 4], [8, 4, 4], [8, 4, 4], [8, 4, 4]]


def test_little_data_is_told_to_stay_random() -> None:
    with pytest.warns(BatchingWarning, match="an epoch has only 9 steps of 32 clips"):
        sampler = StepSampler(clips(300), 32, mode="bucketed")
    assert len(sampler.buckets) <= 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert StepSampler(clips(300), 32).notes == ()
        sampler = StepSampler(clips(3000), 32, mode="bucketed")
    assert min(bucket.clips for bucket in sampler.buckets) >= 4 * 32
    assert [b.up_to_s for b in sampler.buckets] == sorted(b.up_to_s for b in sampler.buckets)
    assert sum(b.clips for b in sampler.buckets) == 3000
    assert repr(sampler.shard(1, 2)) == "StepSampler(3000 clips, 94 bucketed steps of 32, rank 1 of 2, seed 0)"


def test_a_memory_model_becomes_a_table() -> None:
    fake = Fake()
    table = memory_table(fake, 28.2)
    assert table[-1] == (28.5, 2)
    expected = {step * GRID_S: min(32, int(60 / (step * GRID_S))) for step in range(1, 58)}
    assert len({size for _, size in table}) == len(table) < len(expected), "each size has one row"
    filled = {s: next(batch for up_to, batch in table if up_to >= s) for s in expected}
    assert filled == expected
    assert memory_table(fake, 2.0, 10)[-1] == (2.0, 5)
    durations = clips(500)
    assert list(StepSampler(durations, 32, mode="random", memory=fake)) == list(StepSampler(durations, 32))
    with pytest.raises(InvalidArgumentError):
        memory_table(fake, 0)


def test_comparison() -> None:
    report = compare_batching(clips(20_000), 64, TABLE, ranks=2)
    plain, even = report.strategies[0], report.find("stratified", "optimal")
    assert (plain.order, plain.split, plain.micro_batch, plain.speed) == ("random", "fixed", 2, 1.0)
    assert even.padding < 0.05 < 0.2 < plain.padding
    assert even.use > plain.use
    assert even.speed == pytest.approx(plain.slowest_s / even.slowest_s)
    assert not any(s.over_memory for s in report.strategies)
    assert {s.steps for s in report.strategies} == {math.ceil(20_000 / 64)}
    assert f"stratified optimal  {even.micro_batches:>13}" in repr(report)
    with pytest.raises(InvalidArgumentError, match="no strategy sorted optimal"):
        report.find("sorted", "optimal")
    assert "! an epoch has only 3 steps" in repr(compare_batching(clips(100), 32, TABLE))


@pytest.mark.parametrize("host_s", [0.0, 60.0])
def test_the_figures_are_those_of_the_sampler(host_s: float) -> None:
    """Counted from the sampler's own batches, cut by the library and as the guard cuts."""
    durations = clips(5000)
    for mode in ("random", "bucketed", "stratified"):
        figures = compare_batching(durations, 32, TABLE, seed=9, host_s=host_s).find(mode, "optimal")
        padded, micro_batches = 0.0, 0
        for step in StepSampler(durations, 32, mode=mode, memory=TABLE, seed=9, host_s=host_s):
            lengths = [durations[i] for i in step]
            cut = list(cheapest(lengths, lambda longest, left: min(left, fits_in(TABLE, longest)), OVERHEAD_S, host_s))
            by_library = split_by_memory(lengths, TABLE, host_s=host_s)
            assert [len(batch) for batch in cut] == [len(batch) for batch in by_library]
            padded += sum(len(batch) * lengths[batch[0]] for batch in cut)
            micro_batches += len(cut)
        assert figures.micro_batches == micro_batches
        assert figures.padded_s == pytest.approx(padded)
        assert figures.padding == pytest.approx(1 - sum(durations) / padded)


def test_the_fewest_micro_batches_have_the_least_padding() -> None:
    lengths = [1, 1, 1, 4, 4, 7]

    def fits(longest: float, remaining: int) -> int:
        return min(remaining, fits_in([(2, 5), (4, 3), (7, 2)], longest))

    assert list(cheapest(lengths, fits)) == [[5], [3, 4], [0, 1, 2]]
    assert list(cheapest([3] * 8, lambda _, left: min(left, 3))) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert list(cheapest(lengths, lambda _, left: left, 0)) == [[5], [3, 4], [0, 1, 2]], "nothing for a micro-batch"
    assert list(cheapest(lengths, lambda _, left: left, 100)) == [[5, 3, 4, 0, 1, 2]]
    assert list(cheapest([8, 8, 4, 4, 2, 2, 2, 2], lambda _, left: left, 0, 16)) == [[0, 1], [2, 3, 4, 5, 6, 7]]
    assert list(cheapest([], fits)) == []


def test_cut_by_memory() -> None:
    assert split_by_memory([1, 7, 4, 1.5], [(2, 4), (4, 2), (8, 1)], overhead_s=1) == [[1], [2], [3, 0]]
    assert split_by_memory([1, 7, 4, 1.5], [(8, 4)], overhead_s=100) == [[1, 2, 3, 0]]
    assert split_by_memory([1, 7, 4, 1.5], [(8, 4)], overhead_s=0, host_s=7) == [[1], [2, 3, 0]]
    with pytest.raises(InfeasiblePlanError, match="1 of 2 clips is too long to fit even alone; it lasts"):
        split_by_memory([1, 9], [(8, 4)])


def test_cost_of_longest() -> None:
    durations = [10.0] * 2000 + [40.0] * 9
    (cost,) = cost_of_longest(durations, 32, [(10, 11), (30, 6), (40, 4)], [30])
    assert (cost.clips, cost.micro_batch, cost.without_them) == (9, 4, 11)
    assert str(cost).startswith("9 clips over 30 s force a micro-batch of 4; without them 11;")
    assert 0 < cost.split_time_share < cost.time_share < 0.2
    assert cost_of_longest(durations, 32, [(10, 11), (40, 0)])[0].micro_batch == 0
    assert cost_of_longest([10.0] * 50, 32, [(10, 11)]) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "sorted"}, "mode = 'sorted'|mode = \"sorted\""),
        ({"seed": -1}, "seed = -1"),
        ({"buckets": 0}, "buckets = 0"),
        ({"buckets": 2.5}, "buckets = 2.5"),
        ({"memory": 7}, "memory = 7 is not a table"),
        ({"memory": [(1, 2, 3)]}, "is not a table"),
        ({"memory": [(2, 1), (1, 1)]}, "memory row 1"),
        ({"overhead_s": -1}, "overhead_s = -1"),
        ({"host_s": -1}, "host_s = -1"),
        ({"durations": ["a"]}, "durations are not numbers"),
        ({"durations": [math.nan]}, "clip 0 lasts NaN s"),
        ({"step_samples": 0}, "step_samples = 0"),
    ],
)
def test_refusals(wrong: dict[str, Any], message: str) -> None:
    arguments = {"durations": clips(100), "step_samples": 32, **wrong}
    with pytest.raises(InvalidArgumentError, match=message):
        StepSampler(**arguments)


def test_refused_shares() -> None:
    sampler = StepSampler(clips(100), 32)
    for rank, ranks, message in ((2, 2, "rank = 2 of 2"), (0, 5, "cannot be shared evenly by 5"), (-1, 2, "rank = -1")):
        with pytest.raises(InvalidArgumentError, match=message):
            sampler.shard(rank, ranks)
    with pytest.raises(InvalidArgumentError, match="cannot be shared by 32 processes"):
        StepSampler(clips(33), 32).shard(0, 32)
    with pytest.raises(InvalidArgumentError, match="epoch = -1"):
        sampler.set_epoch(-1)
    with pytest.raises(EmptyDatasetError):
        StepSampler([], 32)
