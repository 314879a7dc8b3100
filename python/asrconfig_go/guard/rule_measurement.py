"""Measures what a loss is divided by, on a few clips of a batch that ran out of memory.

The gradient of the clips together must be the weighted sum of those of two parts of them. Gradients are of every
parameter that the optimizer or autograd touches, random numbers are the same each time, dropout is replaced by factors
that all clips share, and all that a step changes is put back. Where a model draws random numbers of another kind, it is
measured in evaluation mode.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from .._core.batches import batch_size, copied, entries, pick, piece, split
from .._core.out_of_memory import clear_frames, first_line, free_memory, is_gpu_oom
from .._core.random_state import rng_state, seed_cpu, set_rng_state
from .._core.training_session import override
from ..errors import AsrConfigError
from ..predict.probe import changed_tensors, gradients_aside, modes_kept, tensor_sums
from .loop import Batch, Call, Loop, Split, UnfitStepError
from .loss_rule import PADDING, LossRule
from .step_state import StepState, changed_values, put_values

_TRIALS = (4, 2, 2)  # clips that are measured, as many as fit
_TOLERANCE = {torch.float64: 1e-6}  # relative, of sums over gradients
_SINGLE, _TF32, _COARSE = 1e-4, 5e-3, 3e-2  # the same of 32 bits, of products with 10 bits, of 16-bit arithmetic
_LINEAR = 1e-3  # relative: gradients of twice the loss are twice as large


class NoRuleError(Exception):
    """Why a loss has no rule; a sentence."""


class NotMeasuredError(NoRuleError):
    """Why the rule of a loss could not be measured, which says nothing of an earlier measurement."""


class RuleMeasurement:
    """Measures the loss of one loop, and leaves it as it was."""

    def __init__(
        self,
        loop: Loop,
        rule: LossRule,
        state: StepState,
        split: Split | None,
        split_statistics: bool,
    ) -> None:
        self._loop, self._rule, self._state, self._split = loop, rule, state, split
        self._split_statistics = split_statistics

    def __call__(self, call: Call) -> tuple[str, ...]:
        """The rules that fit a few clips of ``call``, all of which give its micro-batches the same weights.

        Raises ``NoRuleError`` where none fits, or where those that fit cannot be told apart, ``NotMeasuredError`` where
        two clips are too many, fail, or have no finite loss.
        """
        if batch_size(call.inputs) < 2:
            raise NotMeasuredError("a batch of one clip does not show what its loss divides by")
        for count in _TRIALS:
            try:
                return self._fitting(call, *trial(call.inputs, count, self._loop.labels, self._split))
            except UnfitStepError as error:
                raise NoRuleError(f"{self._loop.title} {error}") from error
            except (NoRuleError, AsrConfigError):
                raise
            except Exception as error:
                if not is_gpu_oom(error, maybe=True):
                    raise NotMeasuredError(
                        f"{self._loop.title} fails on a part of a batch: {first_line(error)}"
                    ) from error
                clear_frames(error)
            free_memory()
        raise NotMeasuredError(f"not even two clips fit, so that the loss of {self._loop.title} cannot be measured")

    def _fitting(self, call: Call, clips: Batch, parts: list[Any]) -> tuple[str, ...]:
        aside = gradients_aside([*self._loop.parameters(), *self._state.leaves])
        with untouched(self._loop, self._state), aside:
            gradient = Gradient(self._loop, self._state, call)
            errors = self._errors(gradient, clips, parts)
            tolerance = self._tolerance(gradient)
            if not any(error <= tolerance for error in errors.values()) and gradient.is_random(clips):
                gradient.evaluates = True  # random numbers tell parts from the whole, whatever the loss is
                errors = self._errors(gradient, clips, parts)
            gradient.check(parts, self._split_statistics)
        fitting = tuple(rule for rule, error in errors.items() if error <= tolerance)
        if self._rule.is_certain:  # a step of the user's own may still change weights, which was looked for
            return ()
        if not fitting:
            texts = ", ".join(f"{error:.2g} ({rule})" for rule, error in errors.items())
            raise NoRuleError(
                f"{self._loop.title} has a loss that fits no rule: the gradient of {batch_size(clips)} clips together "
                f"differs from that of its parts by {texts}"
            )
        if len(fitting) > 1 and not self._rule.are_alike(fitting, call.inputs, (self._split or split)(call.inputs, 1)):
            raise NoRuleError(f"{' and '.join(fitting)} fit its loss alike, and weight its clips differently")
        return fitting

    def _errors(self, gradient: Gradient, clips: Batch, parts: list[Any]) -> dict[str, float]:
        """The relative error of the weighted sum of the parts, by each rule."""
        return self._rule.errors(clips, gradient.of(clips), parts, [gradient.of(part) for part in parts])

    def _tolerance(self, gradient: Gradient) -> float:
        if self._loop.is_in_16_bits or gradient.dtype in (torch.float16, torch.bfloat16):
            return _COARSE
        if gradient.on_gpu and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32):
            return _TF32
        return _TOLERANCE.get(gradient.dtype, _SINGLE)


@contextlib.contextmanager
def untouched(loop: Loop, state: StepState) -> Iterator[None]:
    """Put everything back afterwards: random numbers, modes, what the loop and the model hold.

    Compiled models are computed as they are written: their graphs are not for batches of these sizes.
    """
    random, before, copies = rng_state(), state.before(full=True), state.copies()
    set_stance = getattr(torch.compiler, "set_stance", None)  # from PyTorch 2.6
    try:
        eager = set_stance("force_eager") if set_stance else contextlib.nullcontext()
        with modes_kept(loop.model), loop.measuring(), eager:
            yield
    finally:
        put_values(copies)
        state.put_back(before, before)
        set_rng_state(random)


class Gradient:
    """Two sums over the gradient of each parameter, both linear in it; each time from the same state."""

    def __init__(self, loop: Loop, state: StepState, call: Call) -> None:
        self._loop, self._state, self._call = loop, state, call
        self._parameters = [*loop.parameters(), *state.leaves]
        self._before, self._copies = state.before(full=True), state.copies()
        self._weights: list[torch.Tensor] = []
        if loop.is_custom or loop.has_hooks():
            if not _fits_on_host(self._parameters):
                raise UnfitStepError("cannot be tried: host memory has no place for a copy of the weights")
            self._weights = [p.detach().to("cpu", copy=True) for p in self._parameters]
        self.evaluates = False
        self.dtype = next((p.dtype for p in self._parameters if p.is_floating_point()), torch.float32)
        self.on_gpu = any(p.is_cuda for p in self._parameters)
        self._tensors: dict[int, dict[str, Any]] = {}
        self._attributes: dict[int, dict[str, Any]] = {}

    def of(self, part: Batch, seed: int = 0, scale: float = 1.0, keep: bool = False) -> torch.Tensor:
        """The gradient of ``scale`` times the loss of ``part``; ``keep``: do not restore what it has changed.

        Raises ``NotMeasuredError`` where it is not finite, ``UnfitStepError`` where weights change.
        """
        for p in self._parameters:
            p.grad = None
        sums = tensor_sums(self._parameters) if self._weights else []
        model, moved = self._loop.model, False
        if self.evaluates:
            model.eval()
        else:
            self._loop.prepare()
        try:
            with contextlib.ExitStack() as back, steady(model, seed):
                back.callback(override(model, "train", lambda mode=True: model))  # for a step that calls it
                self._loop.gradient(self._call, copied(part), scale)
            values = torch.stack([s for p in self._parameters for s in _sums(p)])
        finally:
            moved = bool(sums) and bool(changed_tensors(self._parameters, sums))
            self._tensors[id(part)] = changed_values(self._copies)
            self._attributes[id(part)] = self._state.tensor_attributes(self._before)
            if moved and not keep:
                with torch.no_grad():
                    for p, value in zip(self._parameters, self._weights, strict=True):
                        p.copy_(value)
            if not keep:
                put_values(self._copies)
                self._state.put_back(self._before, self._before)
        if moved:
            raise UnfitStepError("changes weights within the step")
        if not bool(values.isfinite().all()):
            raise NotMeasuredError("the loss or its gradient is not finite")
        return values

    def is_random(self, part: Batch) -> bool:
        """Whether the gradient depends on random numbers."""
        return bool((self.of(part) != self.of(part, seed=1)).any())

    def check(self, parts: list[Any], split_statistics: bool) -> None:
        """Raise where no weight of micro-batches makes their step that of the whole batch.

        ``UnfitStepError`` for a gradient that does not follow the loss, ``NoRuleError`` for what a batch carries on.
        """
        if self._weights:
            once, twice = self.of(parts[0]), self.of(parts[0], scale=2.0)
            if not bool((twice - 2 * once).norm() <= _LINEAR * (2 * once).norm() + 1e-300):
                raise UnfitStepError("changes gradients after backward, so that they do not follow a weight")
        path = "" if split_statistics else _differing(self._tensors, parts)
        carried = _differing(self._attributes, parts)
        if carried:
            alone = self.of(parts[0])
            self.of(parts[-1], keep=True)
            path = path or (carried if bool((self.of(parts[0]) != alone).any()) else "")
        if path:
            raise NoRuleError(f"{path} depends on which clips a batch holds, and is carried from one to the next")


def _fits_on_host(weights: list[torch.Tensor]) -> bool:
    """Whether a copy takes at most a quarter of the free host memory."""
    needed = sum(p.numel() * p.element_size() for p in weights)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not known here
        return False
    return bool(4 * needed <= free)


def _differing(changed: dict[int, dict[str, Any]], parts: list[Any]) -> str:
    """The path of state that the ``parts`` have left with different values; "" for none."""
    first, *others = (changed[id(part)] for part in parts)

    def is_alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
        if one is None or other is None or one.shape != other.shape:
            return one is other
        return bool(torch.allclose(one, other, rtol=1e-6, atol=0, equal_nan=True))

    paths = sorted({path for values in (first, *others) for path in values})
    return next((p for p in paths if not all(is_alike(first.get(p), other.get(p)) for other in others)), "")


def _sums(p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of a gradient times a wave, as softmax makes the plain sum of the largest 0, and times the weights."""
    if p.grad is None or not p.numel():
        return (torch.zeros((), dtype=torch.float64, device=p.device),) * 2
    gradient = (p.grad.to_dense() if p.grad.is_sparse else p.grad).detach().double()
    matrix = gradient.reshape(-1, gradient.shape[-1] if gradient.dim() else 1)
    rows, columns = (torch.arange(n, dtype=torch.float64, device=p.device).cos() for n in matrix.shape)
    return rows @ matrix @ columns, (gradient * p.detach().double()).sum()


def trial(inputs: Batch, count: int, labels: str, by: Split | None) -> tuple[Any, list[Any]]:
    """So many clips of a batch, and the same in two parts; ``by`` is the user's function, if there is one."""
    if by is not None:
        clips = by(inputs, count)[0]
        return clips, by(clips, (batch_size(clips) + 1) // 2)
    clips = _informative(inputs, count, labels)
    return clips, [piece(clips, 0, 1), piece(clips, 1, batch_size(clips))]


def _informative(inputs: Batch, count: int, labels: str) -> Any:
    """So many clips of a batch, one with the most labels first, and one with the fewest among them.

    Where each clip has one label, they are of different classes if the batch is: a loss that weights its classes is a
    plain mean over clips of one.
    """
    values: Any = entries(inputs).get(labels)
    tokens, classes = ([0] * batch_size(inputs) for _ in range(2))
    if hasattr(values, "shape") and len(values.shape):
        used: Any = values != PADDING
        tokens = [int(n) for n in (used.flatten(1).sum(1) if used.dim() > 1 else used.int())]
        classes = classes if used.dim() > 1 else values.tolist()
    rows = sorted(range(len(tokens)), key=lambda row: (-tokens[row], classes[row]))
    return pick(inputs, rows if len(rows) <= count else [*rows[: count // 2], *rows[count // 2 - count :]])


@contextlib.contextmanager
def steady(model: torch.nn.Module, seed: int) -> Iterator[None]:
    """The same random numbers each time, and dropout that is alike for all clips of a batch, in both modes.

    So a loss that compares two forwards of a batch (R-Drop) has something to compare, and losses of parts are still
    those of the whole. Compiled models are left as they are.
    """
    with contextlib.ExitStack() as back:
        if not hasattr(model, "_orig_mod"):
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout) and module.p > 0:
                    back.callback(override(module, "forward", _Wave()))
            back.callback(override(torch.nn.functional, "dropout", lambda x, *_, **__: x))
        seed_cpu(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        yield


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Inside, autocast stays off, whatever a loss function asks for."""
    enable = torch.set_autocast_enabled
    with contextlib.ExitStack() as back:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                enable(device, False)
                back.callback(enable, device, True)
        back.callback(override(torch, "set_autocast_enabled", lambda device, _: enable(device, False)))
        yield


class _Wave:
    """Replaces a dropout's forward: factors from 0.75 to 1.25 along the features, different in each call."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, x: torch.Tensor) -> Any:
        self._calls += 1
        feature = torch.arange(x.shape[-1], device=x.device)
        return x * (1 + torch.cos(feature + 7.0 * self._calls) / 4).to(x.dtype)
