"""A Trainer's ``training_step`` as the engine computes batches with it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import batch_size
from .._core.training_session import attached, override, replace_method
from ..errors import InvalidArgumentError
from ..predict.probe import changed_tensors, tensor_sums
from .loop import Batch, Call, Loop, UnfitStepError, Weight
from .loss_rule import LossRule, check_gradient, factor, weighted
from .loss_table import Loss, label_smoother_loss, loss_of
from .process_group import ProcessGroup

if TYPE_CHECKING:
    from transformers import Trainer

_RULE_HINT = (
    'call attach(trainer, rule="mean") before the training, or with "token_mean" or "sum", whichever the loss divides '
    "by (docs/guard.md)"
)
_DIVIDED = (
    "losses and gradients are divided by the {} accumulated batches of a step, which the Trainer alone does not do for "
    "this model (transformers issue 47688)"
)
_STEPS = "current_gradient_accumulation_steps"


class TrainerLoop(Loop):
    """Weights the loss that a ``training_step`` hands to ``accelerator.backward``, whatever it is made of."""

    def __init__(self, trainer: Trainer, ranks: ProcessGroup, rule: LossRule) -> None:
        self.trainer, self._ranks, self._rule = trainer, ranks, rule
        self.name, self.labels = type(trainer).__name__, labels_name(trainer)
        self.rank = trainer.args.process_index
        self.train_step: Callable[..., Any] = trainer.training_step
        self.items: float | torch.Tensor | None = None
        """``num_items_in_batch`` of the step."""
        rule.passes_items = lambda: bool(self.items is not None and trainer.model_accepts_loss_kwargs)

    @property
    def model(self) -> torch.nn.Module:
        """The Trainer's own: DDP's wrapper is around it."""
        model: torch.nn.Module = self.trainer.model
        return model

    @property
    def optimizer(self) -> Any:
        """Accelerate's, around the user's."""
        return self.trainer.optimizer

    @property
    def step_number(self) -> int:
        """The Trainer's ``global_step``."""
        return int(self.trainer.state.global_step)

    @property
    def output(self) -> Path | None:
        """The Trainer's ``output_dir``."""
        return Path(self.trainer.args.output_dir)

    @property
    def epoch(self) -> float | None:
        """The Trainer's."""
        epoch: float | None = self.trainer.state.epoch
        return epoch

    def settings(self) -> dict[str, Any]:
        """From the Trainer's arguments."""
        names = (
            "fp16", "bf16", "max_grad_norm", "per_device_train_batch_size", "gradient_accumulation_steps",
            "label_smoothing_factor", "gradient_checkpointing", "learning_rate",
        )  # fmt: skip
        return {name: getattr(self.trainer.args, name, None) for name in names}

    @property
    def is_in_16_bits(self) -> bool:
        """Whether the Trainer's arguments ask for fp16 or bf16."""
        return bool(self.trainer.args.fp16 or self.trainer.args.bf16)

    @property
    def is_custom(self) -> bool:
        """Whether ``training_step`` is another one than the Trainer's."""
        return _overrides(self.trainer, "training_step", self.train_step)

    def table_loss(self) -> Loss | None:
        """The loss by the table; None where step, loss or preparation of batches are the user's, or it is unknown."""
        trainer = self.trainer
        if self._own_part():
            return None
        if trainer.label_smoother is not None:
            return label_smoother_loss(trainer.model, trainer.label_smoother)
        return loss_of(trainer.model)

    def _own_part(self) -> str:
        """The part of a step that is the user's; "" where all is the Trainer's."""
        if self.is_custom:
            return "training_step"
        if getattr(self.trainer, "compute_loss_func", None) is not None:
            return "compute_loss_func"
        names = ("compute_loss", "_prepare_inputs", "_prepare_input")
        return next((name for name in names if _overrides(self.trainer, name)), "")

    def unknown_reason(self) -> str:
        """Why the loss is not one of the table."""
        if own := self._own_part():
            return f"{own} of {self.name} is not the Trainer's, so that what its loss divides by is not known"
        model = type(self.trainer.model).__name__
        if self.has_hooks():
            return f"weights of {model} have hooks that run in backward"
        return f"the loss of {model} is not in the table of known losses"

    def look_up_rule(self, micro_batch: int | None, is_limited: bool) -> None:
        """Look up the loss in the table; where it is unknown, say what follows, also from limits of batches.

        Raises ``InvalidArgumentError`` where a ``micro_batch`` is given, or unequal shares, which need a known loss.
        """
        self._rule.begin(self.table_loss())
        self._rule.has_hooks = self.has_hooks()
        accumulation = self.trainer.args.gradient_accumulation_steps
        multiplied = accumulation > 1 and (self.trainer.model_accepts_loss_kwargs or divides_no_loss())
        if self._rule.is_certain:
            if multiplied and self._rule.name != "sum":
                self.say(_DIVIDED.format(accumulation), of_all=True)
            return
        reason = self.unknown_reason()
        if not getattr(attached(self.trainer, "batches"), "even", True):
            raise InvalidArgumentError(
                f"processes with unequal shares of a step would not train as with even ones: {reason}",
                "share steps evenly: manager.attach(trainer, memory=False) keeps the Trainer's own batches",
            )
        if micro_batch is not None:
            problem = f"micro_batch = {micro_batch} requires knowing what the loss divides by: {reason}"
            raise InvalidArgumentError(problem, _RULE_HINT)
        consequences = ["batches are not split before memory runs out"] * is_limited
        if multiplied:
            consequences.append(f"gradients may be up to {accumulation} times too large (transformers issue 47688)")
        if consequences:
            self.say(f"{', and '.join(consequences)}: {reason}; {_RULE_HINT}", of_all=True)

    def roots(self) -> Mapping[str, Any]:
        """The Trainer, its model, and what else of the user's it calls."""
        trainer = self.trainer
        roots = {type(trainer.model).__name__: trainer.model, self.name: trainer}
        for name in ("compute_loss_func", "data_collator", "train_dataset"):
            roots[name] = getattr(trainer, name, None)
        for callback in trainer.callback_handler.callbacks:
            if not type(callback).__module__.startswith(("transformers.", "asrconfig_go.")):
                roots[type(callback).__name__] = callback
        return {name: root for name, root in roots.items() if hasattr(root, "__dict__")}

    def uncleared(self) -> list[torch.Tensor]:
        """The optimizer's that are not the model's: the Trainer clears those of its model."""
        parameters, model = self.parameters(), self.model
        if "zero_grad" in vars(model) or type(model).zero_grad is not torch.nn.Module.zero_grad:
            return parameters
        own = set(map(id, model.parameters()))
        return [p for p in parameters if id(p) not in own]

    def prepare(self) -> None:
        """Do what ``training_step`` does first."""
        self.trainer.model.train()

    def compute(self, call: Call, part: Batch, weight: Weight, *, whole_window: bool) -> Any:
        """The Trainer's step on ``part``; what it returns, times ``weight``."""
        model, args, kwargs = call.arguments
        if weight is None:
            return self.train_step(model, part, *args, **kwargs)
        original, calls, factors = self.trainer.accelerator.backward, list[bool](), [weight]
        if whole_window:  # the accelerator divides by its own accumulation steps
            factors.append(self.trainer.accelerator.gradient_accumulation_steps)

        def backward(loss: torch.Tensor, **options: object) -> Any:
            calls.append(True)
            loss = _one_number(self.trainer, loss)
            check_gradient(loss)
            for value in factors:
                if isinstance(value, torch.Tensor) or value != 1:
                    loss = loss * factor(value, loss)
            return original(loss, **options)

        with contextlib.ExitStack() as back:
            if whole_window:  # the Trainer accumulates one micro-batch, so that it does not divide the loss
                back.callback(override(self.trainer.args, "gradient_accumulation_steps", 1))
                back.callback(override(self.trainer, _STEPS, 1))
            if whole_window and self._rule.name != "sum":  # which the Trainer may multiply by the processes
                back.enter_context(self._ranks.apart())
            back.callback(replace_method(self.trainer, "guard", "accelerator.backward", backward))
            loss = self.train_step(model, part, *args, **kwargs)
        if not calls and part is not call.inputs and batch_size(part) < batch_size(call.inputs):
            raise UnfitStepError("leaves a part of a batch out, by not calling accelerator.backward")
        loss = weighted(loss, weight)
        loss = loss if not loss.dim() else loss.reshape(()) if loss.numel() == 1 else loss.mean()
        return loss.float() if loss.element_size() < 4 else loss  # they are added up

    def gradient(self, call: Call, part: Batch, scale: float) -> None:
        """Run the Trainer's step without the accelerator's backward, so that no loss scaler is involved."""
        model, args, kwargs = call.arguments
        parameters, direct = self.parameters(), torch.Tensor.backward
        start = tensor_sums(parameters) if self.is_custom else []
        past, counts = [False], [0]

        def backward(loss: torch.Tensor, **_: object) -> None:
            if counts[0] and start and changed_tensors(parameters, start):
                raise UnfitStepError("changes weights within the step")
            counts[0] += 1
            direct(_one_number(self.trainer, loss) * scale)

        def own_backward(tensor: torch.Tensor, *args: object, **kwargs: object) -> Any:
            past[0] = True
            return direct(tensor, *args, **kwargs)

        with contextlib.ExitStack() as back:
            back.callback(setattr, torch.Tensor, "backward", direct)
            back.callback(replace_method(self.trainer, "guard", "accelerator.backward", backward))
            torch.Tensor.backward = own_backward
            self.train_step(model, part, *args, **kwargs)
        if past[0]:
            raise UnfitStepError("calls backward() of the loss itself, past accelerator.backward")
        if not counts[0]:
            raise UnfitStepError("does not call accelerator.backward")

    def loss(self, call: Call, part: Batch) -> Any:
        """Call the Trainer's ``compute_loss``."""
        model, args, kwargs = call.arguments
        trainer, items = self.trainer, args[0] if args else kwargs.get("num_items_in_batch")
        with trainer.compute_loss_context_manager():
            inputs = trainer._prepare_inputs(part)
            return _one_number(trainer, trainer.compute_loss(model, inputs, num_items_in_batch=items))

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Nothing is logged, and no other process is asked."""
        with contextlib.ExitStack() as back, self._ranks.apart():
            back.callback(replace_method(self.trainer, "guard", "log", lambda *_, **__: None))
            yield


def _one_number(trainer: Trainer, loss: torch.Tensor) -> Any:
    """The loss of a step as a tensor without dimensions, whatever form ``compute_loss`` returns it in."""
    if isinstance(loss, tuple):
        loss = loss[0]
    if not hasattr(loss, "backward"):
        problem = f"compute_loss returns {type(loss).__name__}, not a tensor"
        raise InvalidArgumentError(problem, "return the model's loss")
    if loss.numel() != 1:
        if trainer.args.n_gpu > 1:
            return loss.mean()  # one of each GPU: what the Trainer does with them
        raise InvalidArgumentError(
            f"compute_loss returns a loss of shape {tuple(loss.shape)}", "return one number: its mean() or its sum()"
        )
    return loss.reshape(()) if loss.dim() else loss


def divides_no_loss() -> bool:
    """Whether the Trainer never divides a loss by the accumulation steps, as in transformers 4.46."""
    from transformers import Trainer

    return "loss = loss / self." not in inspect.getsource(Trainer.training_step)


def _overrides(trainer: Trainer, name: str, method: Callable[..., object] | None = None) -> bool:
    """Whether a method is another one than the Trainer's; ``method`` is what stood there before a guard.

    What this package has put around it, such as the benchmark's clock, does not count.
    """
    from transformers import Trainer

    own = getattr(trainer, name) if method is None else method
    while hasattr(own, "__wrapped__") and own.__globals__["__name__"].startswith("asrconfig_go."):
        own = own.__wrapped__
    return getattr(own, "__func__", own) is not getattr(Trainer, name)


def labels_name(trainer: Trainer) -> str:
    """The entry of a batch that holds its labels."""
    return str((getattr(trainer, "label_names", None) or ["labels"])[0])
