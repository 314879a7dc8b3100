"""The largest micro-batch: what is found, and that nothing is changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Trainer, TrainingArguments

import asrconfig_go as ac
from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError, UnsupportedError
from asrconfig_go.guard import attach
from asrconfig_go.predict import MemoryModel, batch_size_search
from asrconfig_go.predict.probe import on_gpu
from speech_models import MODELS, Clips
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer
from traces import Noisy, batches, same, snapshot, used

MAYBE = "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"


@pytest.mark.parametrize(("limit", "start"), [(13, None), (13, 13), (13, 40), (1, None), (64, 7)])
def test_the_largest_that_fits_is_found(limit: int, start: int | None) -> None:
    model = used(Noisy(limit))
    before = snapshot(model)
    search = ac.find_max_batch_size(model, batches, start=start, high=64)
    assert search.micro_batch == limit
    assert {p.batch: p.fits for p in search.probes} == {n: n <= limit for n in model.tried}
    assert all(p.peak_reserved is None and p.seconds >= 0 for p in search.probes)
    assert search.start == (start or 1)
    assert same(before, snapshot(model))
    assert f"largest micro-batch {limit}" in repr(search)
    assert "optimizer states" in search._repr_html_()


def test_a_right_guess_takes_two_trials() -> None:
    assert [p.batch for p in ac.find_max_batch_size(Noisy(24), batches, start=24).probes] == [24, 25]


def test_nothing_fits() -> None:
    search = ac.find_max_batch_size(Noisy(3), batches, low=4, high=9)
    assert search.micro_batch == 0
    assert repr(search).startswith("not even a micro-batch of 4 fits: 1 trial from 4")


def test_accumulated_gradients_are_there_in_a_trial() -> None:
    model = Noisy(2)
    ac.find_max_batch_size(model, batches, accumulation=8, optimizer="sgd", low=2)
    assert model.tried == [2, 2, 3]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("shapes differ")])
def test_what_is_no_want_of_memory_passes_unchanged(error: BaseException) -> None:
    model = used(Noisy(4, error))
    before = snapshot(model)
    with pytest.raises(type(error)) as caught:
        ac.find_max_batch_size(model, batches)
    assert caught.value is error
    assert same(before, snapshot(model))


def test_what_may_be_want_of_memory_is_tried_again() -> None:
    assert ac.find_max_batch_size(Noisy(5, RuntimeError(MAYBE)), batches).micro_batch == 5
    error = RuntimeError(MAYBE)
    model = Noisy(0, error)
    with pytest.raises(RuntimeError) as caught:
        ac.find_max_batch_size(model, batches)
    assert caught.value is error, "not even one sample: something else is wrong"
    assert model.tried == [1, 1]


def test_a_failed_trial_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []

    class Kept:
        def __init__(self) -> None:
            alive.append(1)

        def __del__(self) -> None:
            alive.pop()

    class Holding(Noisy):
        def forward(self, x: Any) -> dict[str, Any]:
            activation = Kept()
            return {**super().forward(x), "held": activation}

    free, living = batch_size_search.free_memory, []  # type: ignore[attr-defined]
    monkeypatch.setattr(batch_size_search, "free_memory", lambda: (living.append(len(alive)), free()))  # type: ignore[func-returns-value]
    ac.find_max_batch_size(Holding(3), batches, high=8)
    assert living == [0] * len(living)


class Straight:
    """A device whose memory grows by a straight line; the model takes ``each`` bytes a sample."""

    def __init__(self, model: Noisy) -> None:
        self.model = model

    def limit(self) -> int:
        return 1000 + 10 * self.model.limit + 5

    def begin(self) -> None:
        pass

    def end(self) -> tuple[int, int]:
        return 1000 + 10 * self.model.tried[-1], 1000


def test_measurements_lead_to_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Noisy(77)
    monkeypatch.setattr(batch_size_search, "Meter", lambda device: Straight(model))
    search = ac.find_max_batch_size(model, batches, start=100)
    assert [(p.batch, p.peak_reserved) for p in search.probes] == [(100, None), (50, 1500), (77, 1770), (78, None)]


def test_made_up_clips_for_a_known_model_and_a_memory_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["ctc mean"]()
    shapes: list[Any] = []
    model.register_forward_pre_hook(lambda *args: shapes.append(args[2]["input_values"].shape), with_kwargs=True)
    before = snapshot(model)
    with MemoryModel.trace(model, precision="fp32", gpu="T4", cache=False, progress=False) as traced:
        guess = traced.largest_batch(2.0, 200 << 20)
        monkeypatch.setattr(traced, "largest_batch", lambda seconds, limit: guess)
        shapes.clear()
        search = ac.find_max_batch_size(model, seconds=2.0, start=traced, high=guess)
    assert guess > 1
    assert (search.start, search.micro_batch, search.seconds) == (guess, guess, 2.0)
    assert [tuple(s) for s in shapes] == [(guess, 32000)]
    assert "which the memory model predicts" in repr(search)
    assert "the largest size allowed" in repr(search)
    assert same(before, snapshot(model))


def test_without_a_guess_a_gpu_s_search_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["ctc mean"]()

    class Some(Straight):
        def limit(self) -> int:
            return 60 << 20

        def end(self) -> Any:
            return None

    monkeypatch.setattr(batch_size_search, "Meter", lambda device: Some(Noisy()))
    before = snapshot(model)
    search = ac.find_max_batch_size(model, seconds=1.0, high=8)
    assert search.start_source == "which its trace predicts"
    assert search.start > 1
    assert same(before, snapshot(model))

    def fails(*args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("no rule for aten.odd")

    monkeypatch.setattr(MemoryModel, "trace", fails)
    search = ac.find_max_batch_size(model, seconds=1.0, high=2)
    assert search.start == 1
    assert search.start_source == "the lowest, as the model cannot be traced (no rule for aten.odd)"


# With a trainer


class Small(Regression):
    """Has memory for four points, in training."""

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        if len(x) > 4:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
        return super().forward(x, labels, index)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_trainer_runs_its_own_step(tmp_path: Path, guarded: bool) -> None:
    def weights_after(searched: bool) -> Any:
        torch.manual_seed(0)
        model = Small()
        trainer = tiny_trainer(tmp_path, model=model, optim="adamw_torch", gradient_accumulation_steps=2)
        if guarded:
            attach(trainer)
        if searched:
            before, own = snapshot(model), dict(vars(trainer))
            search = ac.find_max_batch_size(trainer, high=64)
            assert search.micro_batch == 4
            assert search.optimizer_bytes > 0
            assert search.inputs == "the first clips"
            assert {len(s) for s in model.seen} == {1, 2, 4}
            assert same(before, snapshot(model))
            assert vars(trainer) == own
        trainer.train()
        return model.state_dict()

    assert same(weights_after(True), weights_after(False))


def test_a_trainer_s_recomputation_is_on_in_trials_and_off_behind(tmp_path: Path) -> None:
    model = MODELS["whisper"]()
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", gradient_checkpointing=True)
    trainer = Trainer(model, arguments, train_dataset=Clips("whisper"))
    states: list[bool] = []
    model.register_forward_pre_hook(lambda *_: states.append(model.model.encoder.gradient_checkpointing))
    before = snapshot(model)
    search = ac.find_max_batch_size(trainer, high=3, start=3)
    assert (search.micro_batch, search.seconds) == (3, 0.32)
    assert states == [True]
    assert not model.model.encoder.gradient_checkpointing
    assert same(before, snapshot(model))


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 9, "high": 8}, "low = 9 is above high = 8"),
        ({"low": 0}, "low = 0"),
        ({"start": 1.5}, "start = 1.5"),
        ({"seconds": float("nan")}, "seconds"),
        ({"precision": "fp8"}, "precision"),
        ({"accumulation": 0}, "accumulation"),
        ({"optimizer": "magic"}, "magic"),
        ({"batch_fn": 3}, "batch_fn is an int"),
        ({"batch_fn": None}, "pass batch_fn"),
    ],
)
def test_bad_input_is_one_clear_error(options: dict[str, Any], message: str) -> None:
    model = Noisy()
    before = snapshot(model)
    with pytest.raises(InvalidArgumentError, match=message):
        ac.find_max_batch_size(model, **{"batch_fn": batches, **options})
    assert same(before, snapshot(model))


def test_models_that_cannot_be_tried(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot search with a str"):
        ac.find_max_batch_size("wav2vec2")
    with pytest.raises(InvalidArgumentError, match="no trainable parameters"):
        ac.find_max_batch_size(Noisy().requires_grad_(False), batches)
    for output in ({"logits": torch.zeros(1)}, (), {"loss": torch.zeros(())}):
        model = Noisy()
        model.register_forward_hook(lambda *_, output=output: output)
        with pytest.raises(InvalidArgumentError, match="no loss with gradients"):
            ac.find_max_batch_size(model, batches)
    with pytest.raises(InvalidArgumentError, match="pass seconds="):
        ac.find_max_batch_size(MODELS["ctc mean"]())
    with pytest.raises(InvalidArgumentError, match="its own precision"):
        ac.find_max_batch_size(tiny_trainer(tmp_path), precision="fp32")
    with pytest.raises(InvalidArgumentError, match="optimizer = 'sgd' is not an optimizer"):
        ac.find_max_batch_size(tiny_trainer(tmp_path), optimizer="sgd")


# A model on the CPU beside a GPU: tests/cuda moves one


def test_what_cannot_be_moved_to_the_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Noisy(4)
    stepped = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    model(**batches(2))["loss"].backward()
    stepped.step()
    with on_gpu(model, None, movable=True) as text:
        assert text == "", "there is no GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for optimizer, movable in ((None, False), (stepped, True)):
        with on_gpu(model, optimizer, movable=movable) as text:
            assert "on the CPU, beside a GPU: sizes are those of host memory" in text


def test_weights_that_do_not_fit_on_the_gpu_are_named_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Noisy(4)
    before = [(p, p.data_ptr()) for p in model.parameters()]

    def full(device: Any) -> None:
        next(model.parameters()).data = torch.zeros(1)  # moved before memory ran out
        raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(model, "to", full)
    with (
        pytest.raises(InfeasiblePlanError, match="weights of Noisy do not fit on cuda:0"),
        on_gpu(model, None, movable=True),
    ):
        pass
    assert [(p, p.data_ptr()) for p in model.parameters()] == before


def test_progress_shows_what_is_tried_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[int, str]] = []

    class Bar:
        def __init__(self, what: str, unit: str, total: int | None, shown: bool, note: Any) -> None:
            self.is_shown, self.note = shown, note

        def __enter__(self) -> Any:
            return lambda done, total: notes.append((done, self.note())) if self.is_shown else None

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(batch_size_search, "ProgressBar", Bar)
    ac.find_max_batch_size(Noisy(2), batches, start=2)
    assert notes[0] == (0, "2 now")
    assert notes[-1] == (2, "3 now; 2 fits, 3 does not")
    count = len(notes)
    ac.find_max_batch_size(Noisy(2), batches, start=2, progress=False)
    assert len(notes) == count
