"""The measured runs' training loop, recorded without a GPU, as allocations of the torch that they had (2.6.0+cu124)."""

from __future__ import annotations

from typing import Any

import models
import torch

from asrconfig_go._core.native import call
from asrconfig_go.trace import MemoryRecorder, Trace

ITERATIONS = 4
MIB = 1 << 20


class Card:
    """A GPU of the runs. ``outside`` is what a process' first run takes beside the allocator, see README.md; bytes."""

    def __init__(self, capability: tuple[int, int], multiprocessors: int, outside: int) -> None:
        self.capability, self.multiprocessors, self.outside = capability, multiprocessors, outside

    def limit(self, name: str, total: int) -> int:
        """What the allocator can get in all."""
        gpu = {"name": name, "compute_capability": "{}.{}".format(*self.capability), "sms": self.multiprocessors}
        context = int(call("memory.device", {"gpu": gpu})["context_bytes"])
        return total - context - self.outside


CARDS = {
    "NVIDIA GeForce RTX 3060": Card((8, 6), 28, 18 * MIB),
    "NVIDIA GeForce RTX 4060": Card((8, 9), 24, 14 * MIB),
    "NVIDIA A100-SXM4-40GB": Card((8, 0), 108, 354 * MIB),
}


def record(model: str, optimizer: str, batch: int, card: Card, lengths: tuple[int, ...] | None) -> Trace:
    """Four iterations; ``lengths`` of the text batches, None for images."""
    with MemoryRecorder(compute_capability=card.capability) as recorder:
        network = (models.IMAGES if lengths is None else models.TEXT)[model]().train()
        step = getattr(torch.optim, optimizer)(network.parameters(), lr=1e-3)
        if lengths is None:
            _images(recorder, network, step, batch)
        else:
            _text(recorder, network, step, batch, lengths)
        return recorder.trace()


def _text(recorder: Any, network: Any, optimizer: Any, batch: int, lengths: tuple[int, ...]) -> None:
    """``outputs`` and ``loss`` live into the next forward pass; the batch does not."""
    for length in lengths:
        optimizer.zero_grad()
        given = recorder.place(_padded(batch, length))
        outputs = network(**given)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        del given
        recorder.step(batch=batch, length=length)


def _padded(batch: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 3000, (batch, length))
    mask = torch.ones_like(ids)
    mask[-1, length - length // 4 :] = 0  # never all ones: then other attention kernels would run
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}


def _images(recorder: Any, network: Any, optimizer: Any, batch: int) -> None:
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(ITERATIONS):
        inputs = labels = None  # the loader's next batch takes their names
        optimizer.zero_grad()
        inputs, labels = recorder.place((torch.empty(batch, 3, 86, 86), torch.zeros(batch, dtype=torch.int64)))
        outputs = network(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        _, predicted = torch.max(outputs, 1)
        recorder.step(batch=batch, length=86)
    del predicted


_CUBLAS_LT = MIB  # CUBLASLT_WORKSPACE_SIZE, taken and given back by each product with a bias up to torch 2.6


def allocations(trace: Trace) -> list[int]:
    """The trace's events as memory.replay reads them, with the libraries' workspaces of torch 2.6.0+cu124.

    What the recorder says of cuBLAS belongs to the installed torch, and what it counts (rows, lengths) to another
    replay: both go out. A padded copy where rows fill up is what it copies, and ends with the last of both.
    """
    events: list[int] = []
    numbers: list[int | None] = []  # of each birth of the trace: its number here
    holders: list[int] = []  # of each number: births of the trace that stand for it and live
    length = 0
    for segment in trace.segments:
        born = iter(zip(segment["op"], segment["tag"], strict=True))
        for event in segment["events"]:
            if event < 0:
                number = numbers[-event - 1]
                if number is not None:
                    holders[number] -= 1
                    events += [] if holders[number] else [-1 - number]
                continue
            op, tag = next(born)
            name, workspace = trace.ops[op], trace.tags[tag] == "workspace"
            if workspace and (name.startswith(_COUNTED) or _multiplies(name)):
                length = event if name == "length" else length
                numbers.append(None)
                continue
            source = _copied(name, length, numbers)
            if source is not None:
                numbers.append(source)
                holders[source] += 1
                continue
            numbers.append(len(holders))
            holders.append(1)
            events.append(event)
            if name == "aten.addmm.default":
                events += [_CUBLAS_LT, -1 - len(holders)]
                holders.append(0)
    return events


_COUNTED = ("column_sum", "norm_", "length")


def _copied(name: str, length: int, numbers: list[int | None]) -> int | None:
    """The number of what a padded copy of rows of this length would copy, where it copies nothing."""
    kind, _, rest = name.partition(":")
    if kind != "pad":
        return None
    multiple, back = map(int, rest.split(":"))
    return None if length % multiple else numbers[-back]


def _multiplies(name: str) -> bool:
    return name.removeprefix("aten.").split(".")[0] in ("mm", "addmm", "bmm", "baddbmm")


def replay(events: list[int], limit: int | None) -> tuple[int, bool]:
    """Peak of reserved bytes, and whether the run dies of want of memory."""
    request = {"events": events, "empty_cache": [], "settings": "", "limit_bytes": limit, "device_total_bytes": None}
    answer = call("memory.replay", request)
    return int(answer["stats"]["peak_reserved"]), bool(answer["failed"])
