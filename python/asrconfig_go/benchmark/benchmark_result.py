"""The result of a benchmark; the bottleneck of its steps and what a monitor saw, by the rules of core/diagnosis."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._core import native
from .._core.records import from_json, to_json
from .._core.render import Headlined, Record, plot_all, render, save_text
from ..errors import LibraryError, NotFoundError
from ..watch.run_files import settings_of
from ..watch.telemetry import RunLog
from ..watch.watch_records import Finding
from .measurements import ENOUGH_ROUNDS, Block, LoaderResult, OptionResult, Readings, SideResult, Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


VERSION = 2  # of the JSON object


def side_json(side: SideResult) -> dict[str, Any]:
    """One side."""
    spreads = {name: getattr(side, name) for name in ("clips_per_s", "audio_per_s", "step_s", "cpu_use")}
    figures = {name: getattr(side, name) for name in ("padding", "shares", "queueing", "peak_bytes")}
    return asdict(side) | {name: value and asdict(value) for name, value in spreads.items()} | figures


def option_json(option: OptionResult) -> dict[str, Any]:
    """One change; ``verdict`` is ``better`` in words."""
    return {
        **asdict(option),
        "side": None if option.side is None else side_json(option.side),
        "better": bool(option.better),
        "verdict": option.better or ("slower" if option.worse else "no clear change"),
    }


@dataclass(frozen=True)
class Setting:
    """Where and how a benchmark was measured.

    Attributes:
        model: The name of the model.
        device: The GPU, or the CPU with its cores.
        versions: The versions of Python and of the packages, by name.
        steps: The optimizer steps of a block.
        rounds: The blocks of each side.
        warm_up: The steps before each block that are not measured.
        seed: The seed by which clips are drawn.
        minutes: The limit of time in minutes; None for no limit.
    """

    model: str
    device: str
    versions: dict[str, str]
    date: str
    """When the benchmark began, UTC."""
    epoch_clips: int
    """Usable clips of the whole dataset."""
    effective_batch: int
    steps: int
    rounds: int
    warm_up: int
    seed: int
    minutes: float | None = None


@dataclass(frozen=True, repr=False)
class BenchmarkResult(Headlined, kind="benchmark"):
    """The result of a benchmark: both sides, the loader, single changes, and the bottleneck of the plan.

    ``print`` shows text, a notebook a card.

    Attributes:
        setting: Where and how it was measured.
        plan: The measurements of the plan.
        original: The measurements of the baseline; None without a comparison.
        loader: The DataLoader alone, by number of workers and of prefetched batches.
        options: The single changes to the plan.
        bottleneck: What limits the plan's speed; None where it was not measured.
        next_change: What to change next, in words; ``""`` for nothing.
        notes: Remarks on the measurement.
        stopped: Whether Ctrl-C ended the benchmark.
        unfinished: What was left out when the time was up, or after Ctrl-C.
    """

    setting: Setting
    plan: SideResult
    original: SideResult | None
    loader: tuple[LoaderResult, ...]
    options: tuple[OptionResult, ...]
    bottleneck: Finding | None
    next_change: str
    findings: tuple[Finding, ...] = ()
    """What else the monitor saw, of a GPU."""
    profile: tuple[str, ...] = ()
    """Trace files."""
    notes: tuple[str, ...] = ()
    stopped: bool = False
    unfinished: tuple[str, ...] = ()

    @cached_property
    def speedup(self) -> Spread | None:
        """How many times faster the plan trains, by both sides' ``clips_per_s``; None without a comparison."""
        return self._ratio("seconds")

    @cached_property
    def cpu_speedup(self) -> Spread | None:
        """The speedup by processor time, which other programs on the machine hardly change; None on a GPU."""
        return self._ratio("cpu_s")

    def _ratio(self, of: str) -> Spread | None:
        if self.original is None:
            return None
        original, plan = ([getattr(turn, of) for turn in side.rounds] for side in (self.original, self.plan))
        return Spread.ratio(original, plan)

    @property
    def too_few_rounds(self) -> bool:
        """Whether fewer rounds were measured than a conclusion requires."""
        return len(self.plan.rounds) < ENOUGH_ROUNDS

    @property
    def verdict(self) -> Literal["", "faster", "slower", "undecided"]:
        """``"faster"`` or ``"slower"`` where the plan was so in every round, else ``"undecided"``.

        Too few rounds are ``"undecided"``, too. ``""`` where nothing is compared.
        """
        if self.speedup is None:
            return ""
        if self.too_few_rounds or self.speedup.low <= 1 <= self.speedup.high:
            return "undecided"
        return "faster" if self.speedup.low > 1 else "slower"

    def _shown(self) -> Record:
        return {
            **to_json(self),
            "plan": side_json(self.plan),
            "original": None if self.original is None else side_json(self.original),
            "options": [option_json(option) for option in self.options],
            "speedup": None if self.speedup is None else asdict(self.speedup),
            "cpu_speedup": None if self.cpu_speedup is None else asdict(self.cpu_speedup),
            "too_few_rounds": self.too_few_rounds,
            "verdict": self.verdict,
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with the keys of docs/reference/benchmark.md.

        Returns:
            The object; what is not known is None or empty.
        """
        return {"benchmark_version": VERSION, "headline": self.headline, **self._shown()}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row for each side, change and setting of the DataLoader.

        Args:
            path: The file to write.

        Raises:
            NotFoundError: The file cannot be written.
        """
        save_text(Path(path), render("benchmark", "csv", self._shown())["text"])

    def plot(self) -> Figure:
        """Draw speeds, the parts of a step, the loader and single changes with matplotlib.

        Colours of text and axes are matplotlib's: draw within ``pyplot.style.context("dark_background")`` for dark
        pages.

        Returns:
            The figure.

        Raises:
            UnsupportedError: matplotlib is not installed.
            NotFoundError: Nothing was measured.
        """
        if not any(side is not None and side.blocks for side in (self.original, self.plan)):
            raise NotFoundError("nothing was measured to draw", "let it run for at least one round")
        figure: Figure = plot_all("benchmark", self._shown())
        return figure


def bottleneck(
    plan: SideResult, options: Sequence[OptionResult] = (), *, checkpointing: bool, gpu: bool
) -> tuple[Finding, tuple[str, ...], str]:
    """The bottleneck of the plan's side, the options that may help, and what to change by those that were tried."""
    answer = native.call(
        "diagnosis.cause",
        {
            "shares": plan.shares,
            "padding": plan.padding,
            "fixed_s": plan.fixed_s,
            "queueing": plan.queueing,
            "checkpointing": checkpointing,
            "gpu": gpu,
            "tried": [_tried(option) for option in options if option.gain is not None],
        },
    )
    return from_json(Finding, answer["finding"]), tuple(answer["try"]), answer["next_change"]


def _tried(option: OptionResult) -> dict[str, object]:
    gains = {"gain": option.gain and asdict(option.gain), "cpu_gain": option.cpu_gain and asdict(option.cpu_gain)}
    return {"name": f"{option.option} {option.value}", "change": option.change, "better": bool(option.better), **gains}


def seen(
    run_log: RunLog | None, blocks: Sequence[Block], settings: Mapping[str, object]
) -> tuple[Readings, tuple[Finding, ...]]:
    """What the monitor read while these blocks ran, on the busiest GPU if there are several, and what it means."""
    if run_log is None or not blocks:
        return Readings(), ()
    request = {"run_log": to_json(run_log), "run": settings_of((settings,), None), "blocks": list(map(_block, blocks))}
    try:
        answer = native.call("diagnosis.blocks", request)
    except LibraryError:  # the rest of a benchmark needs none
        return Readings(), ()
    return from_json(Readings, answer["readings"]), tuple(from_json(Finding, row) for row in answer["findings"])


def _block(block: Block) -> dict[str, object]:
    names = ("begun_unix_s", "seconds", "peak_allocated_bytes", "peak_reserved_bytes")
    steps = [{"seconds": step.seconds, "waiting_s": step.waiting_s} for step in block.steps]
    return {**{name: getattr(block, name) for name in names}, "steps": steps}
