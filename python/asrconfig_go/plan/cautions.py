"""Cautions before a training starts. Each rule returns a caution or None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .._core.input_units import WORDS, RowWords
from .._core.render import gib, plural
from .decisions import (
    ExplainedPlan,
    accumulation_multiplies,
    clip_frames,
    evaluation_bytes,
    memory_of,
    overridden,
    stale,
)

LEVELS = ("serious", "warning", "note")
_EVALUATED = 1000  # clips of an evaluation whose predictions are counted, if the dataset has as many
_WORKER_BYTES = 1e9  # of a loader worker's process with torch imported, as core/plan counts it
_COLAB_BYTES = 13 * 2**30  # host RAM of Colab's machines without "high RAM": 12.7 GiB
_FEW_FRAMES = 5  # 0.1 s: less than any word lasts
_GUARD = "Train with asrconfig train or manager.train(trainer), or call manager.attach(trainer) before trainer.train()."


@dataclass(frozen=True)
class Caution:
    """``what`` is the case, ``why`` it matters, and ``remedy`` what to do; either may be "" where ``what`` says it.

    ``level`` is "serious" (training would fail or go wrong), "warning" or "note"; ``code`` names the rule.
    """

    level: str
    code: str
    what: str
    why: str = ""
    remedy: str = ""


def cautions(e: ExplainedPlan) -> tuple[Caution, ...]:
    """All that apply, the most serious first; the plan's and the dataset's own warnings among them."""
    all_cautions = [caution for rule in RULES if (caution := rule(e)) is not None]
    all_cautions += [_from_text("warning", "plan", text) for text in e.config.warnings]
    all_cautions += [_from_text("note", "dataset", text) for text in (e.dataset.warnings if e.dataset else ())]
    return tuple(sorted(all_cautions, key=lambda caution: LEVELS.index(caution.level)))


def _rows(e: ExplainedPlan) -> RowWords:
    return WORDS[e.config.row_kind]


def _from_text(level: str, code: str, text: str) -> Caution:
    """A warning as a caution: its first sentence is ``what``."""
    sentence, _, more = text.partition(". ")
    return Caution(level, code, sentence + "." * bool(more), more)


def _labels(e: ExplainedPlan) -> Caution | None:
    labels = e.labels
    if labels is None or not labels.infeasible_count:
        return None
    ctc = labels.limit == "frames"
    headline = f"{labels.infeasible_count} of {labels.checked} texts do not fit {labels.model}."
    reason = (
        "CTC finds no path through fewer frames than labels: the loss of such a clip is infinite."
        if ctc
        else "The decoder has no positions for the rest of such a text."
    )
    first = f" The first: {labels.infeasible[0]}." if labels.infeasible else ""
    remedy = "Leave out the rows in labels.infeasible_rows"
    remedy += ", or set ctc_zero_infinity=True in the model's config." * ctc
    remedy += "" if ctc else ", or shorten their texts."
    return Caution("serious", "labels", headline, reason + first, remedy)


def _label_ids(e: ExplainedPlan) -> Caution | None:
    if e.labels is None or not e.labels.findings:
        return None
    first, *others = e.labels.findings
    caution = _from_text("serious", "label_ids", first[:1].upper() + first[1:])
    return replace(caution, remedy=f"And {len(others)} more: print(labels) lists them." if others else "")


def _ctc_path(e: ExplainedPlan) -> Caution | None:
    if e.dataset is None or not e.dataset.measured_count or e.labels is not None:
        return None
    frames = clip_frames(e, e.dataset.min_s)
    if frames is None or frames >= _FEW_FRAMES:
        return None
    return Caution(
        "serious" if frames == 0 else "warning",
        "ctc_path",
        f"The shortest clip ({e.dataset.min_s:.2f} s) has {plural(frames, 'frame')}.",
        "CTC needs a frame for each label: a text with more has no path, and its loss is infinite.",
        "check_labels(dataset, tokenizer=…, model=…) finds such clips; leave them out, or set ctc_zero_infinity=True.",
    )


def _accumulation(e: ExplainedPlan) -> Caution | None:
    """A mean loss that the Trainer alone does not divide by the accumulation steps; the guard does."""
    if e.guarded:
        return None
    steps, devices = e.config.gradient_accumulation_steps, e.config.device_count
    certain = accumulation_multiplies(e)
    if steps * devices <= 1 or certain is False:
        return None
    several = [f"{steps} accumulation steps"] if steps > 1 else []
    several += [f"{devices} processes"] if devices > 1 else []
    whose = "The model's loss is a mean" if certain else "With ctc_loss_reduction='mean' the model's loss is a mean"
    return Caution(
        "warning",
        "accumulation",
        f"With {' and '.join(several)} the Trainer alone makes gradients up to {steps * devices} times too large.",
        f"{whose} over the micro-batch; it accepts num_items_in_batch without dividing by it, and the Trainer then "
        "does not divide by the steps either, and version 5 multiplies by the processes (transformers issue 47688).",
        _GUARD,
    )


def _needs_guard(e: ExplainedPlan) -> Caution | None:
    c = e.config
    if c.micro_batching != "memory":
        return None
    alone = f"{c.per_device_train_batch_size} × {c.gradient_accumulation_steps}"
    fits = c.per_device_train_batch_size <= c.micro_batch_size
    return Caution(
        "note" if e.guarded else "warning",
        "guard",
        f"The guard makes this plan's steps: {c.length_handling} {_rows(e).nouns}, micro-batches sized by predicted "
        "memory.",
        f"The Trainer alone computes batches of {alone}: "
        + ("they fit, but take longer than predicted." if fits else "they may not fit."),
        _GUARD,
    )


def _over_budget(e: ExplainedPlan) -> Caution | None:
    m = memory_of(e)
    highest = max(m.peak_bytes, m.high_bytes or 0)
    if m.budget_bytes is None or highest <= m.budget_bytes or stale(e.config):
        return None
    beyond = m.total_bytes is not None and m.others_bytes + highest > m.total_bytes
    when = "" if m.peak_bytes > m.budget_bytes else f"in the worst of the simulated orders of {_rows(e).nouns} "
    return Caution(
        "serious" if beyond else "warning",
        "over_budget",
        f"The predicted peak {when}is {gib(highest)}, over the budget of {gib(m.budget_bytes)}.",
        "It does not fit into the device." if beyond else "It takes from the safety margin.",
        f"Lower the micro-batch, turn gradient checkpointing on, or leave out the longest {_rows(e).nouns}.",
    )


def _overrides(e: ExplainedPlan) -> Caution | None:
    changed, c = stale(e.config), e.config
    if not changed:
        return None
    other = c.effective_batch_size != c.target_batch_size
    step = f": a step has {_rows(e).count(c.effective_batch_size)} instead of {c.target_batch_size}" if other else ""
    return Caution(
        "warning",
        "overrides",
        f"{', '.join(changed)} changed since the plan was made{step}.",
        "Predicted memory, times and alternatives, and the learning rate, are those of the original plan.",
        "Plan again with them as options, or check with estimate_memory(…) before you train.",
    )


def _other_machine(e: ExplainedPlan) -> Caution | None:
    if e.hardware is None:
        return None
    names = [gpu.name for gpu in e.hardware.gpus]
    planned = e.config.gpu_name
    if planned in names if planned else not names:
        return None
    here = ", ".join(dict.fromkeys(names)) or "no GPU"
    return Caution(
        "warning",
        "other_machine",
        f"The plan is for {planned or 'the CPU'}; here is {here}.",
        "Its batch and precision may not fit this device.",
        "Plan again here: manager.plan().",
    )


def _evaluation(e: ExplainedPlan) -> Caution | None:
    per_clip, assumed = evaluation_bytes(e)
    if not per_clip:
        return None
    clips = min(_EVALUATED, e.dataset.sample_count) if e.dataset else _EVALUATED
    size, c = clips * per_clip, e.config
    ram = e.hardware.memory.available_bytes if e.hardware else None
    gpu = c.budget_bytes if c.gpu_name and c.eval_accumulation_steps is None else None
    short = [name for name, room in (("GPU memory", gpu), ("host RAM", ram)) if room and 4 * size > room]
    if not short:
        return None
    steps = c.eval_accumulation_steps
    until = "all" if steps is None else f"those of {steps} batches on the GPU, all"
    return Caution(
        "warning",
        "evaluation",
        f"The predictions of {clips} evaluated {_rows(e).nouns} take at least {gib(size)}, a quarter or more of the "
        f"{' and the '.join(short)}.",
        f"The Trainer keeps {until} until the evaluation ends; {assumed}.",
        "Use predict_with_generate=True, or preprocess_logits_for_metrics=lambda logits, labels: "
        "logits[0].argmax(-1) if isinstance(logits, tuple) else logits.argmax(-1).",
    )


def _evaluation_batch(e: ExplainedPlan) -> Caution | None:
    for row in overridden(e.config):
        if row.setting == "per_device_eval_batch_size" and e.config.per_device_eval_batch_size > int(row.planned):
            return Caution(
                "warning",
                "evaluation_batch",
                f"Evaluation takes {row.value} {_rows(e).nouns} at once; {row.planned} were planned.",
                "Its activations, and the logits of a whole batch, may not fit together with the optimizer's state.",
                "Lower per_device_eval_batch_size, or attach the guard, which computes such batches in pieces.",
            )
    return None


def _host_bytes(e: ExplainedPlan) -> float:
    """RAM of the loader's workers, the batches they hold ready, and of decoded audio that is kept."""
    c, d = e.config, e.dataset
    if d is None:
        return c.dataloader_num_workers * _WORKER_BYTES
    longest = min(x for x in (d.max_s, c.max_length_s, c.chunk_length_s) if x is not None)
    ready = (c.dataloader_prefetch_factor or 0) * c.per_device_train_batch_size * longest * _rows(e).second_bytes
    cached = d.decoded_bytes * max(1, c.dataloader_num_workers) if c.cache_dataset else 0
    return c.dataloader_num_workers * (_WORKER_BYTES + ready) + cached


def _host_memory(e: ExplainedPlan) -> Caution | None:
    if e.hardware is None:
        return None
    need, ram = _host_bytes(e), e.hardware.memory.available_bytes
    if need <= ram:
        return None
    return Caution(
        "serious",
        "host_memory",
        f"Loading takes about {gib(need)} of host RAM; {gib(ram)} are available.",
        "Workers, the batches they hold ready and what is kept add up; the system kills a process when RAM runs out.",
        "Fewer dataloader_num_workers, a smaller dataloader_prefetch_factor, or cache_dataset = False.",
    )


def _colab(e: ExplainedPlan) -> Caution | None:
    c, h = e.config, e.hardware
    if h is None or h.memory.total_bytes > _COLAB_BYTES:
        return None
    need = _host_bytes(e)
    if need > h.memory.available_bytes or 4 * need <= h.memory.available_bytes:  # the former is host_memory's
        return None
    takers = [plural(c.dataloader_num_workers, "loader worker")] if c.dataloader_num_workers else []
    takers += ["decoded audio that is kept"] if c.cache_dataset else []
    return Caution(
        "warning",
        "colab_ram",
        f"{' and '.join(takers)} take about {gib(need)} of {gib(h.memory.total_bytes)} of host RAM.",
        "On a machine like Colab's the session ends when RAM runs out, without an error; torch and the model take "
        "some gigabytes of it, too.",
        "Keep dataloader_num_workers at 0 and cache_dataset at False, and decode clips as they are needed.",
    )


def _bad_files(e: ExplainedPlan) -> Caution | None:
    d = e.dataset
    if d is None or not d.bad_count:
        return None
    noun = "file" if d.row_kind == "clips" else _rows(e).noun
    part = d.bad_count / max(1, d.bad_count + d.sample_count)
    return Caution(
        "warning" if part > 0.01 else "note",
        "bad_files",
        f"{plural(d.bad_count, noun)} cannot be read and {'was' if d.bad_count == 1 else 'were'} not counted.",
        "Decoding one of them stops the training.",
        "Leave them out, or repair them: bad_files of the dataset's profile says what is wrong with each.",
    )


def _changed(e: ExplainedPlan) -> Caution | None:
    rows = [row for row in overridden(e.config) if row.setting not in stale(e.config)]
    if not rows:
        return None
    words = ", ".join(f"{row.setting} = {row.value} (planned: {row.planned})" for row in rows)
    return Caution("note", "changed", f"Changed since the plan was made: {words}.")


RULES: tuple[Callable[[ExplainedPlan], Caution | None], ...] = (
    _labels, _label_ids, _ctc_path, _over_budget, _host_memory, _overrides, _other_machine, _accumulation,
    _evaluation, _evaluation_batch, _colab, _bad_files, _needs_guard, _changed,
)  # fmt: skip
