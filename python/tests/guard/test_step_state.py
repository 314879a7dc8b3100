"""What a step changes besides weights: buffers, counts, batches in place; and trainings in which nothing fails."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError
from asrconfig_go.guard import attach
from tiny_training import OUT_OF_MEMORY, Regression, notes_of, running_short, tiny_trainer


class Counting(Regression):
    """Warms its loss up by a buffer, and by a number of Python; a layer has spectral normalisation."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.utils.parametrizations.spectral_norm(self.first)

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        output = super().forward(x, labels, index)
        if self.training:
            self.calls += 1
            output["loss"] = output["loss"] * (1 + 0.5 * self.batches) * (1 + 0.3 * self.calls)
        return output


class Averaging(Regression):
    """Keeps a moving average of what it sees, and uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        if self.training:
            self.mean.data.mul_(0.9).add_(0.1 * x.mean(0))
        return super().forward(x - self.mean, labels, index)


class Normalised(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        return super().forward(self.norm(x), labels, index)


class Capturing(Regression):
    """Installs a hook in its first forward pass and notes that it has, as transformers' models do for outputs."""

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        collected: list[Any] = []
        self.collect = collected.append
        if not getattr(self, "_capturing_hooks_installed", False):
            self.first.register_forward_hook(lambda _, __, output: self.collect(output))
            self._capturing_hooks_installed = True
        result = super().forward(x, labels, index)
        result["loss"] = result["loss"] + torch.stack([output.square().mean() for output in collected]).sum()
        return result


class Augmenting(Trainer):  # type: ignore[misc]
    """Changes the batch that it is given, and counts how often."""

    made = 0

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if model.training:
            self.made += 1
        inputs["x"].mul_(0.5 + 0.1 * self.made)
        return super().compute_loss(model, inputs, *args, **kwargs)


def run(output: Path, model: Any, *, failures: int = 0, after: int = 0, guarded: bool = True, **options: Any) -> Any:
    torch.manual_seed(0)
    own: dict[str, Any] = {"model": model()} if isinstance(model, type) else {"model_init": model}
    own |= {"samples": 32, "per_device_train_batch_size": 8, **options.pop("settings", {})}
    trainer = tiny_trainer(output, trainer_class=options.pop("kind", Trainer), **own)
    fail = running_short(failures, 2, after)

    class Arm(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
            model.fail = fail

    trainer.add_callback(Arm())
    trainer.guard = attach(trainer, **options) if guarded else None
    trainer.train()
    return trainer


def state(trainer: Any) -> dict[str, Any]:
    return {**dict(trainer.model.named_parameters()), **dict(trainer.model.named_buffers())}


def assert_same(got: Any, wanted: Any, exactly: bool = False) -> None:
    for name, value in state(wanted).items():
        mine = state(got)[name]
        assert torch.equal(mine, value) if exactly else torch.allclose(mine, value, atol=1e-5), name


GIVEN: dict[str, Any] = {"micro_batch": 3, "rule": "mean"}
ONCE_MORE = ("training", 8, 8)


def events(trainer: Any) -> list[tuple[str, int, int]]:
    return [(e.place, e.micro_batch_before, e.micro_batch_after) for e in trainer.guard.events]


@pytest.mark.parametrize("options", [{"failures": 3}, GIVEN])
def test_counts_and_power_iterations_are_those_of_whole_batches(tmp_path: Path, options: Any) -> None:
    wanted = run(tmp_path, Counting, guarded=False)
    got = run(tmp_path, Counting, **options)
    assert_same(got, wanted)
    assert (got.model.calls, int(got.model.batches)) == (wanted.model.calls, int(wanted.model.batches)) == (4, 4)
    assert events(got) == ([("training", 8, 4), ("training", 4, 2)] if options is not GIVEN else [])


def test_hooks_that_a_failed_step_has_installed_are_not_installed_once_more(tmp_path: Path) -> None:
    assert_same(run(tmp_path, Capturing, failures=1), run(tmp_path, Capturing, guarded=False))


def test_batches_whose_samples_a_model_looks_at_together_are_not_cut(tmp_path: Path) -> None:
    got = run(tmp_path, Normalised, failures=1)
    assert_same(got, run(tmp_path, Normalised, guarded=False), exactly=True)
    assert events(got) == [ONCE_MORE]
    with pytest.raises(InfeasiblePlanError, match="its batch cannot be split: norm of the model"):
        run(tmp_path, Normalised, failures=2)
    with pytest.raises(InvalidArgumentError, match=r"micro_batch = 3 would not[\s\S]*split_batch_statistics=True"):
        run(tmp_path, Normalised, **GIVEN)
    cut = run(tmp_path, Normalised, micro_batch=4, rule="mean", split_batch_statistics=True)
    assert {len(batch) for batch in cut.model.seen} == {4}
    whole = run(tmp_path, Normalised, rule="mean", overhead_s=1.0)
    (note,) = whole.guard.notes
    assert "batches are not split, as that would change the result: norm of the model normalise over the clips" in note
    assert "split_batch_statistics=True" in note and "note: batches are not split" in repr(whole.guard)
    assert {len(batch) for batch in whole.model.seen} == {8}


def test_an_average_of_batches_that_a_model_keeps_is_found_out_before_it_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is written behind the version counter, so that nothing but its value shows it."""
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        run(tmp_path, Averaging, failures=1)
    message = "Averaging.mean depends on which clips a batch holds, and is carried from one to the next"
    assert message in notes_of(caught.value, caplog.text)
    cut = run(tmp_path, Averaging, micro_batch=4, rule="mean", split_batch_statistics=True)
    assert {len(batch) for batch in cut.model.seen} == {4}


@pytest.mark.parametrize(("failures", "options"), [(1, {"rule": "mean"}), (0, GIVEN)])
def test_state_that_follows_micro_batches_is_named_where_the_rule_is_given(
    tmp_path: Path, failures: int, options: dict[str, Any]
) -> None:
    guard = run(tmp_path, Averaging, failures=failures, **options).guard
    named = [*guard.notes, *map(str, guard.events)]
    assert any("Averaging.mean" in text for text in named), named


@pytest.mark.parametrize("after", [0, 2])
def test_statistics_of_a_model_that_is_made_for_the_training_are_put_back(tmp_path: Path, after: int) -> None:
    def make() -> Any:
        torch.manual_seed(0)
        return Normalised()

    got, wanted = run(tmp_path, make, failures=1, after=after), run(tmp_path, make, guarded=False)
    assert_same(got, wanted, exactly=True)
    assert int(got.model.norm.num_batches_tracked) == 4
    assert events(got) == [ONCE_MORE]
    assert got.guard.events[0].not_restored == ()


def test_statistics_of_a_normalisation_that_runs_out_of_memory_itself_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has counted the batch by then, and not written to its statistics."""
    real, calls = torch.nn.functional.batch_norm, list[int]()

    def batch_norm(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 3:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
        return real(*args, **kwargs)

    wanted = run(tmp_path, Normalised, guarded=False)
    monkeypatch.setattr(torch.nn.functional, "batch_norm", batch_norm)
    got = run(tmp_path, Normalised)
    assert events(got) == [ONCE_MORE]
    assert_same(got, wanted, exactly=True)


def test_a_window_that_is_computed_without_a_bad_clip_leaves_later_ones_alone(tmp_path: Path) -> None:
    row = run(tmp_path, Counting).model.seen[0][0]

    class Spoiling(Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            self.train_dataset.x[row] = float("nan")
            return super().get_train_dataloader()

    options: Any = {"kind": Spoiling, "rule": "mean", "bad_clips": "skip"}
    wanted = run(tmp_path, Counting, **options)
    got = run(tmp_path, Counting, failures=1, after=3, **options)
    assert events(got) == [("training", 8, 4)]
    assert got.guard.bad_clips == wanted.guard.bad_clips == 1
    assert_same(got, wanted)


@pytest.mark.parametrize("options", [{}, GIVEN])
def test_batches_that_are_changed_in_place_are_changed_once(tmp_path: Path, options: Any) -> None:
    wanted = run(tmp_path, Regression, kind=Augmenting, guarded=False)
    got = run(tmp_path, Regression, kind=Augmenting, **options)
    assert_same(got, wanted, exactly=not options)
    assert got.made == wanted.made == 4


def test_batches_that_a_failed_step_has_changed_in_place_are_not_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options: Any
    for options in ({}, {"rule": "mean"}):
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            run(tmp_path, Regression, kind=Augmenting, failures=1, **options)
        assert "the step of Augmenting with Regression has changed its batch in place" in notes_of(
            caught.value, caplog.text
        )


class Holding(Regression):
    """Counts at each of its training steps how many earlier batches that are no views are still in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Any] = []
        self.held: list[int] = []

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        if self.training and torch.is_grad_enabled():
            self.held.append(sum(reference() is not None for reference in self.given))
            self.given += [weakref.ref(x)] if x._base is None else []
        return super().forward(x, labels, index)


@pytest.mark.parametrize("options", [{"failures": 3}, GIVEN])
def test_copies_of_batches_are_not_held_longer_than_their_step(tmp_path: Path, options: Any) -> None:
    """Of the first window, whose steps may change them in place; on a GPU they would take the retry's memory."""
    model = run(tmp_path, Holding, **options).model
    assert len(model.held) > 4
    assert set(model.held) == {0}


class Shuffled(torch.utils.data.Sampler):  # type: ignore[misc]
    """Draws its order from the global generator, as samplers by length do."""

    def __iter__(self) -> Any:
        return iter(torch.randperm(32).tolist())

    def __len__(self) -> int:
        return 32


class Shuffling(Trainer):  # type: ignore[misc]
    def _get_train_sampler(self, *args: Any) -> Any:
        return Shuffled()


class Drawing(Regression):
    def __init__(self) -> None:
        super().__init__(dropout=0.4)


@pytest.mark.parametrize("kind", [Trainer, Shuffling])
def test_a_training_in_which_nothing_fails_is_that_of_the_bare_trainer(tmp_path: Path, kind: Any) -> None:
    """Dropout's masks and the orders of three epochs included, bit by bit."""
    runs = [
        run(tmp_path, Drawing, kind=kind, guarded=guarded, settings={"num_train_epochs": 3})
        for guarded in (True, False)
    ]
    assert runs[0].model.seen == runs[1].model.seen
    assert_same(runs[0], runs[1], exactly=True)
    assert runs[0].model.seen[:4] != runs[0].model.seen[4:8]


class Layered(Regression):
    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        factor = float(torch.rand(())) if self.training else 1.0  # as layer drop draws, whatever the batch's size
        output = super().forward(x, labels, index)
        return output if factor > 0 else {}


@pytest.mark.parametrize(("model", "kind"), [(Layered, Shuffling), (Drawing, Trainer)])
def test_orders_after_an_error_are_those_of_a_run_without_one(tmp_path: Path, model: Any, kind: Any) -> None:
    """Though they are drawn from the generator that the model draws from, in every micro-batch of a cut step."""

    def orders(**options: Any) -> Any:
        trainer = run(tmp_path, model, kind=kind, settings={"num_train_epochs": 3}, **options)
        indices = [i for batch in trainer.model.seen for i in batch]
        return indices[-64:], trainer

    calm, wanted = orders(guarded=False)
    cut, got = orders(failures=3)
    assert events(got) == [("training", 8, 4), ("training", 4, 2)]
    assert cut == calm and calm[:32] != calm[32:]
    if model is Layered:
        assert_same(got, wanted)


class Numbered(torch.optim.SGD):  # type: ignore[misc]
    """Counts steps in numbers of Python, as Adafactor of transformers does, before it allocates anything."""

    fail_at = -1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[int] = []

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            for p in group["params"]:
                self.state[p]["step"] = self.state[p].get("step", 0) + 1
        self.asked.append(1)
        if len(self.asked) == self.fail_at:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad * (group["lr"] / (group["k"] * self.state[p]["step"]) ** 0.5))


@pytest.mark.parametrize("at", [1, 3])
def test_numbers_in_an_optimizer_s_state_are_put_back(tmp_path: Path, at: int) -> None:
    ends = []
    for fail_at in (-1, at):
        torch.manual_seed(0)
        model = Regression()
        optimizer = Numbered(model.parameters(), 0.1)
        optimizer.fail_at = fail_at
        trainer = tiny_trainer(tmp_path, model=model, optimizers=(optimizer, None))
        guard = attach(trainer)
        trainer.train()
        ends.append((trainer, [group["k"] for group in optimizer.param_groups], guard.events))
    assert_same(ends[1][0], ends[0][0], exactly=True)
    assert (ends[0][1], ends[1][1]) == ([4], [4])
    assert len(ends[1][2]) == 1
