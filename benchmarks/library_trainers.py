"""Trainers with private state: generators, iterators, averages, counters, metrics."""

from __future__ import annotations

import collections
import copy
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from library_memory import ROWS, STEPS, Kind, Shape
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import Trainer, TrainerCallback, TrainingArguments


def arguments(shape: Shape, folder: str, kind: Any = TrainingArguments, **settings: Any) -> Any:
    """Six steps on the CPU, plain SGD, which does not hide gradients of the wrong size; gradients are not clipped."""
    common = {
        "per_device_train_batch_size": shape.batch,
        "gradient_accumulation_steps": shape.accumulation,
        "max_steps": STEPS,
        "learning_rate": 0.05,
        "lr_scheduler_type": "linear",
        "optim": "sgd",
        "max_grad_norm": 1e6,  # the log has the norm
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "gradient_checkpointing": False,
        "bf16": False,
    }
    return kind(output_dir=folder, **{**common, **settings})


class Net(nn.Module):  # type: ignore[misc]
    """Three layers, eight numbers to one, and a mean squared error."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((8, 16), (16, 16), (16, 1))
        self.first, self.middle, self.last = (nn.Linear(*size, dtype=torch.float64) for size in sizes)

    def features(self, x: Any) -> Any:
        return torch.tanh(self.middle(torch.tanh(self.first(x))))

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        logits = self.last(self.features(x))[:, 0]
        return {"loss": F.mse_loss(logits, labels) if labels is not None else None, "logits": logits}


def points(classes: int = 0) -> list[dict[str, Any]]:
    """Eight numbers and one, or one of some classes, to be found from them."""
    source = torch.Generator().manual_seed(1)

    def label() -> Any:
        if classes:
            return torch.randint(0, classes, (), generator=source)
        return torch.randn((), generator=source, dtype=torch.float64)

    return [{"x": torch.randn(8, generator=source, dtype=torch.float64), "labels": label()} for _ in range(ROWS)]


def own(
    trainer: type = Trainer,
    model: Callable[[], Any] = Net,
    prepare: Callable[[Any], None] = lambda trainer: None,
    *,
    rows: Callable[[], Any] = points,
    collate: Callable[[], Any] = lambda: None,
    callbacks: Callable[[], list[Any]] = list,
    extras: Callable[[Any], dict[str, Any]] = lambda model: {},
    settings: Mapping[str, Any] | None = None,
    **kind: Any,
) -> Kind:
    """A Trainer of one's own; ``extras`` makes more of its arguments for a model, ``prepare`` changes it."""

    def build(shape: Shape, folder: str) -> Any:
        net = model()
        trainer_of_net = trainer(
            net,
            arguments(shape, folder, **(settings or {})),
            train_dataset=rows(),
            data_collator=collate(),
            callbacks=callbacks(),
            **extras(net),
        )
        prepare(trainer_of_net)
        return trainer_of_net

    return Kind(build, **kind)


class NumpyMasked(Net):
    """Masks inputs by a numpy generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.mask_source = np.random.default_rng(0)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        mask = torch.as_tensor(self.mask_source.random(8) > 0.2, dtype=x.dtype) if self.training else 1.0
        return super().forward(x * mask, labels)


class NoisyTrainer(Trainer):  # type: ignore[misc]
    """Adds noise to the inputs by a generator of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.noise_source = torch.Generator().manual_seed(5)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        noise = 0.3 * torch.randn(8, generator=self.noise_source, dtype=torch.float64)
        return super().compute_loss(model, {**inputs, "x": inputs["x"] + noise}, *args, **kwargs)


class GloballyNoisyTrainer(Trainer):  # type: ignore[misc]
    """Draws from the generators of numpy and Python that everyone uses."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        noise = torch.as_tensor(0.3 * np.random.randn(8) + 0.1 * random.random())
        return super().compute_loss(model, {**inputs, "x": inputs["x"] + noise}, *args, **kwargs)


class RandomScale(TrainerCallback):  # type: ignore[misc]
    """Draws a scale of the inputs for each step."""

    def __init__(self) -> None:
        self.scale_source, self.input_scale = random.Random(3), 1.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.input_scale = self.scale_source.uniform(0.5, 1.5)


class ScaledByCallbackTrainer(Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        scale = next(c.input_scale for c in self.callback_handler.callbacks if isinstance(c, RandomScale))
        return super().compute_loss(model, {**inputs, "x": scale * inputs["x"]}, *args, **kwargs)


def stacked(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


class RandomCollate:
    """Scales the inputs of a batch by random numbers, as an augmentation does."""

    def __init__(self) -> None:
        self.scale_source = random.Random(3)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        scale = torch.tensor([self.scale_source.uniform(0.5, 1.5) for _ in range(8)], dtype=torch.float64)
        batch = stacked(rows)
        return {**batch, "x": scale * batch["x"]}


class SecondLoaderTrainer(Trainer):  # type: ignore[misc]
    """Adds the loss of a batch from a loader of its own, as semi-supervised training does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        source = torch.Generator().manual_seed(7)
        self.unlabelled = torch.utils.data.DataLoader(
            [torch.randn(8, generator=source, dtype=torch.float64) for _ in range(400)],
            batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(9),
        )  # fmt: skip
        self.batch_iterator = iter(self.unlabelled)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss = super().compute_loss(model, inputs, **kwargs)
        return loss + 0.3 * self.model.features(next(self.batch_iterator)).square().mean()


class CyclingTrainer(Trainer):  # type: ignore[misc]
    """The same by a Python generator, whose state nobody can see."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

        def noise() -> Iterator[torch.Tensor]:
            source = torch.Generator().manual_seed(7)
            while True:
                yield torch.randn(4, 8, generator=source, dtype=torch.float64)

        self.batch_iterator = noise()

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss = super().compute_loss(model, inputs, **kwargs)
        return loss + 0.3 * self.model.features(next(self.batch_iterator)).square().mean()


class AveragingTrainer(Trainer):  # type: ignore[misc]
    """An average of the weights, updated with each training_step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)
        self.weight_average.update_parameters(self.model)
        return loss


class DataAveragingTrainer(Trainer):  # type: ignore[misc]
    """The same by writes to ``.data``, which PyTorch does not count."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_average = copy.deepcopy(self.model).requires_grad_(False)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)
        for average, p in zip(self.weight_average.parameters(), self.model.parameters(), strict=True):
            average.data.mul_(0.9).add_(p.data, alpha=0.1)
        return loss


class MeanTeacherTrainer(DataAveragingTrainer):
    """The loss has the distance from the average's predictions."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        return loss + F.mse_loss(outputs["logits"], self.weight_average(**inputs)["logits"])


class EmaCallback(TrainerCallback):  # type: ignore[misc]
    """An average of the weights, updated with each micro-batch in ``on_substep_end`` and ``on_step_end``."""

    def __init__(self) -> None:
        self.weight_average: dict[str, Any] = {}

    def on_step_end(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        for name, p in model.named_parameters():
            self.weight_average[name] = 0.9 * self.weight_average.get(name, p.detach()) + 0.1 * p.detach()

    on_substep_end = on_step_end


class CountingTrainer(Trainer):  # type: ignore[misc]
    """The loss warms up by the calls of training_step."""

    call_count = 0

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self.call_count += 1
        return super().training_step(*args, **kwargs)

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs) * min(1.0, (1 + self.call_count) / 10)


class Annealing:
    """A factor that falls with each call."""

    def __init__(self) -> None:
        self.call_count = 0

    def __call__(self) -> float:
        self.call_count += 1
        return 0.9**self.call_count


class AnnealingTrainer(Trainer):  # type: ignore[misc]
    """Makes its schedule in the first ``compute_loss``."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self, "annealing_factor"):
            self.annealing_factor = Annealing()
        return super().compute_loss(*args, **kwargs) * self.annealing_factor()


class MetricsTrainer(Trainer):  # type: ignore[misc]
    """Collects metrics in a dict of dicts of lists, and logs their means."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.collected_values: Any = collections.defaultdict(lambda: collections.defaultdict(list))

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.collected_values["train"]["largest"].append(float(outputs["logits"].detach().max()))
        self.collected_values["train"]["calls"].append(1.0)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        collected = self.collected_values["train"]
        logs |= {name: sum(values) / len(values) for name, values in collected.items()}
        logs["sum"] = sum(collected["calls"])
        collected.clear()
        super().log(logs, *args, **kwargs)
