"""What every recipe here has: figures as published, its steps on a tiny model, and the published model without weights.

A recipe is trained three times: as its page says, with a plan and ``manager.train`` in place of ``trainer.train``, and
once more so while only half of a batch fits into memory. The tiny models drop nothing at random, so that trainings can
be compared.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent.parent / "model_zoo"))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from transformers import Trainer, TrainingArguments

from asrconfig_go import create_optimal_config
from asrconfig_go.errors import AsrConfigError
from asrconfig_go.plan import freeze
from asrconfig_go.plan.planner import NotTracedWarning

STEPS = 3
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB"
# Plain gradient descent: after a step of Adam a rounding error in a gradient near zero is as large as the step.
_SHORT = {
    "max_steps": STEPS, "optim": "sgd", "learning_rate": 1e-2, "lr_scheduler_type": "constant", "logging_steps": 1,
    "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "dataloader_num_workers": 0, "seed": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Published:
    """What a recipe's page says. ``assumed`` names what it leaves open, as words for the generated page.

    ``longest_s``, ``mean_s`` and ``labels`` are of the data that the recipe trains on: seconds of the longest and of a
    usual clip, and tokens of text of the longest one; ``text_lengths`` are others whose peaks are of interest.
    """

    title: str
    url: str
    model: str
    card: str
    batch: int
    accumulation: int
    precision: str
    longest_s: float
    mean_s: float
    labels: int
    checkpointing: bool = False
    weights: str = "fp32"
    assumed: str = ""
    remark: str = ""
    text_lengths: tuple[int, ...] = ()

    @property
    def clips_a_step(self) -> int:
        return self.batch * self.accumulation


@dataclass(frozen=True)
class Training:
    """What a recipe hands to its Trainer; ``settings`` are those of its TrainingArguments that a CPU takes, too."""

    model: Any
    dataset: Any
    collate: Callable[[list[Any]], dict[str, Any]] | None
    trainer: type[Any] = Trainer
    arguments: type[Any] = TrainingArguments
    settings: dict[str, Any] = field(default_factory=dict)

    def make_trainer(self, arguments: Any, **more: Any) -> Any:
        return self.trainer(
            model=self.model, args=arguments, train_dataset=self.dataset, data_collator=self.collate, **more
        )


@dataclass(frozen=True)
class Recipe:
    """``real`` builds the published model without weights, ``real_batch`` a batch of (clips, samples, text tokens).

    ``untrained`` finds the part with batch normalisation that the recipe does not train, where there is one.
    """

    name: str
    published: Published
    tiny: Callable[[], Training]
    real: Callable[[], Any]
    real_batch: Callable[[int, int, int], dict[str, Any]]
    untrained: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """Losses of a training, the weights that it moved, and how the guard split batches, if it did."""

    losses: tuple[float, ...]
    start: torch.Tensor
    weights: torch.Tensor
    refused: str = ""
    splits: tuple[tuple[int, int], ...] = ()


def train_plainly(recipe: Recipe, folder: str) -> Outcome:
    """The recipe as its page has it, on the tiny model."""
    training = _seeded(recipe)
    published = recipe.published
    batches = {
        "per_device_train_batch_size": published.batch, "gradient_accumulation_steps": published.accumulation,
    }  # fmt: skip
    arguments = training.arguments(folder, use_cpu=True, **{**training.settings, **batches, **_SHORT})
    trainer = training.make_trainer(arguments)
    return _run(training.model, trainer, trainer.train)


def train_with_plan(recipe: Recipe, folder: str, *, memory_runs_out: bool = False, frozen: bool = False) -> Outcome:
    """The same with our lines: a plan for the recipe's card, from a trace, and ``manager.train``.

    ``frozen`` keeps the part that the recipe does not train in evaluation mode, too.
    """
    training = _seeded(recipe)
    if frozen and recipe.untrained is not None:
        freeze(recipe.untrained(training.model))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotTracedWarning)  # a plan by a formula alone would be no plan of this model
        config, manager = create_optimal_config(
            training.dataset, training.model, gpu=recipe.published.card, collator=training.collate,
            target_batch_size=recipe.published.clips_a_step, verbose=False,
        )  # fmt: skip
    config.apply(training.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ours says that learning rate and optimizer are not the plan's
        arguments = config.to_training_arguments(
            folder, arguments_class=training.arguments, **{**_kept(training.settings), **_SHORT}
        )
    trainer = training.make_trainer(arguments, callbacks=[manager.callback()])
    if memory_runs_out:
        let_half_fit(training.model)
    return _run(training.model, trainer, lambda: manager.train(trainer, verbose=False), lambda: manager)


def _kept(settings: dict[str, Any]) -> dict[str, Any]:
    """The recipe's settings that are not the plan's to choose."""
    chosen = ("gradient_checkpointing", "train_sampling_strategy", "group_by_length", "warmup_steps")
    return {name: value for name, value in settings.items() if name not in chosen}


def _seeded(recipe: Recipe) -> Training:
    torch.manual_seed(0)
    return recipe.tiny()


def _run(model: Any, trainer: Any, train: Callable[[], Any], manager: Callable[[], Any] | None = None) -> Outcome:
    start, refused = _trained(model), ""
    try:
        train()
    except (AsrConfigError, torch.OutOfMemoryError) as error:
        refused = getattr(error, "message", str(error))
    losses = tuple(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    splits = _splits(manager()) if manager is not None else ()
    return Outcome(losses, start, _trained(model), refused, splits)


def _splits(manager: Any) -> tuple[tuple[int, int], ...]:
    events = () if manager.report is None else manager.report.events
    return tuple((event.micro_batch_before, event.micro_batch_after) for event in events)


def _trained(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().float().flatten() for p in model.parameters() if p.requires_grad])


def let_half_fit(model: Any) -> None:
    """Backward passes of more than half of the first batch's clips run out of memory half-way, as on a small GPU."""
    clips, most = [0], [0]

    def count(_: Any, args: Any, inputs: dict[str, Any]) -> None:
        clips[0] = len(inputs["labels"]) if torch.is_grad_enabled() else 0
        most[0] = most[0] or max(1, clips[0] // 2)

    def fail(_: Any) -> None:
        if clips[0] > most[0]:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)

    model.register_forward_pre_hook(count, with_kwargs=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    middle = trained[len(trained) // 3 : 2 * len(trained) // 3 + 1]
    nodes = [p.expand_as(p).grad_fn.next_functions[0][0] for p in middle]
    for node in nodes:
        node.register_prehook(fail)
    model._out_of_memory_nodes = nodes  # a hook lives as long as its node


def distance(one: Outcome, other: Outcome) -> float:
    """How far two trainings end apart, of how far the first moved."""
    moved = float((one.weights - one.start).norm())
    return float((one.weights - other.weights).norm()) / moved
