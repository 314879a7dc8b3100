"""Optimizers of PyTorch and PyPI."""

from __future__ import annotations

import importlib
import unittest.mock
from collections.abc import Callable
from typing import Any

import torch
from library_memory import STEPS, Kind
from library_trainers import (
    own,
)
from transformers import Trainer, TrainerCallback


def optimizer(path: str, rate: float = 0.01, **changes: Any) -> Kind:
    """By its class, of all parameters of the model."""

    def extras(model: Any) -> dict[str, Any]:
        return {"optimizers": (_class(path)(model.parameters(), lr=rate, **changes), None)}

    return own(extras=extras)


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def by_name(optim: str, args: str | None = None, package: str = "", **settings: Any) -> Kind:
    """By ``TrainingArguments(optim=…)``, as transformers makes it."""
    if package:
        importlib.import_module(package)
    trainer = WithoutCudaTrainer if optim == "adalomo" else Trainer
    return own(trainer, settings={"optim": optim, "optim_args": args, "learning_rate": 0.01, **settings})


class WithoutCudaTrainer(Trainer):  # type: ignore[misc]
    """AdaLOMO's state, which its constructor puts on a GPU, stays on the CPU."""

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        with unittest.mock.patch.object(torch.Tensor, "cuda", lambda tensor: tensor):
            return super().create_optimizer(*args, **kwargs)


def _low_rank(optim: str, package: str) -> Kind:
    layerwise = optim.endswith("layerwise")
    settings: dict[str, Any] = {"optim_target_modules": ["middle"], "max_grad_norm": 0.0 if layerwise else 1e6}
    return by_name(optim, "rank=4,update_proj_gap=2,scale=1.0", package, **settings)


def _muon(path: str, **changes: Any) -> Kind:
    """Of matrices alone, as PyTorch's takes them; other parameters are frozen."""

    def extras(model: Any) -> dict[str, Any]:
        for p in model.parameters():
            p.requires_grad_(p.ndim == 2)
        matrices = [p for p in model.parameters() if p.ndim == 2]
        return {"optimizers": (_class(path)(matrices, lr=0.01, **changes), None)}

    return own(extras=extras)


def _muon_and_adam(model: Any) -> dict[str, Any]:
    groups = [
        {"params": [p for p in model.parameters() if p.ndim == 2], "use_muon": True, "lr": 0.01},
        {"params": [p for p in model.parameters() if p.ndim != 2], "use_muon": False, "lr": 0.01},
    ]
    muon = _class("muon.SingleDeviceMuonWithAuxAdam")
    # The Trainer calls step with a closure, which this one does not take.
    with_closure = type("Muon", (muon,), {"step": lambda self, closure=None: muon.step(self)})
    return {"optimizers": (with_closure(groups), None)}


def _adam_mini(model: Any) -> dict[str, Any]:
    adam = _class("adam_mini.Adam_mini")
    return {"optimizers": (adam(model.named_parameters(), lr=0.01, dim=16, n_heads=2, verbose=False), None)}


def _lookahead(model: Any) -> dict[str, Any]:
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    return {"optimizers": (_class("pytorch_optimizer.Lookahead")(inner, k=2), None)}


class GraphTrainer(Trainer):  # type: ignore[misc]
    """Backward of backward, as Adahessian takes it."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        loss = self.compute_loss(model, self._prepare_inputs(inputs)) / self.args.gradient_accumulation_steps
        self.accelerator.backward(loss, create_graph=True)
        return loss.detach()


def _adahessian(model: Any) -> dict[str, Any]:
    return {"optimizers": (_class("torch_optimizer.Adahessian")(model.parameters(), lr=0.1), None)}


class HessianCallback(TrainerCallback):  # type: ignore[misc]
    """Sophia's estimate of the curvature, by the squares of gradients, each second step."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if state.global_step % 2 == 0:
            optimizer.optimizer.update_hessian()


def _sophia(model: Any) -> dict[str, Any]:
    sophia = _class("sophia_opt.SophiaG")(model.parameters(), lr=0.01, rho=0.04)
    return {"optimizers": (sophia, None)}


def _optimi_in_backward(model: Any) -> dict[str, Any]:
    adam = _class("optimi.Adam")(model.parameters(), lr=0.01, gradient_release=True)
    _class("optimi.prepare_for_gradient_release")(model, adam)
    return {"optimizers": (adam, None)}


OPTIMIZERS: dict[str, Callable[[], Kind]] = {
    "AdamW, one tensor at a time": lambda: optimizer("torch.optim.AdamW", foreach=False),
    "AdamW, foreach": lambda: optimizer("torch.optim.AdamW", foreach=True),
    "AdamW, fused": lambda: by_name("adamw_torch_fused"),
    "AdamW, amsgrad": lambda: optimizer("torch.optim.AdamW", amsgrad=True),
    "SGD, Nesterov": lambda: optimizer("torch.optim.SGD", 0.05, momentum=0.9, nesterov=True),
    "Adafactor": lambda: by_name("adafactor"),
    "Adagrad": lambda: by_name("adagrad"),
    "RMSprop, centered": lambda: by_name("rmsprop", "momentum=0.9,centered=true"),
    "NAdam": lambda: optimizer("torch.optim.NAdam"),
    "RAdam": lambda: optimizer("torch.optim.RAdam"),
    "Rprop": lambda: optimizer("torch.optim.Rprop"),
    "ASGD": lambda: optimizer("torch.optim.ASGD", t0=2),
    "Adamax": lambda: optimizer("torch.optim.Adamax"),
    "Adadelta": lambda: optimizer("torch.optim.Adadelta", 1.0),
    "Muon, PyTorch": lambda: _muon("torch.optim.Muon"),
    "Muon, muon-optimizer": lambda: own(extras=_muon_and_adam),
    "schedule-free AdamW": lambda: by_name("schedule_free_adamw", package="schedulefree", lr_scheduler_type="constant"),
    "schedule-free RAdam": lambda: by_name("schedule_free_radam", package="schedulefree", lr_scheduler_type="constant"),
    "schedule-free SGD": lambda: by_name("schedule_free_sgd", package="schedulefree", lr_scheduler_type="constant"),
    "LOMO": lambda: by_name("lomo", package="lomo_optim", max_grad_norm=0.0),
    "AdaLOMO": lambda: by_name("adalomo", package="lomo_optim", max_grad_norm=0.0),
    "GaLore AdamW": lambda: _low_rank("galore_adamw", "galore_torch"),
    "GaLore Adafactor": lambda: _low_rank("galore_adafactor", "galore_torch"),
    "GaLore AdamW, layerwise": lambda: _low_rank("galore_adamw_layerwise", "galore_torch"),
    "APOLLO": lambda: _low_rank("apollo_adamw", "apollo_torch"),
    "APOLLO, layerwise": lambda: _low_rank("apollo_adamw_layerwise", "apollo_torch"),
    "GrokAdamW": lambda: by_name("grokadamw", package="grokadamw"),
    "StableAdamW, optimi": lambda: optimizer("optimi.StableAdamW", triton=False),
    "optimi Adam, steps in backward": lambda: own(extras=_optimi_in_backward),
    "AdamW 8 bit, torchao": lambda: by_name("adamw_torch_8bit", package="torchao"),
    "AdamW 4 bit, torchao": lambda: by_name("adamw_torch_4bit", package="torchao"),
    "AdamW 8 bit, bitsandbytes": lambda: by_name("adamw_bnb_8bit", package="bitsandbytes"),
    "Lion, bitsandbytes": lambda: by_name("lion_32bit", package="bitsandbytes"),
    "AdEMAMix, bitsandbytes": lambda: by_name("ademamix", package="bitsandbytes"),
    "Prodigy": lambda: optimizer("prodigyopt.Prodigy", 1.0, d0=0.01),
    "D-Adaptation": lambda: optimizer("dadaptation.DAdaptAdam", 1.0, d0=0.01),
    "Lion, lion-pytorch": lambda: optimizer("lion_pytorch.Lion"),
    "CAME": lambda: optimizer("came_pytorch.CAME"),
    "Adam-mini": lambda: own(extras=_adam_mini),
    "Sophia": lambda: own(extras=_sophia, callbacks=lambda: [HessianCallback()]),
    "AdEMAMix, pytorch-optimizer": lambda: optimizer("pytorch_optimizer.AdEMAMix"),
    "ADOPT, pytorch-optimizer": lambda: optimizer("pytorch_optimizer.ADOPT"),
    "SOAP, pytorch-optimizer": lambda: optimizer("pytorch_optimizer.SOAP", precondition_frequency=2),
    "Shampoo, pytorch-optimizer": lambda: optimizer("pytorch_optimizer.Shampoo"),
    "Ranger21, pytorch-optimizer": lambda: optimizer("pytorch_optimizer.Ranger21", num_iterations=STEPS),
    "Lookahead, pytorch-optimizer": lambda: own(extras=_lookahead),
    "DiffGrad, torch-optimizer": lambda: optimizer("torch_optimizer.DiffGrad"),
    "Adahessian, torch-optimizer": lambda: own(GraphTrainer, extras=_adahessian),
}
