"""The identical layers of a model: found, told apart, and left out but for a few of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_KEPT = 3  # of identical layers: the first, the second for all between, and the last
_FEWEST = 6  # fewer are left as they are: convolutions of a feature extractor, each of which halves the length
_SPECS = ("_parameters", "_buffers")


class Layers:
    """The layers in the lists of a model, numbered through, and which of them stands for which.

    Identical are neighbours with the same modules, tensors, hooks and settings, but for numbers that count the layers.
    """

    def __init__(self, model: nn.Module) -> None:
        self.numbers: dict[nn.Module, int] = {}
        """Of each layer."""
        self._stands: list[int] = []  # for each layer, by number: the one that stands for it
        self._lists = list({id(each): each for each in _outermost(model)}.values())
        for layers in self._lists:
            first = len(self._stands)
            self.numbers |= {layer: first + place for place, layer in enumerate(layers)}
            self._stands += [first + place for place in _stand_ins(list(layers))]

    @property
    def left_out(self) -> int:
        """How many layers others stand for."""
        return sum(number != stands for number, stands in enumerate(self._stands))

    def leave_out(self) -> None:
        """Take them out of the model."""
        for layers in self._lists:
            kept = [each for each in layers if self._stands[self.numbers[each]] == self.numbers[each]]
            layers._modules.clear()
            layers.extend(kept)

    def standing_in(self, lane: int) -> int:
        """The lane (``Whereabouts.lane``) of the shortened model that stands for one of the whole model."""
        if lane == 0:
            return 0
        number, after = divmod(lane - 1, 2)
        return 2 * self._stands[number] + 1 + after


def _outermost(module: nn.Module) -> Iterator[nn.ModuleList]:
    """The lists of modules that lie in no other one."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outermost(child)


def _stand_ins(layers: list[nn.Module]) -> list[int]:
    found = list(range(len(layers)))
    described = [_description(layer) for layer in layers]
    first = 0
    while first < len(layers):
        end = first + 1
        while end < len(layers) and _identical(described[first], first, described[end], end):
            end += 1
        if end - first >= _FEWEST:
            found[first + 1 : end - 1] = [first + 1] * (end - first - _KEPT + 1)
        first = end
    return found


def _identical(one: list[Any], place: int, other: list[Any], its_place: int) -> bool:
    """Whether two layers have equal descriptions, except for what is the place of each."""
    if len(one) != len(other):
        return False
    return all(a is b or a == b or (a == place and b == its_place) for a, b in zip(one, other, strict=True))


def _description(layer: nn.Module) -> list[Any]:
    """Everything that a layer has, down to its smallest part."""
    found: list[Any] = []
    for name, module in layer.named_modules():
        found += [name, type(module)]
        for key, value in vars(module).items():
            if key in _SPECS:
                found += [key, *((of, _spec(tensor)) for of, tensor in value.items())]
            elif key != "_modules":
                found += [key, len(value) if key.endswith("_hooks") else value]
    return found


def _spec(tensor: torch.Tensor | None) -> Any:
    return tensor if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad)
