"""Torch's own caching allocator on this GPU against the simulated one, to the byte, after every event.

    python benchmarks/gpu/replay_snapshot.py record OUT     # needs a CUDA GPU: records cases into OUT, then compares
    python benchmarks/gpu/replay_snapshot.py compare FILE…  # anywhere: compares recorded files

A case is a workload under one PYTORCH_CUDA_ALLOC_CONF, run in a process of its own so that recording begins before the
first allocation. A file holds the events as the simulator reads them, and torch's reserved memory after each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MIB = 2**20
FRACTION = "per_process_memory_fraction"
ROOM = 3 * 2**30  # bytes that the cases with a limit may reserve; any GPU has them
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:[64:8,256:4,>:1]",
    "garbage_collection_threshold:0.6",
)


@dataclasses.dataclass
class Recording:
    """What torch's allocator was asked and had. Sizes are bytes.

    ``events``: e >= 0 allocates e bytes, numbered from 0; e < 0 frees number -e-1. ``empty_cache``: indices of the
    events before which the cache was emptied. ``failed``: indices of the allocations that ran out of memory.
    ``reserved``: after each event.
    """

    events: list[int] = dataclasses.field(default_factory=list)
    empty_cache: list[int] = dataclasses.field(default_factory=list)
    failed: list[int] = dataclasses.field(default_factory=list)
    reserved: list[int] = dataclasses.field(default_factory=list)


def recording_of(entries: Sequence[Mapping[str, Any]]) -> Recording:
    """Turn one device's trace of ``torch.cuda.memory._snapshot()`` into a recording.

    The trace must begin before the first allocation and keep to one stream. Segments that go directly behind a
    "snapshot" entry were given back by ``empty_cache()``; others by the allocator itself, while it sought room.
    """
    found, alive, reserved, born, after_snapshot = Recording(), dict[int, int](), 0, 0, False
    streams = {entry["stream"] for entry in entries if entry["action"] in ("alloc", "free_completed")}
    if len(streams) > 1:
        raise ValueError(f"the trace uses {len(streams)} streams; the simulator has one")
    for entry in entries:
        action, size = entry["action"], entry["size"]
        event: int | None = None
        if action in ("segment_alloc", "segment_map"):
            reserved += size
        elif action in ("segment_free", "segment_unmap"):
            reserved -= size
            if after_snapshot:
                found.empty_cache.append(len(found.events))
        elif action == "alloc":
            event, alive[entry["addr"]] = size, born
        elif action == "oom":
            event = size
            found.failed.append(len(found.events))
        elif action == "free_completed":
            if entry["addr"] not in alive:
                raise ValueError("the trace frees what it did not allocate: record from the first allocation on")
            event = -alive.pop(entry["addr"]) - 1
        after_snapshot = action == "snapshot"
        if event is not None:
            born += event >= 0
            found.events.append(event)
            found.reserved.append(reserved)
    return found


def empty_cache() -> None:
    """Empty torch's cache, with the mark in the trace that ``recording_of`` looks for."""
    import torch

    torch.cuda.memory._snapshot()
    torch.cuda.empty_cache()


def random_allocations(seed: int = 1, events: int = 20_000) -> None:
    """Allocate and free without kernels: small, middle and large sizes in no order, past the limit now and then."""
    import torch

    draw, blocks = random.Random(seed), list[int]()
    for _ in range(events):
        choice = draw.random()
        if choice < 0.002:
            empty_cache()
        elif choice < 0.5 or not blocks:
            size = draw.choice([draw.randint(1, 4096), draw.randint(1, 2 * MIB), draw.randint(MIB, 12 * MIB)])
            size = draw.randint(10 * MIB, 400 * MIB) if draw.random() < 0.1 else size
            try:
                blocks.append(torch.cuda.caching_allocator_alloc(size))
            except torch.cuda.OutOfMemoryError:
                continue
        else:
            torch.cuda.caching_allocator_delete(blocks.pop(draw.randrange(len(blocks))))


def training(steps: int = 12) -> None:
    """A small encoder with CTC loss and AdamW under autocast, on batches of changing length."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 6), torch.nn.Linear(512, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    draw = random.Random(2)
    for _ in range(steps):
        frames, batch = draw.randint(100, 700), 8
        with torch.autocast("cuda", torch.float16):
            scores = model(torch.randn(batch, frames, 512, device="cuda")).float().log_softmax(-1).transpose(0, 1)
        lengths = torch.full((batch,), frames)
        labels = torch.randint(1, 64, (batch, 30), device="cuda")
        torch.nn.functional.ctc_loss(scores, labels, lengths, torch.full((batch,), 30)).backward()
        optimizer.step()
        optimizer.zero_grad()


WORKLOADS: dict[str, Callable[[], None]] = {"random": random_allocations, "training": training}


def record_here(workload: str, settings: str, path: Path) -> None:
    """Record one case in this process, whose environment has the settings already."""
    import torch

    torch.cuda.init()
    total = torch.cuda.get_device_properties(0).total_memory
    fraction = min(ROOM / total, 0.9)
    torch.cuda.set_per_process_memory_fraction(fraction)
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=10_000_000)
    if torch.cuda.memory_reserved():
        raise SystemExit("something was allocated on the GPU before recording began")
    WORKLOADS[workload]()
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()
    found = recording_of(snapshot["device_traces"][0])
    if found.reserved[-1] != torch.cuda.memory_reserved():
        raise SystemExit("the trace does not add up to torch's reserved memory: entries are missing")
    about = {"workload": workload, "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}
    text = ",".join(filter(None, [settings, f"{FRACTION}:{fraction!r}"]))
    path.write_text(json.dumps({**about, "settings": text, "device_total_bytes": total, **dataclasses.asdict(found)}))


def record(folder: Path) -> list[Path]:
    """Record every workload under every setting, each in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for workload in WORKLOADS:
        for number, settings in enumerate(SETTINGS):
            paths.append(folder / f"{workload}-{number}.json")
            command = [sys.executable, __file__, "case", workload, settings, str(paths[-1])]
            subprocess.run(command, check=True, env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings})
    return paths


def first_difference(recording: Mapping[str, Any], replayed: Mapping[str, Any]) -> int | None:
    """The index of the first event after which reserved memory differs, or that ran out of memory in one alone."""
    failed = set(recording["failed"]) ^ set(replayed["failed"])
    pairs = enumerate(zip(recording["reserved"], replayed["reserved"], strict=True))
    return next((index for index, (torch, ours) in pairs if torch != ours or index in failed), None)


def compare(paths: Iterable[Path]) -> bool:
    """Replay recorded files and print a line for each. True when all agree."""
    from asrconfig_go._core import native

    agreed = True
    for path in paths:
        recording = json.loads(path.read_text())
        request = {name: recording[name] for name in ("events", "empty_cache", "settings", "device_total_bytes")}
        replayed = native.call("memory.replay", request)
        at = first_difference(recording, replayed)
        agreed = agreed and at is None
        peaks = f"peak {max(recording['reserved']) / MIB:.0f} MiB, simulated {max(replayed['reserved']) / MIB:.0f} MiB"
        verdict = "equal" if at is None else f"DIFFERS from event {at}"
        print(f"{path.name}: {len(recording['events'])} events, {peaks}: {verdict} ({recording['settings']})")
    return agreed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("out", type=Path)
    commands.add_parser("compare").add_argument("files", type=Path, nargs="+")
    case = commands.add_parser("case")  # what record starts
    case.add_argument("workload", choices=WORKLOADS)
    case.add_argument("settings")
    case.add_argument("path", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "case":
        record_here(given.workload, given.settings, given.path)
        return 0
    if given.command == "compare":
        return 0 if compare(given.files) else 1
    import torch

    if not torch.cuda.is_available():
        print("recording needs a CUDA GPU, and torch finds none here; `compare` works with files recorded elsewhere")
        return 2
    return 0 if compare(record(given.out)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
