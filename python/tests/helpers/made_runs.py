"""Trainings that never ran, as a monitor would have seen them: made by rule, within what a machine can do."""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from run_logs import GIB, Json, empty, put_activity, put_alert, put_event, put_memory, put_step, saved

CONTEXT, TOTAL = 0.5, 24.0  # GiB
WEIGHTS, LEAST, MOST, KEPT = 4.0, 3.0, 8.0, 2.2  # GiB: of the model, of a batch, and what an evaluation takes beside it
GAP, LEAK, ALERT, SAVED = (0.62, 0.65), 0.75, 0.82, (0.2, 0.4, 0.6, 0.8)  # shares of the time


@dataclass
class _Card:
    """The memory of one GPU at each step, in GiB: what stays, its peak, and PyTorch's cache, which only grows."""

    ends: list[float] = field(default_factory=list)
    level: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)
    reserved: list[float] = field(default_factory=list)

    def add(self, end: float, level: float, batch: float) -> None:
        peak = min(level + batch, TOTAL - CONTEXT)
        self.ends.append(end)
        self.level.append(level)
        self.peak.append(peak)
        self.reserved.append(max(peak, self.reserved[-1] if self.reserved else 0.0))

    def used(self, at: float) -> float:
        """What the driver has in use: the cache of the step that runs, and the context."""
        return (CONTEXT + self.reserved[min(bisect_left(self.ends, at), len(self.ends) - 1)]) * GIB


def trained(
    seconds: float = 1800.0,
    gpus: int = 1,
    points: int = 1800,
    rows: int = 900,
    steps: int = 700,
    leak: bool = True,
    seed: int = 7,
) -> Json:
    """A training of ``seconds`` with an evaluation each fifth of it, and a gap; with ``leak`` it ends out of memory."""
    chance, run_log = random.Random(seed), empty(gpus)
    gap = (GAP[0] * seconds, GAP[1] * seconds)
    cards = [_Card() for _ in range(max(1, gpus))]
    since = _steps(run_log, chance, cards, seconds, steps, leak and gpus > 0)
    put_event(run_log, 0.5, "training", "training begins")
    put_event(run_log, gap[1], "gap", f"no samples for {gap[1] - gap[0]:.0f} s: the machine slept")
    put_event(run_log, 0.7 * seconds, "throttled", "held back by its temperature, 84 °C", 0 if gpus else -1)
    for at in _awake(seconds, points, gap):
        put_memory(run_log, at, _host_used(at / seconds) * GIB, *(int(card.used(at)) for card in cards[:gpus]))
    for at in _awake(seconds, rows, gap):
        put_activity(
            run_log, at, *(_gpu_row(chance, at, seconds) for _ in range(gpus)), **_host_row(chance, at, seconds)
        )
    if gpus and leak:
        _warned(run_log, cards[0], seconds, since)
    else:
        put_event(run_log, seconds, "training", f"training ends after step {run_log['steps']['number'][-1]}")
    check_possible(run_log)
    return run_log


def _awake(seconds: float, count: int, gap: tuple[float, float]) -> list[float]:
    return [at for at in (seconds * i / count for i in range(count)) if not gap[0] < at < gap[1]]


def _evaluates(part: float) -> bool:
    return part > 0.1 and (part * 5) % 1 > 0.93


def _steps(run_log: Json, chance: random.Random, cards: list[_Card], seconds: float, steps: int, leak: bool) -> int:
    """The steps one after the other, with checkpoints and a gap between them; gives that since which memory leaks."""
    save = 0.004 * seconds
    spent = (seconds * (1 - GAP[1] + GAP[0]) - len(SAVED) * save) / steps
    at, number, since, saved, slept = 0.0, 0, 0, list(SAVED), False
    for i in range(steps):
        if not slept and at + spent > GAP[0] * seconds:
            at, slept = max(at, GAP[1] * seconds), True
        at = min(at + spent, seconds)
        part = at / seconds
        kind = "evaluation" if _evaluates(part) else "train"
        number += kind == "train"
        grown = max(0.0, (part - LEAK) / (1 - LEAK)) * (TOTAL - CONTEXT - WEIGHTS - MOST) if leak else 0.0
        since = since or (number if part > LEAK else 0)
        batch = MOST if i + 1 == steps else chance.uniform(LEAST, MOST)
        for card in cards:
            card.add(at, WEIGHTS + (grown if card is cards[0] else 0), batch + (KEPT if kind == "evaluation" else 0))
        put_step(
            run_log, at, number, kind, 0 if run_log["gpus"] else -1, **_step(chance, cards[0], part, spent, run_log)
        )
        if saved and part >= saved[0]:
            at += save
            put_step(run_log, at, number, "checkpoint", spent_s=save)
            del saved[0]
    return since


def _step(chance: random.Random, card: _Card, part: float, spent: float, run_log: Json) -> dict[str, Any]:
    audio = 32 * chance.uniform(4, 12)
    known: dict[str, Any] = {
        "spent_s": spent,
        "waited_s": spent * (0.5 if 0.3 < part < 0.45 else 0.04),
        "audio_s": audio,
        "padded_s": 1.2 * audio,
        "longest_s": 1.2 * audio / 32,
    }
    if not run_log["gpus"]:
        return known
    return known | {
        "allocated_bytes": int(card.level[-1] * GIB),
        "reserved_bytes": int(card.reserved[-1] * GIB),
        "peak_allocated_bytes": int(card.peak[-1] * GIB),
        "peak_reserved_bytes": int(card.reserved[-1] * GIB),
        "headroom_bytes": int((TOTAL - CONTEXT - card.level[-1]) * GIB),
    }


def _gpu_row(chance: random.Random, at: float, seconds: float) -> Json:
    starved = 0.3 < at / seconds < 0.45
    busy = chance.uniform(0.25, 0.5) if starved else chance.uniform(0.82, 0.97)
    heat = 55 + 29 * min(1.0, at / (0.7 * seconds))
    hot = at > 0.7 * seconds
    return {
        "utilization": busy,
        "memory_busy": 0.6 * busy,
        "power_w": 20 + 50 * busy,
        "temperature_c": round(heat),
        "clock_mhz": 1400 if hot else 1900,
        "throttle": 2 if hot else 0,
        "pcie_received_bytes_s": 2e8 * busy,
        "pcie_sent_bytes_s": 3e7,
        "ecc_uncorrected": 0,
        "others_bytes": 0,
    }


def _workers(part: float) -> float:
    """GiB: they grow for a fifth of the time."""
    return 2 + 16 * min(1.0, max(0.0, part - 0.2) / 0.2)


def _host_used(part: float) -> float:
    return 7 + _workers(part)


def _host_row(chance: random.Random, at: float, seconds: float) -> Json:
    workers = int(_workers(at / seconds) * GIB)
    return {
        "cpu_share": chance.uniform(0.4, 0.7),
        "tree_cpu_share": 0.35,
        "busiest_core": chance.uniform(0.9, 1.0),
        "host_available_bytes": 32 * GIB - int(_host_used(at / seconds) * GIB),
        "swap_used_bytes": 0,
        "tree_rss_bytes": workers + 4 * GIB,
        "workers_rss_bytes": workers,
        "shm_used_bytes": int(0.8 * GIB),
        "disk_read_bytes_s": 6e7 * chance.random(),
        "disk_written_bytes_s": 1e5,
        "net_received_bytes_s": 1e4,
        "net_sent_bytes_s": 1e4,
    }


def _warned(run_log: Json, card: _Card, seconds: float, since: int) -> None:
    pace, left = 16 / (0.2 * seconds), 32 - _host_used(0.32)  # GiB a second, GiB
    put_alert(
        run_log, 0.32 * seconds, "workers_ram",
        f"The DataLoader workers' RAM grows {60 * pace:.2f} GiB/min and reaches the limit of 32.0 GiB in about "
        f"{left / pace / 60:.0f} min", bytes_per_s=pace * GIB, seconds_left=left / pace,
        advice="halve dataloader_num_workers", cleared_s=0.5 * seconds,
    )  # fmt: skip
    at, first = (bisect_left(card.ends, share * seconds) for share in (ALERT, LEAK))
    growth = (card.level[-1] - card.level[first - 1]) / (len(card.ends) - first)
    steps, step_s = (TOTAL - CONTEXT - MOST - card.level[at]) / growth, card.ends[at] - card.ends[at - 1]
    put_alert(
        run_log, card.ends[at], "leak",
        f"GPU memory grows {growth * 1024:.1f} MiB/step since step {since}: out of memory in about {steps:.0f} steps",
        gpu=0, severity="critical", since_step=since, bytes_per_step=growth * GIB, steps_left=steps,
        seconds_left=steps * step_s,
        advice="something keeps a tensor of every step: sum up loss.item() or loss.detach(), not loss",
    )  # fmt: skip
    put_event(run_log, seconds, "out_of_memory", "CUDA out of memory. Tried to allocate 1.20 GiB.", 0)


def logged(run_log: Json, every: int = 10, wer: float = 0.2, seed: int = 3) -> Json:
    """A ``trainer_state.json`` of that training: losses fall, one value is missing."""
    chance, kinds, numbers = random.Random(seed), run_log["steps"]["kind"], run_log["steps"]["number"]
    history: list[Json] = []
    last, top = max(numbers), 5e-4
    for i, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
        fallen = math.exp(-6 * number / last)
        if kind == "train" and number % every == 0:
            loss = (0.25 + 3 * fallen) * chance.uniform(0.9, 1.1)
            rate = top * min(1.0, 10 * number / last, 1.11 * (1 - number / last))
            history.append({"step": number, "loss": None if number == 20 * every else loss, "learning_rate": rate})
        if kind == "evaluation" and (i + 1 == len(kinds) or kinds[i + 1] != "evaluation"):
            history.append({"step": number, "eval_loss": 0.35 + 2.4 * fallen, "eval_wer": wer + (0.95 - wer) * fallen})
    most = last if not run_log["alerts"] else round(1.25 * last, -1)  # it ended out of memory, before its end
    return {"global_step": last, "max_steps": most, "epoch": round(3 * last / most, 2), "log_history": history}


def put_run(folder: Path, run_log: Json, batch: int = 8, wer: float = 0.2) -> Path:
    """The folder of that training: its run log, the Trainer's state, and a plan of 32 clips a step."""
    saved(run_log, folder / "asrconfig_monitor.json")
    plan = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": 32 // batch, "device_count": 1}
    for name, told in (("trainer_state", logged(run_log, wer=wer)), ("training_config", plan)):
        (folder / f"{name}.json").write_text(json.dumps(told))
    return folder


def week(gpus: int = 8) -> Json:
    """A run of seven days in all the points that a monitor keeps."""
    return trained(seconds=7 * 86400.0, gpus=gpus, points=16384, rows=8192, steps=16384)


_LIMIT = 0.95  # of a GPU: memory ran out with at least that in use


def check_possible(run_log: Json) -> None:
    """Raises ``ValueError`` that names the first figure of a run log that no machine could have."""
    for what, small, large in _pairs(run_log):
        for i, (low, high) in enumerate(zip(small, large, strict=True)):
            if low is not None and high is not None and low > high:
                raise ValueError(f"{what}: {low:g} > {high:g} in entry {i}")


def _pairs(run_log: Json) -> Iterator[tuple[str, Iterable[Any], Iterable[Any]]]:
    """What it is about, figures, and what each of them cannot exceed."""
    steps, host, memory, activity = (run_log[key] for key in ("steps", "host", "memory", "activity"))

    def limits(column: list[Any], most: float) -> tuple[list[Any], list[float]]:
        return column, [most] * len(column)

    for series in (memory, activity, steps):
        yield "time goes on", series["times_s"][:-1], series["times_s"][1:]
    yield "host RAM ≤ its total", *limits(memory["host_used_bytes"], host["total_bytes"])
    yield "/dev/shm ≤ its total", *limits(activity["shm_used_bytes"], host["shm_total_bytes"])
    for name in ("cpu_share", "tree_cpu_share", "busiest_core"):
        yield f"{name} ≤ 1", *limits(activity[name], 1)
    for small, large in (
        ("waited_s", "spent_s"), ("audio_s", "padded_s"), ("allocated_bytes", "peak_allocated_bytes"),
        ("allocated_bytes", "reserved_bytes"), ("peak_allocated_bytes", "peak_reserved_bytes"),
    ):  # fmt: skip
        yield f"{small} ≤ {large}", steps[small], steps[large]
    for i, gpu in enumerate(run_log["gpus"]):
        used, rows = memory["gpu_used_bytes"][i], activity["gpus"][i]
        yield f"GPU {i}: memory in use ≤ its total", *limits(used, gpu["total_bytes"])
        mine = [n == i for n in steps["gpu"]]
        reserved = [b for b, is_mine in zip(steps["peak_reserved_bytes"], mine, strict=True) if is_mine]
        yield f"GPU {i}: reserved ≤ its total", *limits(reserved, gpu["total_bytes"])
        for name in ("utilization", "memory_busy"):
            yield f"GPU {i}: {name} ≤ 1", *limits(rows[name], 1)
        yield f"GPU {i}: power ≤ the board's limit", *limits(rows["power_w"], gpu["power_limit_w"])
        yield f"GPU {i}: clock ≤ its highest", *limits(rows["clock_mhz"], gpu["max_clock_mhz"])
        yield f"GPU {i}: out of memory at the limit", *_ran_out(run_log, i, gpu)
    spans = [(a, b) for a, b in pairwise(memory["times_s"])]
    usual = median(b - a for a, b in spans) if spans else 0.0
    slept = [(a, b) for a, b in spans if b - a > 3 * usual + 1]
    within = [at for at in steps["times_s"] if any(a < at < b - 1e-6 for a, b in slept)]
    yield "no step ends while nothing is sampled", *limits([1] * len(within), 0)


def _ran_out(run_log: Json, gpu: int, card: Json) -> tuple[list[float], list[float]]:
    """For each error the least that must have been in use, and what was."""
    memory, most = run_log["memory"], []
    for event in run_log["events"]:
        if event["kind"] == "out_of_memory" and event["gpu"] == gpu:
            before = [
                u for at, u in zip(memory["times_s"], memory["gpu_used_bytes"][gpu], strict=True) if at <= event["at_s"]
            ]
            most.append(max(before[-10:]))
    return [_LIMIT * card["total_bytes"]] * len(most), most
