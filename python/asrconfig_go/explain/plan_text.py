"""A plan's figures in words that text and HTML share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..view.units import GIB, gib
from .decisions import overridden
from .memory_bar import PlannedMemory, memory_of

if TYPE_CHECKING:
    from .._base.ranges import Range
    from ..data.profile import DatasetProfile
    from ..plan.plan_record import PlanRecord
    from .explanation import Explanation

IN_USE = "in use already"
_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "device_count")
# Overriding one of these leaves the predicted memory or times behind.
_PREDICTED_FOR = {
    *_BATCH,
    "micro_batching",
    "micro_batch_size",
    "fp16",
    "bf16",
    "tf32",
    "gradient_checkpointing",
    "torch_compile",
    "attn_implementation",
    "freeze_feature_encoder",
    "optimizer",
    "length_handling",
    "group_by_length",
    "max_length_s",
    "chunk_length_s",
    "distributed",
}


def headline(e: Explanation) -> str:
    """``8 × 4 = 32 clips a step on Tesla T4, fp16, checkpointing off; peak 11.9 of 15.0 GiB; an epoch in …``."""
    c = e.config
    checkpointing = "on" if c.gradient_checkpointing else "off"
    parts = [f"{step_words(c)} on {device_words(c)}, {c.precision}, checkpointing {checkpointing}"]
    m = memory_of(e)
    peak = gib(m.peak_bytes) if m.total_bytes is None else of_total(m.peak_bytes, m.total_bytes)
    parts.append(f"peak {peak}" + (" before your changes" if stale(c) else ""))
    if c.times is not None:
        parts.append(f"an epoch in about {lasting(c.times.epoch_hours)}")
    return "; ".join(parts)


def step_words(c: PlanRecord) -> str:
    """``8 × 4 = 32 clips a step``, or the unequal shares of the GPUs."""
    shares = [device.samples for device in c.devices]
    if len(set(shares)) > 1 and not any(row.setting in _BATCH for row in overridden(c)):
        words = f"{' + '.join(map(str, shares))} = {sum(shares)} clips a step"
    else:
        factors = [c.per_device_train_batch_size, c.gradient_accumulation_steps]
        factors += [c.device_count] if c.device_count > 1 else []
        product = f"{' × '.join(map(str, factors))} = " if any(factor > 1 for factor in factors[1:]) else ""
        words = f"{product}{c.effective_batch_size} clips a step"
    if c.micro_batching == "memory":
        words += f", cut by memory (at least {c.micro_batch_size} at once)"
    return words


def device_words(c: PlanRecord) -> str:
    """``Tesla T4``, ``2 × Tesla T4``, ``NVIDIA L4 + Tesla T4``, ``the CPU``."""
    if not c.gpu_name:
        return "the CPU"
    names = Counter(device.name for device in c.devices)
    if sum(names.values()) != c.device_count:
        names = Counter({c.gpu_name: c.device_count})
    return " + ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items())


def stale(c: PlanRecord) -> list[str]:
    """Overridden settings that the predictions do not know of."""
    return [row.setting for row in overridden(c) if row.setting in _PREDICTED_FOR]


def of_total(part: int, whole: int) -> str:
    """``11.9 of 15.0 GiB``; a small part in MiB."""
    if part < 0.095 * GIB:
        return f"{part / 2**20:.0f} MiB of {gib(whole)}"
    return f"{part / GIB:.1f} of {gib(whole)}"


def lasting(hours: Range) -> str:
    """``1.2 h (0.7–2.1)``, short times in minutes or seconds."""
    unit, scale = ("h", 1) if hours.likely >= 0.95 else ("min", 60) if hours.likely * 60 >= 0.95 else ("s", 3600)
    return f"{short(hours.likely * scale)} {unit} ({short(hours.low * scale)}–{short(hours.high * scale)})"


def ranged(r: Range, unit: str = "") -> str:
    """``1.3 $ (0.8–2.1)``."""
    return f"{short(r.likely)}{unit and ' ' + unit} ({short(r.low)}–{short(r.high)})"


def short(x: float) -> str:
    """Two digits that count, or all of a larger number."""
    return f"{x:.0f}" if x >= 99.5 else f"{x:.2g}"


def times_rows(c: PlanRecord) -> list[tuple[str, str]]:
    """What training takes, a name and a range each; nothing where no speed is known."""
    t = c.times
    if t is None:
        return []
    epochs = f"{c.num_train_epochs:g} epoch" + ("" if c.num_train_epochs == 1 else "s")
    rows = [
        ("epoch", lasting(t.epoch_hours)),
        (f"run of {epochs}", lasting(t.run_hours)),
        ("step", ranged(t.step_s, "s")),
        ("audio", ranged(t.audio_rate, "s/s")),
        ("bound by", t.bound),
    ]
    rows += [("cost of run", ranged(t.cost_usd, "US$"))] if t.cost_usd is not None else []
    rows += [("energy of run", ranged(t.energy_kwh, "kWh"))] if t.energy_kwh is not None else []
    return rows


def times_source(c: PlanRecord) -> str:
    """Where the times come from."""
    if c.times is None:
        return ""
    return "by measured steps" if c.times.calibrated else "estimate with its range, without evaluations"


def percentile_words(d: DatasetProfile) -> str:
    """``percentiles in seconds: 5 % 3.1, 25 % 5.2, …``."""
    shown = (f"{name[1:]} % {d.percentiles_s[name]:.3g}" for name in ("p5", "p25", "p75", "p90", "p99"))
    return f"percentiles in seconds: {', '.join(shown)}"


def limit_words(c: PlanRecord) -> list[tuple[float, str]]:
    """Where clips are left out or cut, in seconds, with words for it."""
    limits = []
    if c.max_length_s is not None:
        limits.append((c.max_length_s, f"longer than {c.max_length_s:g} s: left out"))
    if c.chunk_length_s is not None:
        limits.append((c.chunk_length_s, f"longer than {c.chunk_length_s:g} s: cut"))
    return limits


def part_rows(m: PlannedMemory) -> list[tuple[str, str, int]]:
    """Of each part its key, its name in words, and bytes."""
    return [(part.name, part.name.replace("_", " "), part.bytes) for part in m.parts]


def memory_lines(m: PlannedMemory) -> list[tuple[str, int, int]]:
    """What the bar is held against: a name, bytes, and where the line is, which is behind what was in use before."""
    lines = [("peak", m.peak_bytes)]
    if m.high_bytes is not None and m.high_bytes > m.peak_bytes:
        lines.append(("worst order", m.high_bytes))
    if m.budget_bytes is not None:
        lines.append(("budget", m.budget_bytes))
    placed = [(name, held, m.others_bytes + held) for name, held in lines]
    return placed if m.total_bytes is None else [*placed, ("total", m.total_bytes, m.total_bytes)]


def device_rows(c: PlanRecord) -> list[tuple[str, ...]]:
    """A head and a row for each GPU, where there are several."""
    if len(c.devices) < 2:
        return []
    rows = [
        (f"{d.index}", d.name, f"{d.samples}", f"{d.micro_batch_size}", gib(d.peak_bytes), gib(d.budget_bytes))
        for d in c.devices
    ]
    return [("GPU", "name", "clips a step", "micro-batch", "peak", "budget"), *rows]


def bucket_rows(c: PlanRecord) -> list[tuple[str, ...]]:
    """A head and a row for each range of durations."""
    if not c.length_buckets:
        return []
    rows, low = [], 0.0
    for bucket in c.length_buckets:
        fits = "–" if bucket.micro_batch is None else f"{bucket.micro_batch}"
        rows.append((f"{low:.3g}–{bucket.up_to_s:.3g} s", f"{bucket.clips}", fits))
        low = bucket.up_to_s
    return [("durations", "clips", "micro-batch"), *rows]


def alternative_rows(c: PlanRecord) -> list[tuple[str, ...]]:
    """A head, the plan itself, and the other ways; nothing where a plan has none."""
    if not c.alternatives:
        return []
    epoch = "–" if c.times is None else lasting(c.times.epoch_hours)
    rows = [("this plan", plan_words(c), "yes", gib(c.predicted_bytes), epoch, "")]
    rows += [
        (
            way.name,
            way.what,
            "?" if way.fits is None else "yes" if way.fits else "no",
            gib(way.peak_bytes),
            "–" if way.epoch_hours is None else lasting(way.epoch_hours),
            "–" if way.speed is None else f"{way.speed:.2f}×",
        )
        for way in c.alternatives
    ]
    return [("way", "what", "fits", "peak", "an epoch", "plan faster by"), *rows]


def plan_words(c: PlanRecord) -> str:
    """``8 × 4, fp16, checkpointing``: the plan beside its alternatives."""
    words = [f"{c.per_device_train_batch_size} × {c.gradient_accumulation_steps}", c.precision]
    words += ["checkpointing"] if c.gradient_checkpointing else []
    words += ["cut by memory"] if c.micro_batching == "memory" else []
    return ", ".join([*words, f"{c.length_handling} order"])
