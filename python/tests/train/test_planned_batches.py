"""A plan's steps in a Trainer: whole shares of chosen clips, micro-batches sized by predicted memory."""

from __future__ import annotations

from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import TrainerCallback

import asrconfig_go as ac
from asrconfig_go._core.modules import checkpoints
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard.guard import Guard
from asrconfig_go.manager import ASRConfigManager
from asrconfig_go.predict.trainer_settings import recomputes
from asrconfig_go.train.planned_batches import PlanNotFollowedWarning, check_same_plan, is_in_order, memory_limit
from cuda_fakes import cuda_has
from speech_models import wav2vec2
from training_fixtures import UNGUARDED, make_plan

# Of its few clips.
pytestmark = pytest.mark.filterwarnings("ignore:an epoch has only:asrconfig_go.predict.BatchingWarning")
SECONDS = [0.3 + 0.1 * (7 * i % 23) for i in range(96)]


class Clips(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self, seconds: list[float] = SECONDS) -> None:
        self.seconds = seconds
        self.given: list[int] = []

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.given.append(index)
        wave = torch.randn(int(16_000 * self.seconds[index]), generator=torch.Generator().manual_seed(index))
        return {"input_values": wave, "labels": torch.tensor([1, 2, 3])}


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    waves = [row["input_values"] for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(waves, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(w), dtype=torch.long) for w in waves], batch_first=True)
    return {"input_values": padded, "attention_mask": mask, "labels": torch.stack([row["labels"] for row in rows])}


def trained(tmp_path: Path, plan: dict[str, Any], data: Clips, **settings: Any) -> tuple[Any, ASRConfigManager]:
    torch.manual_seed(0)
    manager = ASRConfigManager()
    manager.config = make_plan(**plan)
    manager.durations = array("d", SECONDS)
    args = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=2, gradient_accumulation_steps=4, use_cpu=True, report_to="none",
        disable_tqdm=True, remove_unused_columns=False, logging_steps=1,
        **{"num_train_epochs": 1, "save_strategy": "no", **settings},
    )  # fmt: skip
    return Trainer(wav2vec2("mean"), args, train_dataset=data, data_collator=collate), manager


STRATIFIED: dict[str, Any] = {
    "micro_batching": "memory",
    "length_handling": "stratified",
    "target_batch_size": 8,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
}


@pytest.fixture(scope="module", autouse=True)
def room() -> None:
    """A budget with room for three of the longest clips, beside what a process takes."""
    with ac.MemoryModel.trace(wav2vec2("mean"), precision="fp32", accumulation=4, progress=False) as memory:
        STRATIFIED["budget_bytes"] = 1_000_000_000 + memory.estimate(3, max(SECONDS), timeline=0).peak_reserved


@pytest.mark.parametrize(
    "handling",
    ["stratified", *(pytest.param(h, marks=pytest.mark.slow) for h in ("bucketed", "random"))],
)
def test_the_planned_steps_are_trained(tmp_path: Path, handling: str) -> None:
    data = Clips()
    trainer, manager = trained(tmp_path, {**STRATIFIED, "length_handling": handling}, data)
    sizes: list[int] = []
    guard = manager.attach(trainer)
    trainer.model.register_forward_pre_hook(
        lambda model, _, inputs: sizes.append(len(inputs["input_values"])) if torch.is_grad_enabled() else None,
        with_kwargs=True,
    )
    trainer.train()
    guard.detach()
    assert trainer.state.global_step == len(SECONDS) // 8, "steps of exactly 8 clips"
    assert sorted(data.given) == list(range(len(SECONDS))), "each clip once"
    assert sum(sizes) == len(SECONDS)
    assert len(set(sizes)) > 1 and max(sizes) <= 8, "sized by memory, not one size"
    steps = [data.given[i : i + 8] for i in range(0, len(SECONDS), 8)]
    spread = sum(max(SECONDS[i] for i in step) - min(SECONDS[i] for i in step) for step in steps) / len(steps)
    assert spread < 1.2 if handling == "bucketed" else spread > 1.5
    assert (trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps) == (2, 4), "put back"


def test_a_resumed_run_keeps_its_steps_when_the_plan_has_others(tmp_path: Path) -> None:
    class Killed(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step == 6:
                raise KeyboardInterrupt

    before, after = Clips(), Clips()
    trainer, manager = trained(tmp_path, STRATIFIED, before, save_strategy="steps", save_steps=5)
    trainer.add_callback(Killed)
    with pytest.raises(KeyboardInterrupt):
        manager.train(trainer, verbose=False)
    trainer, manager = trained(tmp_path, STRATIFIED, after, save_strategy="steps", save_steps=5)
    trainer.args.gradient_accumulation_steps = 8
    manager.train(trainer, resume=True, verbose=False)
    assert manager.report is not None and manager.report.batch == (8, 1, 1)
    assert trainer.state.global_step == trainer.state.max_steps == len(SECONDS) // 8
    assert sorted(before.given[: 5 * 8] + after.given) == list(range(len(SECONDS)))


TWO = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}  # of the Trainer above


@pytest.mark.parametrize("knows_rule", [True, False])
def test_the_guard_recomputes_as_planned_for_it(
    tmp_path: Path, knows_rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    plan = {**STRATIFIED, "length_handling": "random", **batches, "unguarded": {**UNGUARDED, **TWO}}
    trainer, manager = trained(tmp_path, plan, Clips(), gradient_checkpointing=True, max_steps=1)
    trainer.model.gradient_checkpointing_enable()
    monkeypatch.setattr(Guard, "knows_rule", knows_rule)
    if knows_rule:
        manager.train(trainer, verbose=False)
        assert not checkpoints(trainer.model)
        guard = manager.attach(trainer)
    else:
        with pytest.warns(PlanNotFollowedWarning, match="what the loss divides by"):
            guard = manager.attach(trainer)
    assert recomputes(trainer.args) != knows_rule
    guard.detach()
    assert recomputes(trainer.args)
    assert (trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps) == (2, 4)


def test_checkpointing_of_one_s_own_stays(tmp_path: Path) -> None:
    plan = {**STRATIFIED, "unguarded": UNGUARDED}
    trainer, manager = trained(tmp_path, plan, Clips(), gradient_checkpointing=True)
    manager.attach(trainer)
    assert recomputes(trainer.args), "in batches of 2 × 4, which are not the plan's"


def test_a_plan_of_fixed_batches_changes_nothing(tmp_path: Path) -> None:
    trainer, manager = trained(tmp_path, {"per_device_train_batch_size": 2}, Clips())
    guard = manager.attach(trainer)
    assert trainer.args.gradient_accumulation_steps == 4
    assert type(guard.budgets["training"]).__name__ == "Budget"


def test_planned_switches_hold_from_attach_to_detach(tmp_path: Path) -> None:
    cuda = torch.backends.cuda
    cuda.enable_cudnn_sdp(True)
    trainer, manager = trained(tmp_path, {"cudnn_attention": False}, Clips(), max_steps=1)
    guard = manager.attach(trainer)
    assert not cuda.cudnn_sdp_enabled()
    manager.train(trainer, verbose=False)
    assert not cuda.cudnn_sdp_enabled(), "the guard is still attached"
    guard.detach()
    assert cuda.cudnn_sdp_enabled()


def test_durations_count_only_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"input_values": [[0.0] * 5000 for _ in range(24)], "labels": [[1]] * 24})
    shuffled = rows.shuffle(seed=1)
    for measured in (rows, shuffled):
        assert all(is_in_order(d, measured) for d in (measured, measured.map(dict), measured.select([1, 5, 7])))
        assert not is_in_order(rows.shuffle(seed=2), measured)
    trainer, manager = trained(tmp_path, STRATIFIED, Clips())
    manager.profile_dataset(rows)
    trainer.train_dataset = shuffled
    with pytest.warns(PlanNotFollowedWarning, match="of the training set, in its order, were not measured"):
        manager.attach(trainer)


def test_a_loader_of_one_s_own_stays(tmp_path: Path) -> None:
    trainer, manager = trained(tmp_path, STRATIFIED, Clips())

    class Own(type(trainer)):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    trainer.__class__ = Own
    with pytest.warns(PlanNotFollowedWarning, match="Own._get_train_sampler chooses its own"):
        manager.attach(trainer)
    assert trainer.args.gradient_accumulation_steps == 4


def test_memory_false_keeps_the_batches_of_the_trainer(tmp_path: Path) -> None:
    trainer, manager = trained(tmp_path, STRATIFIED, Clips())
    manager.attach(trainer, memory=False)
    assert trainer.args.gradient_accumulation_steps == 4


@pytest.mark.parametrize(
    ("data", "settings", "reason"),
    [
        (
            Clips(SECONDS[:24]),
            {},
            r"96 clips were measured and the training set has 24\); clips come in the Trainer's order: plan with",
        ),
        (Clips(), {"auto_find_batch_size": True}, "auto_find_batch_size"),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path: Path, data: Clips, settings: dict[str, Any], reason: str) -> None:
    trainer, manager = trained(tmp_path, STRATIFIED, data, **settings)
    with pytest.warns(PlanNotFollowedWarning, match=reason):
        guard = manager.attach(trainer)
    assert trainer.args.gradient_accumulation_steps == 4, "the Trainer's own batches"
    assert type(guard.budgets["training"]).__name__ == "MemoryBudget", "sized by memory nevertheless"
    guard.detach()


@pytest.mark.slow
def test_unknown_durations_are_named(tmp_path: Path) -> None:
    trainer, manager = trained(tmp_path, STRATIFIED, Clips())
    manager.durations[3] = manager.durations[40] = float("nan")
    expected = r"durations of 2 of 96 clips are not known, .*: rows 3, 40\); .*config\.select\(dataset\)"
    with pytest.warns(PlanNotFollowedWarning, match=expected):
        manager.attach(trainer).detach()
    readable, _ = manager.config.select(trainer.train_dataset, list(manager.durations))  # type: ignore[union-attr]
    trainer = Trainer(trainer.model, trainer.args, train_dataset=readable, data_collator=collate)
    manager.train(trainer, verbose=False)
    assert trainer.state.global_step == -(-94 // 8), "the plan's steps"


def test_a_plan_made_with_the_data_that_is_trained_on_is_followed(tmp_path: Path) -> None:
    """As ``create_optimal_config`` leaves it, once it is told of the filtered dataset."""
    trainer, manager = trained(tmp_path, STRATIFIED, Clips(SECONDS[:24]))
    with pytest.warns(PlanNotFollowedWarning, match="plan with the dataset that is trained on"):
        manager.attach(trainer).detach()
    manager.durations = array("d", SECONDS[:24])
    manager.train(trainer, verbose=False)
    assert trainer.state.global_step == 24 // 8


class OwnLoss(Trainer):  # type: ignore[misc]
    """Computes a loss of which nobody knows what it divides by."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs)


@pytest.mark.parametrize(
    ("handling", "fits_whole"),
    [
        ("stratified", False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("stratified", True), ("random", False), ("random", True))
        ),
    ],
)
def test_a_loss_of_unknown_rule_keeps_the_batches_of_the_trainer(
    tmp_path: Path, handling: str, fits_whole: bool
) -> None:
    data, sizes = Clips(), list[int]()
    plan = {**STRATIFIED, "length_handling": handling, "micro_batch_size": 8 if fits_whole else 1}
    trainer, manager = trained(tmp_path, plan, data)
    trainer = OwnLoss(trainer.model, trainer.args, train_dataset=data, data_collator=collate)
    with pytest.warns(PlanNotFollowedWarning, match=f"plan's {handling} steps are not taken .what the loss divides by"):
        guard = manager.attach(trainer)
    (note,) = guard.notes
    assert note.startswith("batches are not split before memory runs out, and gradients may be up to 4 times too large")
    assert "compute_loss of OwnLoss is not the Trainer's" in note
    assert "rule=" in note
    assert (trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps) == (2, 4)
    trainer.model.register_forward_pre_hook(
        lambda model, _, inputs: sizes.append(len(inputs["input_values"])), with_kwargs=True
    )
    trainer.train()
    assert sizes == [2] * (len(SECONDS) // 2), "neither a whole share at once, nor split"
    assert trainer.state.global_step == len(SECONDS) // 8
    assert not guard.events
    guard.detach()
    guard = manager.attach(trainer, rule="mean")
    assert trainer.args.gradient_accumulation_steps == 1, "with the rule as planned"
    guard.detach()


def test_clips_over_the_limit_on_length_are_left_out_of_the_durations(tmp_path: Path) -> None:
    limit = 2.0
    short = [s for s in SECONDS if s <= limit]
    data = Clips(short)
    trainer, manager = trained(tmp_path, {**STRATIFIED, "max_length_s": limit}, data)
    manager.train(trainer, verbose=False)
    assert sorted(data.given) == list(range(len(short)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handling", "epochs", "step"),
    [("random", 1, 3), *(("stratified", 1.5, step) for step in (3, 12, 15))],
)
def test_a_resumed_run_takes_the_steps_that_are_left(tmp_path: Path, handling: str, epochs: float, step: int) -> None:
    """Of 12 an epoch: before, at and after the end of the first."""
    plan, undisturbed = {**STRATIFIED, "length_handling": handling}, Clips()
    trainer, manager = trained(tmp_path / "whole", plan, undisturbed, num_train_epochs=epochs)
    manager.train(trainer, verbose=False)
    assert trainer.state.global_step == 12 * epochs
    weights = trainer.model.state_dict()

    first, second = Clips(), Clips()
    settings = {"save_strategy": "steps", "save_steps": 1, "num_train_epochs": epochs}
    trainer, manager = trained(tmp_path / "cut", plan, first, **settings)
    trainer.add_callback(Stop(step))
    with pytest.raises(KeyboardInterrupt):
        manager.train(trainer, verbose=False)
    trainer, manager = trained(tmp_path / "cut", plan, second, **settings)
    manager.train(trainer, resume=True, verbose=False)
    assert first.given[: 8 * step] == undisturbed.given[: 8 * step]
    remaining = undisturbed.given[8 * step :]
    assert second.given[-len(remaining) :] == remaining
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name


class Stop(TrainerCallback):  # type: ignore[misc]
    """Ctrl-C after ``step`` steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_share_that_fits_whole_needs_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trace(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was traced")

    monkeypatch.setattr(ac.MemoryModel, "trace", trace)
    data = Clips()
    trainer, manager = trained(tmp_path, {**STRATIFIED, "micro_batch_size": 8}, data)
    manager.train(trainer, verbose=False)
    assert sorted(data.given) == list(range(len(SECONDS)))
    assert trainer.state.global_step == len(SECONDS) // 8


def test_a_planned_step_is_traced_as_one_batch(tmp_path: Path) -> None:
    """Not as the Trainer's windows, whose inputs all lie on the device at once."""
    trainer, manager = trained(tmp_path, STRATIFIED, Clips(), learning_rate=1e-4)
    guard = manager.attach(trainer)
    assert guard.budgets["training"]._memory.settings.accumulation == 3  # type: ignore[attr-defined]
    guard.detach()
    trainer, manager = trained(tmp_path, {}, Clips())
    guard = manager.attach(trainer, memory=True, memory_limit_bytes=1 << 30)
    assert guard.budgets["training"]._memory.settings.accumulation == 4  # type: ignore[attr-defined]


def test_each_of_unequal_cards_takes_its_own_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA numbers the fastest first, the plan has them in the driver's order."""
    cards = [
        {"index": 0, "uuid": "GPU-t", "name": "Tesla T4", "budget_bytes": 13_000},
        {"index": 1, "uuid": "GPU-a", "name": "A100", "budget_bytes": 34_000},
    ]
    cards = [{**card, "samples": 4, "micro_batch_size": 1, "peak_bytes": 1} for card in cards]
    memory: Any = SimpleNamespace(target=SimpleNamespace(available_bytes=16_000, context_bytes=1_000))
    weights = torch.nn.Linear(10, 9)  # DDP's buckets: 99 gradients of 4 bytes
    cuda_has(monkeypatch, ("A100", "a", 40_000), ("Tesla T4", "t", 16_000))
    limits = []
    for place in (0, 1):
        args = SimpleNamespace(world_size=2, local_process_index=place)
        limits.append(memory_limit(memory, SimpleNamespace(args=args, model=weights), make_plan(devices=cards), 0.8))
    assert limits == [34_000 - 1_000 - 396, 13_000 - 1_000 - 396]
    alike = make_plan(devices=[{**card, "budget_bytes": 13_000} for card in cards])
    assert memory_limit(memory, SimpleNamespace(args=args, model=weights), alike, 0.8) == 12_800 - 1_000 - 396


def test_processes_with_different_plans_do_not_train(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(plans: list[Any], own: dict[str, Any]) -> None:
        plans[:] = [own, {**own, **other}]

    other: dict[str, Any] = {}
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    args: Any = SimpleNamespace(world_size=2)
    for plan in (make_plan(), None):
        check_same_plan(args, plan)
    other["micro_batching"] = "unlike"
    with pytest.raises(InvalidArgumentError, match="micro_batching is fixed, unlike, in") as refused:
        check_same_plan(args, make_plan())
    assert "load_config" in refused.value.hint


def test_the_inputs_of_a_planned_step_are_held_beside_its_micro_batches() -> None:
    memory: Any = SimpleNamespace(
        target=SimpleNamespace(available_bytes=16_000, context_bytes=1_000),
        beside_inputs=lambda limit_bytes, clips, longest_s: limit_bytes - round(clips * longest_s),
    )
    args = SimpleNamespace(world_size=1, train_batch_size=4, gradient_accumulation_steps=8)
    limit = memory_limit(memory, SimpleNamespace(args=args), make_plan(), 0.8, longest_s=10.0)
    assert limit == 12_800 - 1_000 - 32 * 10


@pytest.mark.slow
def test_training_has_the_switches_of_the_plan_and_leaves_them(tmp_path: Path) -> None:
    """CUDA has no deterministic gradient of the CTC loss: asked for strictly, the first step would fail."""
    warns: list[bool] = []

    class Looks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            warns.append(torch.is_deterministic_algorithms_warn_only_enabled())

    trainer, manager = trained(tmp_path, {"deterministic": True}, Clips())
    trainer.add_callback(Looks())
    torch.use_deterministic_algorithms(True)
    try:
        manager.train(trainer, verbose=False)
        assert warns and all(warns), "warned about while training runs"
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled(), "as it was"
    finally:
        torch.use_deterministic_algorithms(False)
