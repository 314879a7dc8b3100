"""The current phase and module of a traced run, in forward or backward."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import optimizer as optimizers

_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)
_graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
_sequence: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)


def in_backward() -> bool:
    """Whether autograd is running its backward pass in this thread."""
    return bool(_graph_task() != -1)


class Whereabouts:
    """Follows module calls and optimizer steps by torch's global hooks.

    ``entered`` is called at each outermost module call, ``stepping`` before (False) and after (True) each step.
    """

    def __init__(
        self, entered: Callable[[nn.Module], None], stepping: Callable[[torch.optim.Optimizer, bool], None]
    ) -> None:
        self.resting = "forward"  # the phase outside of backward passes and optimizer steps
        self.loading = ""  # the module whose parameters are put on the device
        self._entered = entered
        self._stepping = stepping
        self._stack: list[str] = []
        self._names: dict[int, str] = {}
        self._optimizing = 0
        self._starts: list[int] = []  # autograd sequence numbers at which the running module changed
        self._owners: list[tuple[str, int]] = []  # that module, and the lane
        self.layers: dict[int, int] = {}
        """The number of each layer in ``lane``, by the id of each of its modules."""
        self.outermost: set[int] = set()
        """The ids of the layers alone."""
        self._lane = 0

    def hooked(self) -> ExitStack:
        """Global hooks, removed when the stack closes."""
        stack = ExitStack()
        for handle in (
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self._start_step),
            optimizers.register_optimizer_step_post_hook(self._end_step),
        ):
            stack.callback(handle.remove)
        return stack

    def now(self) -> tuple[str, str]:
        """The phase and the module's qualified name; "" for work outside any module."""
        if in_backward():
            return "backward", self._stack[-1] if self._stack else self._owner()
        if self._optimizing:
            return "optimizer", ""
        return self.resting, self._stack[-1] if self._stack else self.loading

    def start(self) -> None:
        """Reset the lane for a new segment."""
        self._lane = 0

    def lane(self) -> int:
        """2n + 1 inside layer n, and 2n + 2 after it until the next one begins; 0 before all of them.

        Call it after ``now``. What autograd adds up between two nodes belongs to the one before.
        """
        return self._lane

    def at_work(self) -> bool:
        """Whether a module, a backward pass or an optimizer runs at this moment."""
        return bool(self._stack or self._optimizing or in_backward())

    def _owner(self) -> str:
        node = _node()
        if node is None or not self._starts:
            return ""
        number = node._sequence_nr()
        place = bisect.bisect_right(self._starts, number) - 1
        if place < 0:
            return ""
        owner, lane = self._owners[place]
        if number < self._starts[-1]:  # not a recomputed node, nor one that adds to a parameter's gradient
            self._lane = lane
        return owner

    def _note(self) -> None:
        """Attribute autograd nodes from the next one on to the module on top of the stack."""
        if in_backward():
            return  # a recomputed layer: its nodes are walked at once, while the stack names the module
        start = _sequence()
        owner = self._stack[-1] if self._stack else "", self._lane
        if self._starts and self._starts[-1] == start:
            self._owners[-1] = owner
        else:
            self._starts.append(start)
            self._owners.append(owner)

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if not self._stack:
            self._names.update((id(m), name) for name, m in module.named_modules())
            if not in_backward() and not isinstance(module, ParametrizationList):
                self._entered(module)  # a parametrization is also called while its module is built
        if (number := self.layers.get(id(module))) is not None:
            self._lane = 2 * number + 1
        self._stack.append(self._names.get(id(module), type(module).__name__))
        self._note()

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        self._stack.pop()
        if id(module) in self.outermost:
            self._lane = 2 * self.layers[id(module)] + 2
        self._note()

    def _start_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._stepping(optimizer, False)
        self._optimizing += 1

    def _end_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._optimizing -= 1
        self._stepping(optimizer, True)
