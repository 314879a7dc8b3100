"""The bottleneck of the measured steps, and the change to try next."""

from __future__ import annotations

from dataclasses import dataclass

from ..report.diagnosis import Finding
from ..view.units import percent
from .measurements import OptionResult, SideResult, Spread

_WAITING = 0.15  # of a step, as core/diagnosis has it
_PADDING = 0.15  # of what is computed
_OPTIMIZER = 0.25
_OTHER = 0.15
_QUEUEING = 0.9  # of the GPU's time: it waits for its next kernel


@dataclass(frozen=True)
class _Cause:
    kind: str
    title: str
    lost: float
    """The share of a step that it takes, for the order."""
    change: str
    tries: tuple[str, ...]


def bottleneck(plan: SideResult, *, checkpointing: bool, gpu: bool) -> tuple[Finding, tuple[str, ...]]:
    """The bottleneck of the plan's side by the measured shares of its steps, and the options that may help."""
    cause = max(_causes(plan, checkpointing, gpu), key=lambda each: each.lost)
    shares = ", ".join(f"{part} {percent(share)}" for part, share in plan.shares.items())
    evidence = f"of a step: {shares}"
    if plan.padding is not None:
        evidence += f"; {percent(plan.padding)} of what is computed is padding"
        evidence += "" if plan.fixed_s is None else f" to the {plan.fixed_s:.3g} s that the model always hears"
    if plan.queueing is not None:
        evidence += f"; queueing takes the CPU {percent(plan.queueing)} of the GPU's time"
    severity = "info" if cause.kind == "compute" else "warn"
    return Finding(cause.kind, severity, cause.title, evidence, cause.change, "", ""), cause.tries


def _causes(plan: SideResult, checkpointing: bool, gpu: bool) -> list[_Cause]:
    shares, device = plan.shares, "GPU" if gpu else "training"
    model = shares["forward"] + shares["backward"]
    precise = ("precision", "compile", "attention") if gpu else ("precision", "attention")
    change = "a faster device, a smaller model or frozen layers would help"
    causes = [_Cause("compute", "Most of a step is the model's own computation", 0.0, change, precise)]
    if shares["waiting"] >= _WAITING:
        change = "let more workers prepare batches, or prepare them once with dataset.map(...)"
        title = f"The {device} waits for the data loader"
        causes.append(_Cause("loader", title, shares["waiting"], change, ("workers", "prefetch", "persistent")))
    if (plan.padding or 0.0) >= _PADDING and plan.fixed_s is None:
        lost, change = (plan.padding or 0.0) * model, "make steps of clips of similar length"
        causes.append(_Cause("padding", "Much of what is computed is padding", lost, change, ("order",)))
    if shares["optimizer"] >= _OPTIMIZER:
        change = "accumulate more clips before each step, or take a fused optimizer"
        causes.append(_Cause("optimizer", "The optimizer takes much of a step", shares["optimizer"], change, ()))
    if shares["other"] >= _OTHER:
        change = "look at a profile (profile=DIR): callbacks, copies to the device, waiting for the GPU"
        title = "Much of a step is neither model nor optimizer"
        causes.append(_Cause("trainer", title, shares["other"], change, ("pin", "compile")))
    if plan.queueing is not None and plan.queueing >= _QUEUEING:
        change = "compile the model, or compute more clips at once"
        title = "The GPU waits for its next kernel: steps are too small for it"
        causes.append(_Cause("small_batch", title, model / 2, change, ("compile", "attention")))
    if checkpointing:
        change = "keep activations where memory allows it"
        title = "The forward pass is computed twice, to save memory"
        causes.append(_Cause("checkpointing", title, shares["forward"], change, ("checkpointing",)))
    return causes


def next_change(finding: Finding, options: tuple[OptionResult, ...]) -> str:
    """What to change, with its measured gain; or that nothing of what was tried helps."""
    gains = [(option.gain, option) for option in options if option.better and option.gain is not None]
    if gains:
        gain, best = max(gains, key=lambda pair: pair[0].median)
        cpu = "" if best.cpu_gain is None else f"; by processor time {_times(best.cpu_gain)}"
        return f"set {best.change}: {_times(gain)} times as fast over the rounds{cpu}"
    tried = [f"{option.option} {option.value}" for option in options if option.gain is not None]
    if tried:
        return f"no tried change is clearly faster ({', '.join(tried)}); {finding.change}"
    return f"{finding.change} (not measured)"


def _times(gain: Spread) -> str:
    return f"{gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f})"
