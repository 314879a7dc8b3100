"""What measures a GPU by real steps (calibration, largest batch, pre-flight, benchmark), on the stand-in runtime."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import cuda_standin
import torch
from cuda_standin.values import Values
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import Trainer, TrainingArguments

from asrconfig_go.__main__ import main
from asrconfig_go.benchmark import blocks, runner
from asrconfig_go.guard import attach
from asrconfig_go.predict import MemoryModel, calibrate, find_max_batch_size
from asrconfig_go.watch import MemoryMonitor, report
from cuda_tests.ctc import LABELS, SECONDS, VOCABULARY, small_wav2vec2
from cuda_tests.plans import ALLOC_CONF, settle

BATCH = 2
MEMORY: dict[str, Any] = {"precision": "fp16", "optimizer": "adamw_torch_fused", "allocator": ""}


class Clips(torch.utils.data.Dataset):  # type: ignore[misc]
    """Clips of noise with labels at random."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(i)
        samples = int(SECONDS * 16_000)
        return {
            "input_values": torch.randn(samples, generator=draw),
            "labels": torch.randint(1, VOCABULARY, (LABELS,), generator=draw),
        }


def trainer_in(folder: str, batch: int = BATCH, **settings: Any) -> Any:
    """A Trainer of the small wav2vec2 in fp16, on cuda:0."""
    arguments = {"max_steps": 1, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", **settings}
    told = TrainingArguments(
        folder, per_device_train_batch_size=batch, fp16=True, optim="adamw_torch_fused", **arguments
    )
    return Trainer(model(), told, train_dataset=Clips())


def model() -> Any:
    return small_wav2vec2(num_hidden_layers=2, ctc_loss_reduction="mean")


def in_use() -> list[int]:
    """Allocated and reserved bytes, of what is alive."""
    gc.collect()
    torch.cuda.empty_cache()
    return [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]


def tools(folder: str) -> dict[str, Any]:
    os.environ["ASRCONFIG_CACHE"] = str(Path(folder) / "cache")
    with Values():
        calibration, largest = _calibrated(folder), _largest()
        return {
            "calibration": calibration,
            "largest": largest,
            "of a trainer": _largest_of_a_trainer(folder, largest["found"]),
            "preflight": _preflight(folder),
            "unsupported": cuda_standin.unsupported(),
        }


def _calibrated(folder: str) -> dict[str, Any]:
    trainer = trainer_in(folder)
    trainer.accelerator.scaler.set_growth_interval(1)
    with MemoryModel.trace(trainer.model, **MEMORY, progress=False) as memory:
        before, scale = in_use(), trainer.accelerator.scaler.get_scale()
        found = calibrate(trainer, memory, batch=BATCH, seconds=SECONDS, labels=LABELS)
        left = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
        corrected = memory.estimate(BATCH, SECONDS, LABELS, timeline=0).peak_reserved
        scales = [scale, trainer.accelerator.scaler.get_scale()]
        trainer.train()
        gc.collect()  # what only waits for that counts as gone
        trained, scale = [torch.cuda.memory_allocated()], trainer.accelerator.scaler.get_scale()
        calibrate(trainer, memory, batch=BATCH, seconds=SECONDS, labels=LABELS)
        return {
            "before": before,
            "left": left,
            "scales": [*scales, scale, trainer.accelerator.scaler.get_scale()],
            "trained": [*trained, torch.cuda.memory_allocated()],
            "gpu": found.gpu,
            "factor": found.factor,
            "context": found.context_bytes,
            "measured": [found.measured_allocated, found.measured_reserved],
            "predicted": [found.predicted_allocated, found.predicted_reserved],
            "corrected": corrected,
        }


def _largest() -> dict[str, Any]:
    trained = model().to("cuda:0")
    before, ooms = in_use(), torch.cuda.memory_stats()["num_ooms"]
    found = find_max_batch_size(trained, seconds=SECONDS, precision="fp16", optimizer="adamw_torch_fused")
    return {
        "found": found.micro_batch,
        "start": [found.start, found.start_source],
        "probes": [[p.batch, p.fits] for p in found.probes],
        "ooms": torch.cuda.memory_stats()["num_ooms"] - ooms,
        "states": found.optimizer_bytes,
        "before": before,
        "after": in_use(),
        "fits": [_fits(trained, found.micro_batch + more) for more in (0, 1)],
        "of the cpu": _largest_of_the_cpu(found.micro_batch),
    }


def _largest_of_the_cpu(start: int) -> dict[str, Any]:
    """Of a model that is not on the GPU yet."""
    settings: dict[str, Any] = {"seconds": SECONDS, "precision": "fp16", "optimizer": "adamw_torch_fused"}
    resting, before = model(), in_use()
    tensors = [*resting.parameters(), *resting.buffers()]
    places = [t.data_ptr() for t in tensors]
    found = find_max_batch_size(resting, start=start, **settings)
    return {
        "found": found.micro_batch,
        "probes": [[p.batch, p.fits] for p in found.probes],
        "notes": list(found.notes),
        "in place": places == [t.data_ptr() for t in (*resting.parameters(), *resting.buffers())],
        "kept": [before, in_use()],
    }


def _largest_of_a_trainer(folder: str, start: int) -> dict[str, Any]:
    trainer = trainer_in(folder)
    before = in_use()
    found = find_max_batch_size(trainer, seconds=SECONDS, start=start)
    left = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
    return {"found": found.micro_batch, "probes": [[p.batch, p.fits] for p in found.probes], "kept": [before, left]}


def _fits(trained: Any, batch: int) -> bool:
    """Whether a plain step runs behind one of a single clip, with which the optimizer's states are there."""
    optimizer = torch.optim.AdamW(trained.parameters(), fused=True)
    try:
        for size in (1, batch):
            in_use()
            values, labels = torch.randn(size, int(SECONDS * 16_000)), torch.randint(1, VOCABULARY, (size, LABELS))
            with torch.autocast("cuda", dtype=torch.float16):
                loss = trained(input_values=values.to("cuda:0"), labels=labels.to("cuda:0")).loss
            loss.backward()
            del loss
            optimizer.step()
            trained.zero_grad()
    except RuntimeError as error:  # cuDNN, too, says that it found no engine where its workspace does not fit
        assert isinstance(error, torch.OutOfMemoryError) or "unable to find an engine" in str(error)
        return False
    finally:
        trained.zero_grad()
        optimizer.state.clear()
        in_use()
    return True


def _preflight(folder: str) -> dict[str, Any]:
    trainer = trainer_in(folder, batch=48)
    guard = attach(trainer, rule="mean", preflight=SECONDS)
    trainer.train()
    assert guard.preflight is not None
    return {
        "rehearsed": [[r.place, r.samples, r.seconds, r.micro_batch] for r in guard.preflight.rehearsals],
        "optimizer": guard.preflight.optimizer.bytes,
        "events": [[e.place, e.micro_batch_before, e.micro_batch_after] for e in guard.events],
        "steps": trainer.state.global_step,
    }


def fine_tuned(folder: str) -> dict[str, Any]:
    """What ``asrconfig train`` leaves, and which allocator it trained with."""
    os.environ["ASRCONFIG_CACHE"] = str(Path(folder) / "cache")
    output = Path(folder) / "model"
    told = "train --model tiny-wav2vec2 --data demo --target-batch-size 4 --max-steps 1 --quiet --resume"
    with Values():
        status = main([*told.split(), "--no-check-audio", "--out", str(output)])
    found = report(output)
    return {
        "status": status,
        "steps": found.steps.train,
        "gpu": [found.gpus[0].name, found.gpus[0].used_peak_bytes],
        "reserved": found.gpus[0].reserved_peak_bytes,
        "allocator": os.environ.get(ALLOC_CONF),
        "expandable": sorted({s["is_expandable"] for s in torch.cuda.memory._snapshot()["segments"]}),
        "saved": (output / "model.safetensors").exists(),
        "unsupported": cuda_standin.unsupported(),
    }


class _SettledMonitor(MemoryMonitor):
    """Lets each optimizer step end behind a reading that began when its memory was reserved, however short it is."""

    def __init__(self) -> None:
        super().__init__()
        register_optimizer_step_post_hook(lambda *_: settle(self))


def benchmarked(folder: str) -> dict[str, Any]:
    """What ``asrconfig benchmark`` prints as JSON, and how many loader workers were left at each clean-up.

    The same model as in ``fine_tuned`` of the same folder, which has traced it.
    """
    os.environ["ASRCONFIG_CACHE"] = str(Path(folder) / "cache")
    workers = list[int]()
    free = vars(blocks)["free_memory"]

    def counting() -> None:
        workers.append(len(multiprocessing.active_children()))
        free()

    vars(blocks)["free_memory"] = counting
    vars(runner)["MemoryMonitor"] = _SettledMonitor
    told = "benchmark --model tiny-wav2vec2 --data demo --target-batch-size 4 --steps 1 --rounds 1 --warm-up 1"
    with contextlib.redirect_stdout(io.StringIO()) as printed, Values():
        status = main([*told.split(), "--sweep", "none", "--no-loader", "--json"])
    result = json.loads(printed.getvalue())
    return {
        "status": status,
        "device": result["setting"]["device"],
        "workers": [result["plan"]["settings"]["dataloader_num_workers"], *workers],
        "precision": result["plan"]["settings"]["fp16"],
        "blocks": [
            [len(block["steps"]), block["peak_allocated_bytes"], block["peak_reserved_bytes"], block["out_of_memory"]]
            for block in result["plan"]["blocks"]
        ],
        "readings": [result["plan"]["readings"][name] for name in ("gpu_memory_bytes", "gpu_total_bytes")],
        "unsupported": cuda_standin.unsupported(),
    }
