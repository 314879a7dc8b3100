"""Kinds of loaders, optimizers and settings of the Trainer, for ``guard_kinds.py``."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from guard_kinds_losses import Tagger, clip_mean, frames, tagger, token_mean
from guard_kinds_modules import (
    Averaging,
    Carrying,
    Drawing,
    Normalised,
    PythonWarming,
    Sometimes,
    Spectral,
    Unpacked,
    Warming,
)
from guard_kinds_runs import Kind, Pad
from guard_kinds_steps import ROWS, regression
from transformers import (
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
)

from speech_models import CTC_SIZES, wav2vec2
from tiny_training import Regression

Rows = Sequence[dict[str, Any]]


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Rows one after the other, each worker its share."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        worker = torch.utils.data.get_worker_info()
        return iter(self.rows if worker is None else self.rows[worker.id :: worker.num_workers])


class Noisy(torch.utils.data.Dataset):  # type: ignore[misc]
    """Adds noise to each sample as it is fetched."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        row = self.rows[i]
        return {**row, "x": row["x"] + 0.1 * torch.randn(6) + 0.1 * float(np.random.randn())}


def _noisy_pad(rows: list[dict[str, Any]]) -> dict[str, Any]:
    batch = Pad()(rows)
    return {**batch, "x": batch["x"] * (1 + 0.1 * torch.rand(len(rows), 1))}


def _of_datasets(streamed: bool) -> Callable[[Rows], Any]:
    def make(rows: Rows) -> Any:
        import datasets

        plain = [{k: torch.as_tensor(v).tolist() for k, v in row.items()} for row in rows]
        if streamed:
            return datasets.IterableDataset.from_generator(lambda: iter(plain))
        return datasets.Dataset.from_list(plain).to_iterable_dataset(num_shards=2).shuffle(seed=3, buffer_size=8)

    return make


class Counting(torch.optim.Optimizer):  # type: ignore[misc]
    """Adam whose step count is a number of Python, as of several optimizers in use."""

    def __init__(self, parameters: Any, rate: float) -> None:
        super().__init__(parameters, {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
                state["step"] += 1
                state["mean"].lerp_(p.grad, 0.1)
                state["square"].lerp_(p.grad.square(), 0.01)
                mean, square = state["mean"] / (1 - 0.9 ** state["step"]), state["square"] / (1 - 0.99 ** state["step"])
                p.sub_(group["lr"] * mean / (square.sqrt() + 1e-8))


class GroupCounting(Counting):
    """The count is one of all weights, in the group; what decays with it is half of the learning rate's."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            for p in (p for p in group["params"] if p.grad is not None):
                p.sub_(p.grad * (group["lr"] / group["k"] ** 0.5))


class LookAhead(torch.optim.SGD):  # type: ignore[misc]
    """Goes half of the way back every second step; what it goes back to is kept beside the state."""

    def __init__(self, parameters: Any, rate: float) -> None:
        super().__init__(parameters, lr=rate)
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        self.taken = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step()
        self.taken += 1
        if self.taken % 2 == 0:
            weights = [p for group in self.param_groups for p in group["params"]]
            for p, slow in zip(weights, self.slow, strict=False):
                slow.lerp_(p, 0.5)
                p.copy_(slow)


class Thaw(TrainerCallback):  # type: ignore[misc]
    """Freezes the first layer for two steps."""

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        model.first.requires_grad_(state.global_step >= 2)


class Ema(TrainerCallback):  # type: ignore[misc]
    """A moving average of the weights, which take its place when training ends."""

    def on_train_begin(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        self.average = [p.detach().clone() for p in model.parameters()]

    def on_step_end(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        for mean, p in zip(self.average, model.parameters(), strict=True):
            mean.lerp_(p.detach(), 0.3)

    def on_train_end(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        for mean, p in zip(self.average, model.parameters(), strict=True):
            p.data.copy_(mean)


class SubstepNoise(TrainerCallback):  # type: ignore[misc]
    """Counts the micro-batches of the accumulation."""

    substeps = 0

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        self.substeps += 1


class OwnLoaderTrainer(Trainer):  # type: ignore[misc]
    """Makes the loader by itself, with an order of its own."""

    def get_train_dataloader(self) -> Any:
        order = torch.Generator().manual_seed(4)
        return torch.utils.data.DataLoader(
            self.train_dataset,
            self.args.per_device_train_batch_size,
            shuffle=True,
            generator=order,
            collate_fn=self.data_collator,
        )


def _wav2vec2_with_everything() -> Any:
    random = dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout"), 0.1)
    changes = {"apply_spec_augment": True, "mask_time_prob": 0.3, "mask_time_length": 2, "layerdrop": 0.3,
               "final_dropout": 0.1, "num_hidden_layers": 3, **random}  # fmt: skip
    return Wav2Vec2ForCTC(Wav2Vec2Config(ctc_loss_reduction="sum", **{**CTC_SIZES, **changes}))


def clips(count: int = ROWS, equal: int = 0) -> list[dict[str, Any]]:
    """Raw audio of unequal lengths with one to four labels."""
    source = torch.Generator().manual_seed(7)
    rows = []
    for i in range(count):
        length = 800 if equal else int(torch.randint(400, 801, (), generator=source))
        labels = torch.randint(3, 8, (1 + i % 4,), generator=source)
        rows.append({"input_values": torch.randn(length, generator=source), "labels": labels})
    return rows


def speech(model: Callable[[], Any], **changes: Any) -> Kind:
    """A model that takes raw audio with masks."""
    made = {"rows": clips(), "collate": Pad(mask="input_values"), "rate": 1e-2}
    return Kind(model, **{**made, **changes})


def _grouped() -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(TrainingArguments)}
    if "train_sampling_strategy" in names:
        return {"train_sampling_strategy": "group_by_length", "length_column_name": "length"}
    return {"group_by_length": True, "length_column_name": "length"}


def _with_lengths() -> list[dict[str, Any]]:
    return [{**row, "length": len(row["input_values"])} for row in frames()]


def _table(rows: Rows) -> Any:
    import datasets

    plain = [{k: torch.as_tensor(v).tolist() for k, v in row.items()} for row in rows]
    return datasets.Dataset.from_list(plain).with_format("torch")


def _without_length(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return Pad(mask="input_values")([{k: v for k, v in row.items() if k != "length"} for row in rows])


def _steps(**settings: Any) -> dict[str, Any]:
    return {"num_train_epochs": 1, "max_steps": 6, **settings}


_BEST = {"save_strategy": "steps", "save_steps": 3, "load_best_model_at_end": True, "metric_for_best_model": "loss"}


def _stopping() -> dict[str, Any]:
    return {"callbacks": [EarlyStoppingCallback(1, 0.5)]}


def _peft() -> Any:
    if importlib.util.find_spec("peft") is None:
        return "peft is not installed"
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    return speech(lambda: get_peft_model(wav2vec2("mean"), config))


def _bf16() -> Any:
    return tagger(settings={"bf16": True}, aim=2e-2)


_NORM = {"own_shape": True, "names": ("norm", "normalise over the batch")}
_RANDOM = {"random": True, "own_shape": True}
SETTINGS: dict[str, Callable[[], Any]] = {
    "stream of torch": lambda: regression(dataset=Stream, settings=_steps()),
    "stream of torch, two workers": lambda: regression(
        dataset=Stream, own_shape=True, settings=_steps(dataloader_num_workers=2)),
    "rows, two workers": lambda: regression(settings={"dataloader_num_workers": 2}),
    "streaming of datasets": lambda: regression(dataset=_of_datasets(True), settings=_steps()),
    "to_iterable_dataset, shuffled": lambda: regression(dataset=_of_datasets(False), settings=_steps()),
    "group_by_length": lambda: tagger(clip_mean, rows=_with_lengths(), dataset=_table, collate=_without_length,
                                      settings=_grouped()),
    "samples with noise": lambda: regression(dataset=Noisy, own_shape=True),
    "samples with noise, dropout": lambda: regression(model=lambda: Regression(0.2), dataset=Noisy, **_RANDOM),
    "collator with noise, dropout": lambda: regression(model=lambda: Regression(0.2), collate=_noisy_pad, **_RANDOM),
    "dropout": lambda: regression(model=lambda: Regression(0.2), **_RANDOM),
    "numbers of Python and numpy": lambda: regression(model=Drawing, **_RANDOM),
    "dropout, layerdrop, masks of wav2vec2": lambda: speech(_wav2vec2_with_everything, rate=1e-4, depth=0.0,
                                                            **_RANDOM),
    "dropout, gradient checkpointing": lambda: speech(_wav2vec2_with_everything, rate=1e-4, depth=0.0,
                                                      **_RANDOM, settings={"gradient_checkpointing": True}),
    "moving average in the forward": lambda: regression(model=Averaging, own_shape=True, names=("mean",)),
    "counter in the forward": lambda: regression(model=Warming, own_shape=True, names=("batches",)),
    "counter of Python in the forward": lambda: regression(model=PythonWarming, own_shape=True,
                                                           names=("PythonWarming",)),
    "tensor carried between forwards": lambda: regression(model=Carrying, own_shape=True,
                                                          names=("Carrying", "carried")),
    "batch normalisation": lambda: regression(model=Normalised, **_NORM),
    "spectral normalisation": lambda: regression(model=Spectral, own_shape=True, names=("first",)),
    "model that gives a tuple": lambda: regression(model=Unpacked),
    "weights used sometimes": lambda: regression(model=Sometimes),
    "optimizer: AdamW": lambda: regression(settings={"optim": "adamw_torch"}, rate=1e-2),
    "optimizer: AdamW, fused": lambda: regression(settings={"optim": "adamw_torch_fused"}, rate=1e-2),
    "optimizer: AdamW, foreach": lambda: regression(
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)),
    "optimizer: SGD, momentum": lambda: regression(
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)),
    "optimizer: Adafactor": lambda: regression(settings={"optim": "adafactor"}, rate=1e-2),
    "optimizer: step counted in Python": lambda: regression(
        optimizer=lambda model: Counting(model.parameters(), 1e-2)),
    "optimizer: count in the group": lambda: regression(
        optimizer=lambda model: GroupCounting(model.parameters(), 0.1)),
    "optimizer: look-ahead": lambda: regression(
        optimizer=lambda model: LookAhead(model.parameters(), 0.1), names=("LookAhead",)),
    "gradient clipping": lambda: tagger(settings={"max_grad_norm": 0.1}),
    "gradient checkpointing": lambda: speech(lambda: wav2vec2("mean"), settings={"gradient_checkpointing": True}),
    "gradient checkpointing, reentrant": lambda: speech(lambda: wav2vec2("mean"), settings={
        "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}),
    "bf16": _bf16,
    "model_init": lambda: regression(model=Regression, made=lambda: {"by_model_init": True}),
    "model_init, batch normalisation": lambda: regression(
        model=Normalised, made=lambda: {"by_model_init": True}, **_NORM),
    "PEFT": _peft,
    "moving average of weights": lambda: regression(made=lambda: {"callbacks": [Ema()]}),
    "layer thawed in training": lambda: regression(
        made=lambda: {"callbacks": [Thaw()]}, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1)),
    "own loader": lambda: regression(trainer=OwnLoaderTrainer),
    "substeps counted": lambda: regression(made=lambda: {"callbacks": [SubstepNoise()]}),
    "early stopping": lambda: regression(made=_stopping, settings={**_BEST, "eval_steps": 2, "save_steps": 2}),
    "best model at the end": lambda: regression(settings=_BEST),
    "checkpoints each step": lambda: regression(settings={"save_strategy": "steps", "save_steps": 1}),
    "cache emptied each step": lambda: regression(settings={"torch_empty_cache_steps": 1}),
    "loss logged each second step": lambda: tagger(settings={"logging_steps": 2}),
    "evaluation adds up in batches": lambda: tagger(settings={"eval_accumulation_steps": 1}),
    "tokens seen counted": lambda: tagger(model=lambda: Tagger(token_mean),
                                          settings={"include_num_input_tokens_seen": "all"}),
}  # fmt: skip
