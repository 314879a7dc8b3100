"""What the tests do on the stand-in CUDA runtime, each function in a process of its own (forked.py).

transformers, which takes two seconds to import, is imported where it is used.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cuda_standin
import torch
from cuda_standin.few_bits import replace_kernels
from cuda_standin.values import Values

MIB = 2**20


def device() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "memory": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "capability": torch.cuda.get_device_capability(0),
        "l2": getattr(properties, "L2_cache_size", None),
        "free": torch.cuda.mem_get_info(0)[0],
        "count": torch.cuda.device_count(),
        "bf16": torch.cuda.is_bf16_supported(including_emulation=False),
    }


def own_hardware() -> dict[str, Any]:
    """What this project's library reads by NVML, with 100 MiB taken by torch."""
    from asrconfig_go.predict import HardwareProfile
    from asrconfig_go.predict.hardware import cuda_order

    held = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda:1")
    gpus = HardwareProfile.detect().gpus
    free = [torch.cuda.mem_get_info(i)[0] for i in range(2)]
    return {
        "names": [g.name for g in gpus],
        "free": [g.memory_free_bytes for g in gpus],
        "identifiers": [g.uuid for g in gpus] == cuda_order() and len({g.uuid for g in gpus}) == 2,
        "torch": free,
        "held": held.nbytes,
    }


def statistics() -> dict[str, Any]:
    """Allocated and reserved bytes after each of some allocations."""
    readings = []

    def read() -> None:
        readings.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))

    tensors = []
    for size in (1, 513, MIB, 3 * MIB, 12 * MIB):
        tensors.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        read()
    segments = torch.cuda.memory._snapshot()["segments"]
    del tensors
    read()
    torch.cuda.empty_cache()
    read()
    return {"readings": readings, "segments": sorted(s["total_size"] for s in segments)}


def out_of_memory() -> dict[str, Any]:
    """Fills a GPU of 512 MiB in blocks of 64 MiB, lets go of all, and takes one block that needs the whole."""
    total = torch.cuda.mem_get_info()[1]
    blocks: list[torch.Tensor] = []
    message = ""
    try:
        for _ in range(100):
            blocks.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        message = str(error)
    fitted, at_the_limit = len(blocks), torch.cuda.mem_get_info()[0]
    blocks.clear()
    torch.cuda.empty_cache()
    whole = torch.empty(total, dtype=torch.uint8, device="cuda")
    stats = torch.cuda.memory_stats()
    return {
        "message": message,
        "fitted": fitted,
        "free": at_the_limit,
        "whole": whole.nbytes,
        "ooms": stats["num_ooms"],
        "retries": stats["num_alloc_retries"],
    }


def memory_taken() -> dict[str, Any]:
    """Something else takes all but 4 MiB while the process runs, and gives it back."""
    torch.empty(1, device="cuda")  # 2 MiB are reserved, the rest is free
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    cuda_standin.take(0, free - 4 * MIB)
    left, message, refusals = torch.cuda.mem_get_info()[0], "", []
    try:
        torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        message = str(error)
    cuda_standin.give_back(0, 4 * MIB)
    half = torch.cuda.mem_get_info()[0]
    for call, device, size in (
        (cuda_standin.take, 0, free),
        (cuda_standin.take, 1, 1),
        (cuda_standin.give_back, 0, free),
    ):
        try:
            call(device, size)
        except ValueError as error:
            refusals.append(str(error))
    cuda_standin.give_back(0)
    fits = torch.empty(free // 2, dtype=torch.uint8, device="cuda").numel() == free // 2
    return {"left": left, "half": half, "message": message, "refusals": refusals, "fits": fits}


def scaled_step() -> dict[str, Any]:
    """Three steps under autocast with GradScaler, its scale growing after two."""
    with Values():
        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
        scales, types = [], set()
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.float16):
                output = model(torch.ones(8, 64, device="cuda"))
            types.add(str(output.dtype))
            scaler.scale(output.float().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
        steps = {float(state["step"]) for state in optimizer.state.values()}
    return {"scales": scales, "types": sorted(types), "steps": sorted(steps), "unsupported": cuda_standin.unsupported()}


def ctc_training() -> dict[str, Any]:
    """Three steps of a small wav2vec2 with CTC in fp16, as a training loop has them."""
    from cuda_tests.ctc import CtcRun, small_wav2vec2

    with Values():
        run = CtcRun(small_wav2vec2())
        for _ in range(3):
            run.step()
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "steps": run.optimizer_steps(),
        "unsupported": cuda_standin.unsupported(),
    }


def checkpointed_training() -> dict[str, Any]:
    """The same with checkpoints, whose second forward pass runs in autograd's thread and chooses masked positions."""
    from cuda_tests.ctc import CtcRun, small_wav2vec2

    with Values():
        run = CtcRun(small_wav2vec2(mask_time_prob=0.2), checkpointing=True)
        for _ in range(2):
            run.step()
    return {"allocated": torch.cuda.max_memory_allocated(), "unsupported": cuda_standin.unsupported()}


def two_devices() -> dict[str, Any]:
    """Values that travel from one device to the other, and each device's own limit."""
    there = torch.arange(1000).to("cuda:0").to("cuda:1")
    taken = [torch.cuda.memory_allocated(i) for i in range(2)]
    refused = []
    for i in range(2):
        try:
            torch.empty(300 * MIB, dtype=torch.uint8, device=f"cuda:{i}")
        except torch.OutOfMemoryError:
            refused.append(i)
    return {
        "names": [torch.cuda.get_device_name(i) for i in range(2)],
        "equal": there.cpu().tolist() == list(range(1000)),
        "peer": torch.cuda.can_device_access_peer(0, 1),
        "taken": taken,
        "refused": refused,
    }


def data_parallel() -> dict[str, Any]:
    """DataParallel's weights arrive on the second device, and its gradients take memory on both."""
    seen: list[tuple[str, bool]] = []

    class Layer(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            seen.append((str(batch.device), bool((self.weight.cpu() == 0.5).all())))
            return super().forward(batch)

    layer = Layer(64, 8, bias=False)
    torch.nn.init.constant_(layer.weight, 0.5)
    model = torch.nn.DataParallel(layer.cuda())
    model(torch.randn(4, 64).cuda()).sum().backward()
    gradient = layer.weight.grad
    assert gradient is not None
    return {"seen": sorted(seen), "gradient": str(gradient.device), "unsupported": cuda_standin.unsupported()}


def expandable_segments() -> dict[str, Any]:
    """A segment that grows keeps what it holds, and gives its memory back."""
    first = torch.arange(5 * MIB).cuda()
    segments = [len(torch.cuda.memory._snapshot()["segments"])]
    second = torch.ones(40 * MIB, dtype=torch.uint8).cuda()
    found = torch.cuda.memory._snapshot()["segments"]
    segments.append(len(found))
    kept = torch.equal(first.cpu(), torch.arange(5 * MIB)) and bool((second.cpu() == 1).all())
    free = [torch.cuda.mem_get_info()[0]]
    refused = False
    try:
        torch.empty(2**30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        refused = True
    del second
    torch.cuda.empty_cache()
    free.append(torch.cuda.mem_get_info()[0])
    return {
        "segments": segments,
        "expandable": [s["is_expandable"] for s in found],
        "kept": kept and torch.equal(first.cpu(), torch.arange(5 * MIB)),
        "refused": refused,
        "given_back": free[1] - free[0],
    }


def snapshot_keys() -> dict[str, Any]:
    """The keys of each part of a snapshot, and the sizes of what is allocated and freed."""
    torch.cuda.memory._record_memory_history(max_entries=100)
    first = torch.empty(1000, device="cuda")
    second = torch.empty(5 * MIB, device="cuda")
    del first, second
    torch.cuda.empty_cache()
    kept = torch.empty(300, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    (segment,), (events,) = snapshot["segments"], snapshot["device_traces"]
    block = next(b for b in segment["blocks"] if b["state"] == "active_allocated")
    settings = snapshot["allocator_settings"]
    return {
        "snapshot": sorted(snapshot),
        "segment": sorted(segment),
        "block": sorted(block),
        "frame": sorted(block["frames"][0]),
        "events": sorted({key for event in events for key in event}),
        "settings": {name: settings[name] for name in ("expandable_segments", "max_split_size")},
        "actions": [[e["action"], e["size"]] for e in events],
        "types": [type(segment["segment_pool_id"]).__name__, type(events[0]["user_metadata"]).__name__],
        "kept": [block["size"], block["requested_size"], 4 * kept.numel()],
    }


def guarded_trainings() -> dict[str, Any]:
    """Trainings that run out of memory with each kind of snapshot, and those snapshots in figures."""
    import tempfile

    from cuda_tests.ctc import guarded_trainer

    found = {}
    held: list[int] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *_: held.append(torch.cuda.memory_allocated()))
    for mode in ("off", "blocks", "history"):
        held.clear()
        with tempfile.TemporaryDirectory() as folder, Values():
            trainer, guard = guarded_trainer(folder, mode)
            trainer.train()
            recording = torch._C._cuda_isHistoryEnabled()
            guard.detach()
            events = [[str(e), e.snapshot.removeprefix(folder)] for e in guard.events]
            found[mode] = {
                "events": events,
                "files": _snapshot_figures(folder),
                "held": held[0],
                "recording": [recording, torch._C._cuda_isHistoryEnabled()],
            }
        del trainer, guard
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # torch before 2.15 keeps them
        torch.cuda.empty_cache()
    return found


def _snapshot_figures(folder: str) -> dict[str, Any]:
    figures = {}
    for path in Path(folder).glob("*.pickle"):
        snapshot = pickle.loads(path.read_bytes())
        held: dict[str, int] = {}
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    kind = block["frames"][0]["filename"] if block["frames"] else ""
                    held[kind] = held.get(kind, 0) + block["size"]
        (trace,) = snapshot["device_traces"]
        figures[path.name] = {
            "allocated": sum(held.values()),
            "parameters": held.get("parameters"),
            "last": trace[-1]["action"] if trace else None,
            "stack": " ".join(frame["name"] for frame in trace[-1]["frames"]) if trace else "",
        }
    return figures


def pinned_memory() -> dict[str, Any]:
    data = torch.utils.data.TensorDataset(torch.arange(64))
    batches = [batch for (batch,) in torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        copies = [batch.to("cuda", non_blocking=True) for batch in batches]
    stream.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for event in events:
        event.record()
    return {
        "pinned": all(batch.is_pinned() for batch in batches),
        "ordinary": torch.arange(3).is_pinned(),
        "values": torch.cat([copy.cpu() for copy in copies]).tolist(),
        "milliseconds": events[0].elapsed_time(events[1]),
    }


def planned_copies() -> dict[str, Any]:
    """A guarded training in micro-batches by a plan that pins memory: what its loader does, and the clips it trains."""
    import tempfile

    from transformers import Trainer

    from asrconfig_go.guard import attach
    from training_fixtures import make_plan

    class Noting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))
            self.seen: list[tuple[str, list[int]]] = []

        def forward(self, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            self.seen.append((labels.device.type, labels.tolist()))
            return {"loss": self.scale * labels.float().mean()}

    batch = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    plan = make_plan(dataloader_pin_memory=True, gpu_name="Tesla T4", num_train_epochs=1.0, seed=1, **batch)
    with tempfile.TemporaryDirectory() as folder, Values():
        arguments = plan.to_training_arguments(folder, report_to=[], save_strategy="no", disable_tqdm=True)
        trainer = Trainer(Noting(), arguments, train_dataset=[{"labels": i} for i in range(32)])
        attach(trainer, micro_batch=2, rule="mean")
        trainer.train()
    loader = trainer.get_train_dataloader()
    parts = trainer.model.seen
    return {
        "loader": [loader.pin_memory, loader._non_blocking],
        "devices": sorted({device for device, _ in parts}),
        "clips": sorted(clip for _, clips in parts for clip in clips),
        "sizes": sorted({len(clips) for _, clips in parts}),
    }


def without_a_meaning() -> dict[str, Any]:
    """A decomposition, a graph: each ends with an error that Python sees, and is listed."""
    errors = []
    calls: tuple[Callable[[], Any], ...] = (lambda: torch.linalg.svd(torch.eye(3, device="cuda")), _capture)
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            errors.append(type(error).__name__)
    known = ["RuntimeError", getattr(torch, "AcceleratorError", RuntimeError).__name__]
    return {
        "errors": errors,
        "known": known,
        "unsupported": cuda_standin.unsupported(),
        "lacking": cuda_standin.lacking(),
    }


def _capture() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass


def small_values() -> dict[str, Any]:
    """Masks, lengths and indices as the CPU has them."""
    with Values():
        lengths = torch.tensor([3, 1, 2], device="cuda")
        mask = torch.arange(4, device="cuda")[None, :] < lengths[:, None]
        values = torch.arange(12, device="cuda").reshape(3, 4)
        values[~mask] = -1
        repeated = torch.arange(3, device="cuda").repeat_interleave(lengths)
        drawn = torch.randint(5, 8, (100,), device="cuda")
        return {
            "mask": mask.tolist(),
            "values": values.tolist(),
            "chosen": values[mask].tolist(),
            "positions": mask.nonzero().tolist(),
            "selected": torch.masked_select(values, mask).tolist(),
            "count": mask.sum().item(),
            "any": bool((lengths > 2).any()),
            "turned": values.t().cpu().tolist(),
            "repeated": repeated.tolist(),
            "equal": torch.equal(lengths, torch.tensor([3, 1, 2], device="cuda")),
            "drawn": [drawn.min().item(), drawn.max().item()],
            "vmapped": list(torch.vmap(lambda row: row < lengths)(values[:2, :3]).shape),  # no value inside
        }


def failing_value() -> str:
    """A result that cannot be computed on the CPU is an error with the function's name."""
    with Values():
        indices = torch.tensor([7], device="cuda")
        try:
            torch.arange(3, device="cuda")[indices]
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}"
    return "no error"


def allocations_of_pieces() -> dict[str, list[tuple[int, int]]]:
    """What each of pieces.py allocates, where the card's convolutions and products take its type."""
    from cuda_tests import pieces as cuda_pieces

    kept = {name: piece for name, piece in cuda_pieces.PIECES.items() if cuda_pieces.runs_on(piece)}
    if find_spec("bitsandbytes"):
        replace_kernels()
    return {name: cuda_pieces.on_cuda(name) for name in kept}
