"""Two real steps against a prediction. The GPU's counters are made up; the training runs on the CPU."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._core import native
from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError, UnsupportedError
from asrconfig_go.predict import calibration
from asrconfig_go.predict.calibration import calibrate
from asrconfig_go.predict.memory_model import MemoryModel
from asrconfig_go.predict.memory_settings import find_calibration
from asrconfig_go.predict.recordings import Recording, open_trace
from memory_fakes import CONTEXT, MIB, FakeLibrary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from tiny_training import Regression, tiny_trainer

MEASURED = 1100 * MIB
FOREIGN = 7 * MIB


class FakeCuda:
    """The counters of ``torch.cuda`` that a calibration reads."""

    OutOfMemoryError = torch.OutOfMemoryError

    def __init__(self) -> None:
        self.resets = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (
            "get_device_name", "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved",
            "reset_peak_memory_stats", "empty_cache", "synchronize",
        ):  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        # The Trainer itself must not believe in the GPU: only calibration.py asks this way.
        monkeypatch.setattr(calibration, "_gpu", lambda model: self.get_device_name())

    def get_device_name(self) -> str:
        return "NVIDIA L4"

    def memory_allocated(self) -> int:
        return FOREIGN

    def memory_reserved(self) -> int:
        return MEASURED

    def max_memory_allocated(self) -> int:
        return 900 * MIB + FOREIGN

    def max_memory_reserved(self) -> int:
        return MEASURED + FOREIGN

    def reset_peak_memory_stats(self) -> None:
        self.resets += 1

    def empty_cache(self) -> None: ...

    def synchronize(self) -> None: ...


@pytest.fixture
def memory_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MemoryModel]:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "call", FakeLibrary({"precision": "fp32"}))
    monkeypatch.setattr(Recording, "make", lambda self, key, progress: open_trace(b""))
    with MemoryModel.trace("xls-r-300m", precision="fp32", gpu="L4") as model:
        yield model


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    fake.install(monkeypatch)
    return fake


def points(batch: int, length: int, labels: int) -> dict[str, Any]:
    return {"x": torch.ones(batch, 6), "labels": torch.zeros(batch, 1), "index": torch.arange(batch)}


def trainer_for(tmp_path: Path, **settings: Any) -> Any:
    return tiny_trainer(tmp_path / "out", optim="adamw_torch_fused", **settings)


def _everything(trainer: Any) -> dict[str, Any]:
    model = trainer.model
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "modes": [m.training for m in model.modules()],
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "trainer": dict(vars(trainer)),
        "args": copy.copy(vars(trainer.args)),
        "forward": "forward" in vars(model),
    }


def _assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, value in before.pop("weights").items():
        assert torch.equal(value, after["weights"][name]), name
    after.pop("weights")
    assert before == after


def test_one_factor_from_two_real_steps(memory_model: MemoryModel, cuda: FakeCuda, tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)
    trainer.model.eval()
    before, predicted = _everything(trainer), memory_model.estimate(8, 10.0)
    calibration = calibrate(trainer, memory_model, batch=8, seconds=10.0, batch_fn=points)
    assert trainer.model.seen == [list(range(8))] * 2
    trainer.model.seen.clear()
    _assert_same(before, _everything(trainer))
    assert all(p.grad is None for p in trainer.model.parameters())
    assert cuda.resets == 1

    assert calibration.factor == pytest.approx(MEASURED / predicted.peak_reserved)
    assert (calibration.measured_allocated, calibration.measured_reserved) == (900 * MIB, MEASURED)
    assert (calibration.gpu, calibration.batch, calibration.seconds, calibration.context_bytes) == (
        "NVIDIA L4",
        8,
        10.0,
        None,
    )
    assert memory_model.estimate(8, 10.0).peak_reserved == pytest.approx(MEASURED, abs=1)
    assert find_calibration(memory_model.model_key, "NVIDIA L4") == calibration
    again = calibrate(trainer, memory_model, batch=8, seconds=10.0, batch_fn=points)
    assert again.factor == calibration.factor, "the first calibration went into the second prediction"


def test_training_afterwards_is_as_if_nothing_had_been(
    memory_model: MemoryModel, cuda: FakeCuda, tmp_path: Path
) -> None:
    weights = []
    for calibrated in (False, True):
        torch.manual_seed(0)
        trainer = trainer_for(tmp_path / str(calibrated), model=Regression(dropout=0.3))
        if calibrated:
            calibrate(trainer, memory_model, batch=8, seconds=10.0, batch_fn=points)
        trainer.train()
        weights.append(trainer.model.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_a_given_optimizer_keeps_its_state(memory_model: MemoryModel, cuda: FakeCuda, tmp_path: Path) -> None:
    model = Regression()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(**points(4, 0, 0))["loss"].backward()
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    trainer = trainer_for(tmp_path, model=model, optimizers=(optimizer, None))
    calibrate(trainer, memory_model, batch=8, seconds=10.0, batch_fn=points)
    assert trainer.optimizer is optimizer
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for number, state in before["state"].items():
        for name, value in state.items():
            assert torch.equal(value, after["state"][number][name])


def test_accumulation_runs_whole_windows(cuda: FakeCuda, memory_model: MemoryModel, tmp_path: Path) -> None:
    with MemoryModel.trace("xls-r-300m", precision="fp32", accumulation=3, gpu="L4") as model:
        trainer = trainer_for(tmp_path, gradient_accumulation_steps=3)
        calibrate(trainer, model, batch=2, seconds=1.0, steps=2, batch_fn=points)
        assert trainer.model.seen == [[0, 1]] * 6


def test_mixed_precision_does_not_stay_on_the_model(memory_model: MemoryModel, cuda: FakeCuda, tmp_path: Path) -> None:
    with MemoryModel.trace("xls-r-300m", precision="bf16", gpu="L4") as model:
        trainer = trainer_for(tmp_path, bf16=True)
        before = _everything(trainer)
        calibrate(trainer, model, batch=2, seconds=1.0, batch_fn=points)
        assert len(trainer.model.seen) == 2
        trainer.model.seen.clear()
        _assert_same(before, _everything(trainer))


def test_an_own_step(memory_model: MemoryModel, cuda: FakeCuda) -> None:
    model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    weights = copy.deepcopy(model.state_dict())

    def step(batch: dict[str, Any]) -> None:
        model(**batch)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    calibration = calibrate(step, memory_model, batch=4, seconds=2.0, model=model, optimizer=optimizer, batch_fn=points)
    assert len(model.seen) == 2
    assert calibration.batch == 4
    assert not optimizer.state
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights.items())
    with pytest.raises(InvalidArgumentError, match="model NoneType and optimizer NoneType"):
        calibrate(step, memory_model, batch=4, seconds=2.0, batch_fn=points)
    with pytest.raises(InvalidArgumentError, match="cannot calibrate with a str"):
        calibrate("step", memory_model, batch=4, seconds=2.0, model=model, optimizer=optimizer)


def test_out_of_memory_leaves_everything_as_before(memory_model: MemoryModel, cuda: FakeCuda, tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)

    def full(model: Any, size: int) -> None:
        if len(model.seen) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    trainer.model.fail = full
    before = _everything(trainer)
    with pytest.raises(InfeasiblePlanError, match=r"8 × 10 s ran out of GPU memory"):
        calibrate(trainer, memory_model, batch=8, seconds=10.0, batch_fn=points)
    _assert_same(before, _everything(trainer))
    assert memory_model.calibration is None


def test_the_driver_s_count_becomes_the_context(
    memory_model: MemoryModel, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import dataclasses

    from asrconfig_go.predict.hardware import HardwareProfile
    from asrconfig_go.predict.predict_records import GPUProcess

    planned = HardwareProfile.detect("L4")
    for processes, context in (
        ((GPUProcess(4, MEASURED + CONTEXT),), CONTEXT),
        ((GPUProcess(4, MEASURED + CONTEXT), GPUProcess(5, MIB)), None),
        ((GPUProcess(4, None),), None),
        ((GPUProcess(4, MIB),), None),
    ):
        gpu = dataclasses.replace(planned.gpus[0], processes=processes)
        hardware = dataclasses.replace(planned, gpus=(gpu,))
        monkeypatch.setattr(HardwareProfile, "detect", classmethod(lambda cls, *_, f=hardware: f))
        made = calibrate(trainer_for(tmp_path), memory_model, batch=2, seconds=1.0, batch_fn=points)
        assert made.context_bytes == context


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gradient_accumulation_steps": 2}, "accumulation 2 instead of 1"),
        ({"optim": "adafactor"}, "optimizer 'adafactor' instead of 'adamw_torch_fused'"),
        ({"bf16": True}, "precision 'bf16' instead of 'fp32'"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing True instead of False"),
    ],
)
def test_other_settings_than_the_predicted_are_refused(
    memory_model: MemoryModel, cuda: FakeCuda, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    trainer = tiny_trainer(tmp_path / "out", **({"optim": "adamw_torch_fused"} | settings))
    with pytest.raises(InvalidArgumentError, match=message):
        calibrate(trainer, memory_model, batch=8, seconds=10.0, batch_fn=points)


def test_several_gpus_are_refused(memory_model: MemoryModel, cuda: FakeCuda, tmp_path: Path) -> None:
    """Each would compute a part of the batch, and the first one's memory be taken for that of the whole."""
    trainer = trainer_for(tmp_path)
    trainer.args._n_gpu = 2
    with pytest.raises(UnsupportedError, match="a calibration is of one device"):
        calibrate(trainer, memory_model, batch=8, seconds=10.0, batch_fn=points)
    assert trainer.model.seen == []


def test_without_a_gpu_it_says_so(memory_model: MemoryModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="requires a CUDA GPU") as caught:
        calibrate(trainer_for(tmp_path), memory_model, batch=8, seconds=10.0)
    assert caught.value.hint
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    with pytest.raises(InvalidArgumentError, match="is for NVIDIA L4, this GPU is Tesla T4"):
        calibrate(trainer_for(tmp_path), memory_model, batch=8, seconds=10.0)
