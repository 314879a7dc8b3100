"""What README and guides quote, claim by claim: which script measures it, how long it may take, and how it is written.

A script writes what it measured to the file behind ``--json``; each figure is taken from there. ``quick`` is what
``make bench`` runs and ``full`` what ``make bench-full`` runs. Where ``quick`` is empty, the figures stay as they are,
with their date, until all is measured in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

AUDIO = "build/out/audio"


class Figure(NamedTuple):
    """One figure: its unit, and how it is read and rounded from what the script wrote."""

    unit: str
    of: Callable[[Any], str]


class Claim(NamedTuple):
    """One script. Commands begin with python or go, and are run in the repository."""

    quick: str
    full: str
    minutes: float
    """After which the script is killed when it is quick, and ``FULL_TIMES`` as many when it is not."""
    figures: dict[str, Figure]
    environment: str = ""
    """The virtual environment beside that of the caller that python is taken from, where it is another one."""

    def command(self, full: bool) -> str:
        return self.full if full else self.quick


FULL_TIMES = 15


def text(unit: str, *names: str) -> dict[str, Figure]:
    """Figures that the script words itself, and counts, by their own names."""

    def of(name: str) -> Figure:
        return Figure(unit, lambda found: found[name] if isinstance(found[name], str) else f"{found[name]:d}")

    return {name: of(name) for name in names}


def numbers(unit: str, places: int, *names: str) -> dict[str, Figure]:
    """Figures of so many decimal places, by their own names."""

    def of(name: str) -> Figure:
        return Figure(unit, lambda found: f"{found[name]:.{places}f}")

    return {name: of(name) for name in names}


def within(unit: str, name: str) -> dict[str, Figure]:
    """A bound, rounded up."""
    return {name: Figure(unit, lambda found: str(math.ceil(found[name])))}


def share(sampler: str) -> Figure:
    """The share of a core that a sampler takes (``monitor_cost.py``)."""
    return Figure("%", lambda found: f"{found['samplers'][sampler]['percent_of_a_core']:.2g}")


def beside(peer: str, unit: str = "×") -> Figure:
    """How many times faster a scan is than a peer, or how many times the floor's time it takes (``scan_speed.py``)."""

    def ratio(record: Any) -> str:
        return f"{next(aim['measured'] for aim in record['sets'][0]['aims'] if aim['beside'] == peer):.1f}"

    return Figure(unit, ratio)


def cost(label: str, unit: str) -> Figure:
    """A line of ``callback_cost.py``."""
    return Figure(
        unit, lambda found: f"{next(r['value'] for r in found['figures'] if r['what'].startswith(label)):.2g}"
    )


def step_cost(record: Any) -> str:
    """What guard and callback take of a short step (``step_cost.py``)."""
    both = "short step, guard + callback: more, us"
    return f"{next(row['value'] for row in record['figures'] if row['what'] == both) / 1000:.2f}"


def seconds(run: str) -> Figure:
    """What a plan takes (``plan_speed.py``)."""
    return Figure("s", lambda found: f"{found[run]['all']:.2g}")


def gains(loader: str) -> Figure:
    """The range over formats of how many times faster the cache of decoded clips is (``loading_cache.py``)."""

    def span(record: Any) -> str:
        ratios = [gains["DecodedCache"] for label, gains in record.items() if label.endswith(loader)]
        return f"{min(ratios):.2g} to {max(ratios):.2g}"

    return Figure("×", span)


def always(command: str, minutes: float, figures: dict[str, Figure]) -> Claim:
    """A script that is run the same way in both."""
    return Claim(command, command, minutes, figures)


CLAIMS = (
    always("python benchmarks/machine.py", 1, text("", "machine")),
    Claim(
        "python benchmarks/memory_truth/run.py --draws 5",
        "python benchmarks/memory_truth/run.py",
        6,
        numbers("", 0, "memory_points")
        | numbers("%", 2, "memory_transformers")
        | numbers("%", 1, "memory_cnns", "memory_other", "memory_other_cnns"),
        environment="memory_truth",
    ),
    Claim(
        "python benchmarks/plan_throughput.py --rounds 1 --tasks new-head",
        "python benchmarks/plan_throughput.py",
        6,
        text("", "plan_rounds")
        | numbers("×", 2, "plan_vs_batch1", "plan_vs_published", "plan_vs_grouping")
        | numbers("×", 2, "fixed_vs_batch1", "grouping_vs_batch1"),
    ),
    Claim(
        "python benchmarks/guard_exactness.py --quick",
        "python benchmarks/guard_exactness.py",
        6,
        text("", "guard_runs", "guard_distance", "auto_distance", "auto_died"),
    ),
    Claim(
        "python benchmarks/killed_training.py --runs 6",
        "python benchmarks/killed_training.py",
        4,
        text("", "killed"),
    ),
    Claim(
        "python benchmarks/killed_training.py --runs 6 --plain",
        "python benchmarks/killed_training.py --plain",
        4,
        text("", "killed_trainer"),
    ),
    always("python benchmarks/killed_streams.py", 2, text("", "killed_streams") | numbers("", 0, "stream_kills")),
    always(f"python benchmarks/make_audio_corpus.py {AUDIO} --only odd even --missing", 4, {}),
    always(f"python benchmarks/audio_truth.py {AUDIO}/odd", 2, text("", "audio_files", "audio_right", "audio_others")),
    always(
        f"python benchmarks/scan_speed.py {AUDIO}/even --skip-memory",
        3,
        {"scan_vs_tinytag": beside("tinytag"), "scan_vs_floor": beside("floor", "")},
    ),
    always(
        "go run ./benchmarks/forecast_truth -seed 80000000 -each 40 -normal 150 -hours 4",
        5,
        numbers("%", 1, "forecast_seen") | numbers("", 0, "forecast_trainings") | numbers("", 2, "forecast_false"),
    ),
    Claim(
        "python benchmarks/monitor_cost.py --seconds 15 --samplers ours nvitop wandb --pairs 0",
        "python benchmarks/monitor_cost.py",
        5,
        {
            "monitor_share": share("ours 100 ms"),
            "nvitop_share": share("nvitop 100 ms"),
            "wandb_share": share("wandb 100 ms"),
        },
    ),
    Claim(
        "python benchmarks/plan_speed.py --rounds 1 --clips 0",
        "python benchmarks/plan_speed.py --rounds 3",
        5,
        {"plan_cold": seconds("cold, torch imported"), "plan_warm": seconds("warm, torch imported")},
    ),
    Claim(
        "python benchmarks/step_cost.py --repeats 5 --long-rounds 0",
        "python benchmarks/step_cost.py",
        3,
        {"step_cost": Figure("ms", step_cost)},
    ),
    Claim(
        "python benchmarks/callback_cost.py --seconds 10",
        "python benchmarks/callback_cost.py",
        3,
        {"callback_step": cost("callback: all events", "µs"), "callback_thread": cost("sampler at 100 ms", "%")},
    ),
    always(
        "python benchmarks/published_times.py",
        1,
        text("%", "times_loops", "times_loops_range", "times_runs", "times_runs_range"),
    ),
    always(
        "python benchmarks/gpu_results.py",
        1,
        numbers("clips/s", 1, "gpu_plan", "gpu_grouping", "gpu_published")
        | numbers("%", 2, "gpu_memory")
        | text("", "gpu_peaks"),
    ),
    Claim(
        "",
        "python benchmarks/cuda_truth/run.py",
        30,
        text("", "cuda_trainings") | numbers("%", 1, "cuda_near") | within("%", "cuda_worst"),
    ),
    Claim("", "python benchmarks/guard_kinds.py", 30, text("", "guard_kinds")),
    Claim(
        "",
        "python benchmarks/monitor_spike.py",
        2,
        {"spike_seen": Figure("", lambda found: f"{found[0]['seen']} of {found[0]['spikes']}")},
    ),
    Claim(
        "",
        "python benchmarks/loading_cache.py --clips 64 --repeats 7",
        4,
        {"loading_no_workers": gains("DataLoader, 0 workers"), "loading_two_workers": gains("DataLoader, 2 workers")},
    ),
)
