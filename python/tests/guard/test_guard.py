"""The guard: optimizer steps stay what they are, however small the micro-batches and wherever memory runs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError
from asrconfig_go.guard import attach
from speech_models import MODELS, Clips, gradient, made_own
from tiny_training import OUT_OF_MEMORY, flat, tiny_trainer

RULES = {
    "ctc mean": "mean",
    "ctc sum": "sum",
    "whisper": "token_mean",
    "w2v-bert": "mean",
    "ctc lora": "mean",
    "whisper lora": "token_mean",
}
RATES = {
    "ctc sum": 1e-4
}  # a sum over samples is large: at other models' rates it is tossed about, and rounding with it


class Hungry:
    """Makes a model run out of memory when a batch holds more than ``limit`` samples, at one place."""

    def __init__(self, model: Any, place: str, limit: int, times: int) -> None:
        self.limit, self.left, self.size = limit, times, 0
        self.seen: list[int] = []
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        if place == "forward":
            model.register_forward_hook(lambda *_: self._fail(model))
        else:
            trained = [p for p in model.parameters() if p.requires_grad]
            middle = trained[len(trained) // 2]
            # Where its gradient arrives, as DDP does it: the guard would look at hooks of weights.
            self.node = middle.expand_as(middle).grad_fn.next_functions[0][0]
            self.node.register_prehook(lambda _: self._fail(model))

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        self.size = len(kwargs["labels"])
        if model.training:
            self.seen.append(self.size)

    def _fail(self, model: Any) -> None:
        if model.training and self.size > self.limit and self.left:
            self.left -= 1
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)


def trained(
    kind: str,
    output: Path,
    *,
    hungry: tuple[str, int, int] | None = None,
    own: bool = False,
    guarded: bool = True,
    **settings: Any,
) -> Any:
    """``own`` makes the model's class one that no table knows, whose loss clips of unequal texts show."""
    torch.manual_seed(0)
    model = made_own(MODELS[kind]()) if own else MODELS[kind]()
    start = flat(model)
    appetite = Hungry(model, *hungry) if hungry else None
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "learning_rate": RATES.get(kind, 1e-2),
        "optim": "sgd",  # AdamW would hide a gradient of the wrong size
        "lr_scheduler_type": "linear",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        **settings,
    }
    trainer = Trainer(model, TrainingArguments(str(output), **arguments), train_dataset=Clips(kind, unequal=own))
    guard = attach(trainer) if guarded else None
    trainer.train()
    return start, flat(model), trainer, guard, appetite


@pytest.mark.parametrize("kind", list(RULES))
def test_the_gradient_does_not_depend_on_the_micro_batch(tmp_path: Path, kind: str) -> None:
    gradients = {}
    for micro, accumulation in ((16, 1), (8, 2), (4, 4), (1, 16)):

        def train(trainer: Any) -> None:
            guard = attach(trainer)
            trainer.train()
            assert (guard.rule, guard.knows_rule) == (RULES[kind], True)

        cut, trainer = gradient(kind, tmp_path, micro, accumulation, train, unequal=True)
        gradients[micro] = (cut, trainer.state.log_history[-1]["train_loss"])
    expected, loss = gradients.pop(16)
    for micro, (cut, reported) in gradients.items():
        assert float((cut - expected).norm() / expected.norm()) < 2e-6, micro
        assert reported == pytest.approx(loss, rel=1e-5), micro


def test_memory_that_runs_out_while_a_batch_is_split_is_that_of_a_smaller_micro_batch(tmp_path: Path) -> None:
    sizes: list[int] = []

    def split(inputs: Any, size: int) -> list[Any]:
        sizes.append(size)
        if len(sizes) == 1:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
        return [{name: value[i : i + size] for name, value in inputs.items()} for i in range(0, 8, size)]

    torch.manual_seed(0)
    trainer = tiny_trainer(tmp_path, per_device_train_batch_size=8)
    Hungry(trainer.model, "forward", 4, 1)
    guard = attach(trainer, split=split, rule="mean")
    trainer.train()
    assert [(e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [(8, 4), (4, 2)]
    assert sizes[:2] == [4, 2]
    assert [len(batch) for batch in trainer.model.seen[-4:]] == [2] * 4


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("place", ["forward", "backward"])
@pytest.mark.parametrize("kind", list(RULES))
def test_a_run_that_meets_ooms_ends_as_one_that_does_not(
    tmp_path: Path, kind: str, place: str, accumulation: int
) -> None:
    settings: dict[str, Any] = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 5}
    start, calm, calm_trainer, _, _ = trained(kind, tmp_path, **settings)
    _, got, trainer, guard, appetite = trained(kind, tmp_path, hungry=(place, 2, 20), **settings)
    assert float((got - calm).norm() / (calm - start).norm()) < 1e-5
    assert trainer.state.global_step == calm_trainer.state.global_step
    assert [(e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [(5, 2)]
    assert guard.events[0].global_step == 0
    assert max(appetite.seen[appetite.seen.index(2) :]) <= 2, "the smaller size stays"
    for mine, theirs in zip(trainer.state.log_history, calm_trainer.state.log_history, strict=True):
        logs = [{n: e[n] for n in ("loss", "learning_rate", "train_loss", "epoch") if n in e} for e in (mine, theirs)]
        assert logs[0] == pytest.approx(logs[1], rel=1e-4)


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("kind", ["ctc sum", "whisper", "ctc lora"])
def test_a_loss_that_no_table_knows_is_measured_once_memory_runs_out(
    tmp_path: Path, kind: str, accumulation: int
) -> None:
    """A model of the user's own; nothing is weighted before."""
    settings: dict[str, Any] = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 5}
    start, calm, _, unaware, _ = trained(kind, tmp_path, own=True, **settings)
    assert (unaware.rule, unaware.knows_rule) == (None, False)
    _, bare, _, _, _ = trained(kind, tmp_path, own=True, guarded=False, **settings)
    assert torch.equal(calm, bare)
    _, got, _, guard, appetite = trained(kind, tmp_path, own=True, hungry=("backward", 2, 20), **settings)
    assert float((got - calm).norm() / (calm - start).norm()) < 1e-5
    assert (guard.rule, guard.knows_rule) == (RULES[kind], False)
    assert [(e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [(5, 2)]
    assert appetite.seen.count(5) == 1


@pytest.mark.parametrize("kind", list(RULES))
def test_evaluation_in_pieces_gives_the_same(tmp_path: Path, kind: str) -> None:
    def evaluated(failing: bool) -> Any:
        torch.manual_seed(0)
        model = MODELS[kind]()
        sizes = []

        def hungry(module: Any, args: Any, kwargs: Any) -> None:
            sizes.append(len(kwargs["labels"]))
            if failing and sizes[-1] > 3:
                raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

        model.register_forward_pre_hook(hungry, with_kwargs=True)
        arguments = TrainingArguments(
            str(tmp_path), per_device_eval_batch_size=7, report_to="none", use_cpu=True, disable_tqdm=True
        )
        trainer = Trainer(model, arguments, eval_dataset=Clips(kind, unequal=True))
        guard = attach(trainer)
        return trainer.predict(trainer.eval_dataset), guard, sizes

    calm, _, _ = evaluated(failing=False)
    got, guard, sizes = evaluated(failing=True)
    assert got.metrics["test_loss"] == pytest.approx(calm.metrics["test_loss"], rel=1e-5)
    for mine, theirs in zip(_arrays(got.predictions), _arrays(calm.predictions), strict=True):
        assert abs(mine - theirs).max() < 1e-5
    assert (got.label_ids == calm.label_ids).all()
    assert [(e.place, e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [("evaluation", 7, 3)]
    assert sizes == [7, 3, 3, 1, 3, 1, 2, 3, 3, 1, 2], "three were predicted together and in parts, to find the rule"
    assert guard.budgets["training"].values is None


def _arrays(predictions: Any) -> list[Any]:
    return list(predictions) if isinstance(predictions, tuple) else [predictions]


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_one_sample_is_computed_once_more(tmp_path: Path, place: str) -> None:
    """What was in the way may be gone; it is given up when it is not."""
    settings: dict[str, Any] = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    _, calm, _, _, _ = trained("ctc mean", tmp_path, **settings)
    _, got, trainer, guard, _ = trained("ctc mean", tmp_path, hungry=(place, 0, 1), **settings)
    assert torch.equal(got, calm)
    assert trainer.state.global_step == 8
    assert [(e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [(1, 1)]
    assert "retried" in str(guard.events[0])
    message = r"step 0 \(training\) ran out of GPU memory: CUDA out of memory[\s\S]*micro-batch is 1 already"
    with pytest.raises(InfeasiblePlanError, match=message) as caught:
        trained("ctc mean", tmp_path, hungry=(place, 0, 2), **settings)
    assert isinstance(caught.value.__cause__, torch.cuda.OutOfMemoryError)


def test_attach_is_idempotent_and_detach_leaves_nothing(tmp_path: Path) -> None:
    def attributes(trainer: Any) -> list[set[str]]:
        owners = (trainer, trainer.accelerator, trainer.callback_handler, trainer.optimizer)
        return [set(vars(owner)) for owner in owners]

    bare, trainer = tiny_trainer(tmp_path), tiny_trainer(tmp_path)
    bare.train()
    guard = attach(trainer)
    assert attach(trainer) is guard
    with pytest.raises(InvalidArgumentError, match="guarded already"):
        attach(trainer, max_halvings=1)
    assert repr(guard) == "Guard of Trainer: nothing ran out of memory so far"
    trainer.train()
    assert repr(guard) == "Guard of Trainer: nothing ran out of memory so far"
    assert attributes(trainer) != attributes(bare)
    guard.detach()
    guard.detach()
    assert attributes(trainer) == attributes(bare)
    assert attach(trainer) is not guard


def test_a_given_rule_is_shown(tmp_path: Path) -> None:
    guard = attach(tiny_trainer(tmp_path), rule="mean")
    assert (guard.rule, guard.knows_rule) == ("mean", True)
    assert repr(guard) == "Guard of Trainer: the loss divides by mean; nothing ran out of memory so far"
