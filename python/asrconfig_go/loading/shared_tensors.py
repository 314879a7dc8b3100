"""Batches allocated in shared memory by DataLoader workers, so that they are not copied."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def new_tensor(shape: tuple[int, ...], kind: Any) -> Any:
    """An uninitialised tensor of ``shape`` and of a NumPy ``dtype``; in a DataLoader's worker in shared memory.

    Workers hand tensors over in shared memory, and copy them there first from wherever they are: every sample would be
    written twice. torch's own ``default_collate`` avoids it in the same way. The pages are fresh each time, which is
    most of what a batch from a cache takes; keeping them would need to know when the training has released a batch.
    """
    import torch

    dtype, count = torch.from_numpy(np.empty(0, kind)).dtype, math.prod(shape)
    if not count or torch.utils.data.get_worker_info() is None:
        return torch.empty(shape, dtype=dtype)
    storage = torch.UntypedStorage._new_shared(count * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape)
