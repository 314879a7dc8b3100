"""A run in a sentence, in tiles and in rows: the words that text and card share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..view.quantities import amount, clock, into_run, lasting, percent, rate, short, size
from ..view.units import plural

if TYPE_CHECKING:
    from .run_figures import GPUFigures, HostFigures
    from .run_report import RunReport

LEVELS = {"critical": "serious", "serious": "serious", "warn": "warning", "warning": "warning"}


def level_of(severity: str) -> str:
    """The level of a card's notice."""
    return LEVELS.get(severity, "note")


def headline(r: RunReport) -> str:
    """Steps and time, where, how busy, what was left of the memory, and how it ended."""
    steps = r.steps
    done = f"{plural(steps.train, 'step')} in " if steps.train else ""
    words = [f"{done}{lasting(r.timeline.duration_s)} on {_machines(r)}"]
    if steps.steps_per_s is not None:
        words.append(f"{short(steps.steps_per_s)} steps/s")
    busy = [gpu.utilization for gpu in r.gpus if gpu.utilization is not None]
    if busy:
        words.append(f"GPU {percent(sum(busy) / len(busy))} busy")
    times, tight = sum(moment.kind == "out_of_memory" for moment in r.events), tightest(r)
    if times:
        words.append(f"memory {_often(times)}")
    elif tight is not None:
        words.append(f"at least {size(tight.headroom_lowest_bytes)} of GPU memory left")
    return "; ".join(words)


def tightest(r: RunReport) -> GPUFigures | None:
    """The GPU that had the least headroom."""
    known = [gpu for gpu in r.gpus if gpu.headroom_lowest_bytes is not None]
    return min(known, key=lambda gpu: gpu.headroom_lowest_bytes or 0.0, default=None)


def _machines(r: RunReport) -> str:
    names = Counter(gpu.name or "an unknown GPU" for gpu in r.gpus)
    return " + ".join(name if n == 1 else f"{n} × {name}" for name, n in names.items()) or "the CPU"


def facts(r: RunReport) -> list[str]:
    """When, how it was sampled, what the Trainer and the guard say."""
    stories = [source.story for source in r.timeline.sources]
    begin = min(story.start_unix_nanos for story in stories) / 1e9
    samples, errors = sum(s.samples for s in stories), sum(s.errors for s in stories)
    lines = [
        f"{clock(begin)} to {clock(begin + r.timeline.duration_s)}; {plural(samples, 'sample')}, one each "
        f"{lasting(stories[0].interval_s)}" + (f", {plural(errors, 'failed reading')}" if errors else "")
    ]
    if r.gap_s:
        gaps = sum(band.kind == "gap" for band in r.marks.bands)
        lines.append(f"no samples for {lasting(r.gap_s)}, in {plural(gaps, 'gap')}")
    if len(stories) > 1:
        lines.append(f"{len(stories)} monitors: {', '.join(s.name or 'the first' for s in r.timeline.sources)}")
    if r.trainer is not None:
        lines.append(_trainer(r))
    if _cut_off(r):
        lines.append("no end of the training was told: its process was killed, or it still trains")
    if r.record is not None:
        times = len(r.record.events) + len(r.record.restarts)
        lines.append(f"guard: memory {_often(times)}")
    return lines + [str(peaks) for peaks in r.ranks] + list(r.notes)


def _cut_off(r: RunReport) -> bool:
    told = [e.text for e in r.timeline.leads[-1].story.events if e.kind == "training"]
    return any("begins" in text for text in told) and not any("ends" in text for text in told)


def _often(times: int) -> str:
    return "never ran out" if not times else "ran out once" if times == 1 else f"ran out {times} times"


def _trainer(r: RunReport) -> str:
    state = r.trainer
    assert state is not None
    words = [f"Trainer: step {state.global_step}" + (f" of {state.max_steps}" if state.max_steps else "")]
    words += [f"epoch {short(state.epoch)}"] if state.epoch is not None else []
    words += [f"last loss {short(state.last_loss)}"] if state.last_loss is not None else []
    words += [f"best metric {short(state.best_metric)}"] if state.best_metric is not None else []
    return ", ".join(words)


def tiles(r: RunReport) -> list[tuple[str, str, str]]:
    """Of each figure its name, its value and a remark; those that are known."""
    steps = r.steps
    found = [("time", lasting(r.timeline.duration_s), plural(steps.train, "step"))]
    if steps.steps_per_s is not None:
        found.append(("a step", lasting(1 / steps.steps_per_s), f"{short(steps.steps_per_s)} steps/s"))
    if steps.audio_rate is not None:
        padding = "" if steps.padding is None else f"{percent(steps.padding)} padding"
        found.append(("audio", f"{short(steps.audio_rate)} s/s", padding))
    if steps.waited is not None:
        found.append(("loader wait", percent(steps.waited), "of step time"))
    found += _gpu_tiles(r)
    peaks = [h for h in r.hosts if h.used_peak_bytes is not None]
    if peaks:
        fullest = max(peaks, key=lambda h: (h.used_peak_bytes or 0) / (h.total_bytes or 1))
        found.append(("host RAM", size(fullest.used_peak_bytes), f"peak, of {size(fullest.total_bytes)}"))
    return found


def _gpu_tiles(r: RunReport) -> list[tuple[str, str, str]]:
    found = []
    busy = [gpu.utilization for gpu in r.gpus if gpu.utilization is not None]
    if busy:
        low, high = percent(min(busy)), percent(max(busy))
        spread = f"{low} to {high}" if low != high else "of the time"
        found.append(("GPU busy", percent(sum(busy) / len(busy)), spread))
    peaks = [gpu for gpu in r.gpus if gpu.used_peak_bytes is not None]
    if peaks:
        fullest = max(peaks, key=lambda gpu: (gpu.used_peak_bytes or 0) / (gpu.total_bytes or 1))
        found.append(("GPU memory", size(fullest.used_peak_bytes), f"peak, of {size(fullest.total_bytes)}"))
    tight = tightest(r)
    if tight is not None:
        found.append(
            ("headroom", size(tight.headroom_lowest_bytes), f"least, at {into_run(tight.headroom_lowest_at_s or 0)}")
        )
    if r.energy_wh is not None:
        watts = sum(gpu.power_w or 0.0 for gpu in r.gpus)
        found.append(("energy", energy(r.energy_wh), f"mean {short(watts)} W"))
    return found


def energy(wh: float) -> str:
    """``35 Wh``, ``9.7 kWh``."""
    return f"{short(wh)} Wh" if wh < 1000 else f"{short(wh / 1000)} kWh"


def gpu_rows(r: RunReport) -> list[tuple[str, ...]]:
    """A head and a row for each GPU; nothing without any."""
    if not r.gpus:
        return []
    head = ("GPU", "name", "busy", "memory, peak", "allocated", "reserved", "headroom, lowest", "power", "energy")
    rows = [
        (
            g.label,
            g.name,
            percent(g.utilization),
            f"{size(g.used_peak_bytes)} of {size(g.total_bytes)}",
            size(g.allocated_peak_bytes),
            size(g.reserved_peak_bytes),
            size(g.headroom_lowest_bytes),
            amount(g.power_w, "W"),
            "–" if g.energy_wh is None else energy(g.energy_wh),
            amount(g.temperature_peak_c, "°C"),
            ", ".join(f"{word} {percent(part)}" for word, part in g.throttled.items()) or "–",
            size(g.others_peak_bytes),
        )
        for g in r.gpus
    ]
    return [(*head, "hottest", "held back by", "others' memory"), *rows]


def host_rows(r: RunReport) -> list[tuple[str, str]]:
    """A name and a value each, of every machine."""
    return [row for host in r.hosts for row in _host(host)]


def _host(h: HostFigures) -> list[tuple[str, str]]:
    limit = ", the container's limit" if h.contained else ""
    rows = [
        ("RAM", f"{size(h.used_peak_bytes)} at the peak of {size(h.total_bytes)}{limit}"),
        ("available, lowest", size(h.available_lowest_bytes)),
        ("this training", f"{size(h.tree_rss_peak_bytes)}, its loader workers {size(h.workers_rss_peak_bytes)}"),
        ("/dev/shm", f"{size(h.shm_peak_bytes)} at the peak of {size(h.shm_total_bytes)}"),
        ("swap", f"{size(h.swap_peak_bytes)} at the peak"),
        ("processors", f"{percent(h.cpu_share)} of {h.cpus}, the busiest core {percent(h.busiest_core)}"),
        ("disk", f"read {rate(h.disk_read_bytes_s)}, written {rate(h.disk_written_bytes_s)}"),
        ("network", f"received {rate(h.net_received_bytes_s)}, sent {rate(h.net_sent_bytes_s)}"),
    ]
    return [(f"{h.label}: {name}" if h.label else name, words) for name, words in rows]
