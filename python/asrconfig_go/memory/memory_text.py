"""Memory estimates as text. Sizes in GiB are 2³⁰ bytes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..view.units import GIB

if TYPE_CHECKING:
    from .estimate import EvaluationMemory, MemoryEstimate
    from .run_memory import RunEstimate, Spread
    from .step_memory import StepsEstimate

_BAR = 32
_TOP_MODULES = 5
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_ORDER = ("parameters", "buffers", "gradients", "optimizer", "activations", "temporaries", "logits_loss", "outputs")
NO_MODULE = "(weights, optimizer, inputs: outside any module's work)"
ESTIMATOR_WORDS = {
    "trace": "traced",
    "analytic": "analytic estimate: formulas from the config, not a trace",
    "published": "published formula: a rough guess that ignores length",
}


def size(count: float | None) -> str:
    """``12.41 GiB``, small amounts as MiB or KiB; a dash for an unknown size."""
    if count is None:
        return "–"
    if abs(count) >= 0.095 * GIB:
        return f"{count / GIB:.2f} GiB"
    return f"{count / 2**20:.1f} MiB" if abs(count) >= 0.095 * 2**20 else f"{count / 2**10:.1f} KiB"


def ordered(components: dict[str, int]) -> list[tuple[str, int]]:
    """What holds memory, in the order in which it is drawn: what stays first, what comes and goes last."""
    known = {name: place for place, name in enumerate(_ORDER)}
    held = [(name, held) for name, held in components.items() if held > 0]
    return sorted(held, key=lambda item: (known.get(item[0], len(known)), item[0]))


def estimate_text(e: MemoryEstimate) -> str:
    """Verdict, breakdown bar, peak moment, phases, modules."""
    lines = [heading(e), *_wrapped(verdict(e), "  "), f"  {peaks(e)}"]
    lines += _breakdown(e)
    moment = peak_moment(e)
    if moment:
        lines += _wrapped(f"at the peak: {moment}", "  ")
    lines += _wrapped("peaks by phase: " + phases(e), "  ")
    lines += _modules(e)
    if e.evaluation is not None:
        lines += _wrapped(evaluation_words(e.evaluation), "  ")
    lines += [line for text in remarks(e) for line in _wrapped(text, "  ")]
    return "\n".join(lines)


def heading(e: MemoryEstimate) -> str:
    """The question in one line."""
    shape = "as recorded" if e.shape is None else e.shape.words()
    return f"{e.model or 'model'}, {shape}, {e.settings.words()} ({ESTIMATOR_WORDS[e.estimator]})"


def verdict(e: MemoryEstimate) -> str:
    """Whether it fits, and by how much; the need alone when there is no GPU in mind."""
    return short_verdict(e) + ("" if e.fits else _failure(e))


def short_verdict(e: MemoryEstimate) -> str:
    """The verdict without where it would stop."""
    if e.fits is None or e.headroom_bytes is None:
        return f'needs {size(e.peak_reserved)} and the CUDA context; name a GPU (gpu="L4") to see whether it fits'
    need, available = size(e.peak_device), size(e.target.available_bytes)
    if not e.fits:
        return f"does not fit {e.target.name}: needs {need}, has {available}"
    tight = f", after emptying the allocator's cache {times(e.retries)}" if e.retries else ""
    return f"fits {e.target.name}: {need} of {available}, {size(e.headroom_bytes)} to spare{tight}"


def times(count: int) -> str:
    """``once``, ``3 times``."""
    return "once" if count == 1 else f"{count} times"


def _failure(e: MemoryEstimate) -> str:
    stop = e.out_of_memory
    if stop is None:
        return ""
    where = f" in {stop.module}" if stop.module else ""
    return (
        f"; it would stop in {stop.phase} at {stop.op}{where}, asking for {size(stop.wanted)} "
        f"with {size(stop.allocated)} allocated"
    )


def peaks(e: MemoryEstimate) -> str:
    """The three figures that other tools show, told apart."""
    context = e.target.context_bytes
    source = "" if e.target.context_source == "measured" else " (by a table)"
    device = "" if context is None else f", device {size(e.peak_device)} with {size(context)} of context{source}"
    return f"peak: allocated {size(e.peak_allocated)}, reserved {size(e.peak_reserved)}{device}"


def _breakdown(e: MemoryEstimate) -> list[str]:
    whole = max(e.peak_allocated, 1)
    return [
        f"    {name:<12} {size(held):>10} {held / whole:>4.0%} |{bar(held / whole):<{_BAR}}|"
        for name, held in ordered(e.at_peak.components)
    ]


def bar(share: float, width: int = _BAR) -> str:
    """A bar in eighths of a character."""
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def peak_moment(e: MemoryEstimate) -> str:
    """Phase, operation and module of the highest allocated memory; "" when the estimator does not know."""
    if not e.at_peak.op:
        return ""
    where = f" in {e.at_peak.module}" if e.at_peak.module else ""
    return f"{e.at_peak.phase}, {e.at_peak.op}{where}"


def phases(e: MemoryEstimate) -> str:
    """The highest allocated memory in each phase, over all segments."""
    highest: dict[str, int] = {}
    for p in e.phases:
        highest[p.phase] = max(highest.get(p.phase, 0), p.peak_allocated)
    return ", ".join(f"{phase} {size(peak)}" for phase, peak in highest.items())


def _modules(e: MemoryEstimate) -> list[str]:
    rows = [m for m in e.at_peak.modules if m.bytes][:_TOP_MODULES]
    if not rows:
        return []
    return ["  held for:", *(f"    {size(m.bytes):>10}  {m.module or NO_MODULE}" for m in rows)]


def remarks(e: MemoryEstimate) -> list[str]:
    """What else the reader should know, each with its mark: a warning, a remedy, a note."""
    found = [f"! {text}" for text in (*e.warnings, *_doubt(e))]
    found += [f"→ to make it fit: {text}" for text in e.remedies]
    found += [f"· {e.calibration.words()}"] if e.calibration is not None else []
    return found + [f"· {text}" for text in e.notes]


def _doubt(e: MemoryEstimate) -> list[str]:
    """Whether it fits may hang on what the context takes, which a table knows only roughly."""
    context, high = e.target.context_bytes, e.target.context_high_bytes
    if not e.fits or context is None or high is None or (e.headroom_bytes or 0) >= high - context:
        return []
    return [f"the CUDA context may take up to {size(high)}, and then it would not fit; calibrate on the GPU to know"]


def evaluation_words(v: EvaluationMemory) -> str:
    """One batch, what stays of each sample, and a whole evaluation of a thousand samples."""
    words = (
        f"evaluation, {v.batch} × {v.seconds:g} s: {size(v.peak_allocated)} allocated; of each sample the Trainer "
        f"keeps {size(v.outputs_bytes_per_sample)}, so 1000 samples take {size(v.gpu_bytes(1000))} on the GPU and "
        f"{size(v.host_bytes(1000))} of host RAM (eval_accumulation_steps or preprocess_logits_for_metrics avoid it)"
    )
    if v.generation_cache_bytes:
        words += f"; generating keeps {size(v.generation_cache_bytes)} of keys and values"
    return words


def run_text(r: RunEstimate) -> str:
    """Peaks over the orders, and how often it runs out of memory."""
    lines = [
        f"{r.model or 'model'}, batch {r.batch}, {r.clips} clips up to {r.longest_s:.1f} s, {r.order} order, "
        f"{r.settings.words()}",
        f"  {r.steps} steps in {len(r.seeds)} orders: {run_verdict(r)}",
        f"    {'':<10} {'median':>11} {'p99':>11} {'worst':>11}",
        *(_spread(name, spread) for name, spread in run_rows(r)),
        f"  the longest clips' batch alone: allocated {size(r.largest_batch_only.peak_allocated)}, "
        f"reserved {size(r.largest_batch_only.peak_reserved)}",
    ]
    return "\n".join(lines)


def run_rows(r: RunEstimate) -> list[tuple[str, Spread]]:
    """The figures that are known."""
    rows = [("allocated", r.peak_allocated), ("reserved", r.peak_reserved)]
    return rows if r.peak_device is None else [*rows, ("device", r.peak_device)]


def run_verdict(r: RunEstimate) -> str:
    """The share of orders that run out of memory."""
    if r.target.limit_bytes is None:
        return "no GPU in mind"
    if r.out_of_memory == 0:
        return f"fits {r.target.name} in every order"
    return f"runs out of {r.target.name}'s {size(r.target.available_bytes)} in {r.out_of_memory:.0%} of them"


def steps_text(e: StepsEstimate) -> str:
    """Peaks, use and failures of a run of known micro-batches."""
    limit = "" if e.limit_bytes is None else f" of {size(e.limit_bytes)}"
    verdict = "no micro-batch is out of memory" if e.fits else f"{e.failed_steps} steps are out of memory"
    if e.first_failed_step is not None:
        verdict += f", step {e.first_failed_step} first"
    lines = [
        f"{e.model}, {e.steps} steps, {e.micro_batches} micro-batches, {e.settings.words()}",
        f"  {verdict}; {e.retries} times the cache was given back; padding {e.padding:.1%}",
        f"  peak: allocated {size(e.peak_allocated)}, reserved {size(e.peak_reserved)}{limit}",
    ]
    if e.use is not None and e.use_by_time is not None:
        lines.append(f"  a micro-batch allocates {e.use:.1%} of it, by time {e.use_by_time:.1%}")
    return "\n".join(lines)


def _spread(name: str, s: Spread) -> str:
    return f"    {name:<10} {size(s.median):>11} {size(s.p99):>11} {size(s.worst):>11}"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent=indent, subsequent_indent=indent + "    ", break_on_hyphens=False)
