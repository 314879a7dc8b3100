"""Right values for small results, where kernels that do nothing would leave what the memory held before.

Integers and booleans steer a training: masks, lengths, counts, ``.item()``, GradScaler's search for infinities. After
each call of torch from Python, its small results are computed on the CPU, on tensors over the same memory, and written
where the kernel would have put them. Sizes and order of allocations stay the device's own.

A function mode, not a dispatch mode: with an active dispatch mode autograd adds up gradients out of place, which
changes the peak.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .values_rules import CONVERSIONS, LEFT_ALONE, MAX_ELEMENTS, MAX_FLOATS, SIZED_BY_VALUES


class ValueError_(RuntimeError):
    """A small result could not be computed on the CPU."""
