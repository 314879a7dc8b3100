"""What a recipe's own batch needs on its card, what a plan takes there, and the page that says so."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recipe_runs import Outcome, Recipe, distance, train_plainly, train_with_plan

from asrconfig_go import MemoryModel, compare_gpus
from asrconfig_go._core import native
from asrconfig_go.plan import GPUPlan
from asrconfig_go.plan.model_preparation import cut_labels, keeps_logits
from asrconfig_go.trace import SpeechBatches

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent.parent / "docs" / "official-recipes.md"
RATE = 16_000
GIB = 2**30
EXACT = 1e-4  # of how far a training moves the weights

SETTINGS = (
    "fits", "per_device_train_batch_size", "gradient_accumulation_steps", "precision", "gradient_checkpointing",
    "every_n_layers", "offload_checkpoints", "optimizer", "micro_batching", "length_handling",
)  # fmt: skip

Figures = dict[str, Any]


def measure(recipe: Recipe, found: Figures) -> Iterator[Figures]:
    """Everything that the page says of a recipe, measured and predicted here: after each part what is known so far."""
    model = recipe.real()
    found = {
        **found, "parameters": sum(p.numel() for p in model.parameters()),
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad), "own": own_batch(recipe, model),
    }  # fmt: skip
    yield found
    found = {**found, "texts": texts(recipe, model), "text_logits": text_logits(recipe, model)}
    yield found
    found = {**found, "runs": runs(recipe)}
    yield found
    yield {**found, "plan": planned(recipe, model)}


def own_batch(recipe: Recipe, model: Any, labels: int = 0, batch: Any = None) -> Figures:
    """The recipe's batch of its longest clips on its card, from a trace of exactly that."""
    published = recipe.published
    return one_step(
        recipe, model, labels, batch, clips=published.batch, accumulation=published.accumulation,
        precision=published.precision, gradient_checkpointing=published.checkpointing,
    )  # fmt: skip


def one_step(
    recipe: Recipe, model: Any, labels: int = 0, batch: Any = None, *, clips: int, accumulation: int, **settings: Any
) -> Figures:
    """Peak and seconds of an optimizer step of clips that are all as long as the longest, from a trace of just that."""
    published, labels = recipe.published, labels or recipe.published.labels
    with MemoryModel.trace(
        model, batch or recipe.real_batch, accumulation=accumulation, gpu=published.card, progress=False,
        points=[(clips, round(published.longest_s * RATE), labels)], **settings,
    ) as memory:  # fmt: skip
        estimate = memory.estimate(clips, published.longest_s, labels, timeline=0)
        available, work = memory.target.available_bytes, memory.work(clips, published.longest_s, labels)
    asked = {"gpu": published.card, "precision": settings["precision"], "optimizer": memory.settings.optimizer}
    asked |= {"kernel_profile": None, "kernel_profiles": [], "measured_s": None}  # of no card that was measured here
    work.pop("unknown")
    step = native.call("timing.step", {**asked, "work": work, "accumulation": accumulation})
    return {
        "peak": estimate.peak_device, "available": available, "fits": estimate.fits, "at": estimate.at_peak.op,
        "step_s": step["step_s"],
    }  # fmt: skip


def texts(recipe: Recipe, model: Any) -> list[list[int]]:
    """Peaks of the same batch with longer and shorter transcripts."""
    peaks = [(labels, own_batch(recipe, model, labels)["peak"]) for labels in recipe.published.text_lengths]
    return [list(peak) for peak in peaks]


def text_logits(recipe: Recipe, model: Any) -> int | None:
    """The peak with logits of the text alone; None for models that cannot leave out the others."""
    if not keeps_logits(model):
        return None
    cut = own_batch(recipe, model, batch=lambda *shape: cut_labels(recipe.real_batch(*shape)))
    return int(cut["peak"])


def planned(recipe: Recipe, model: Any) -> Figures:
    """What the plan takes on the recipe's card for as many clips a step."""
    plan = compare(recipe, model)
    found = {name: getattr(plan, name) for name in SETTINGS} | {"peak": plan.peak_bytes}
    found["remedies"] = [[remedy.what, remedy.peak_bytes, remedy.fits] for remedy in plan.remedies]
    return found | ({"step_s": planned_step(recipe, model, found)["step_s"]} if plan.fits else {})


def compare(recipe: Recipe, model: Any) -> GPUPlan:
    """The plan on the recipe's card, with what the planner predicts of it."""
    published = recipe.published
    batches = SpeechBatches(recipe.real_batch, RATE, labels_per_second=published.labels / published.longest_s)
    return compare_gpus(
        model, gpus=[published.card], hours=20, mean_s=published.mean_s, max_s=published.longest_s,
        target_batch_size=published.clips_a_step, batch_fn=batches, trace=True, calibrations={},
    ).rows[0]  # fmt: skip


def planned_step(recipe: Recipe, model: Any, plan: Figures) -> Figures:
    """A step of the plan's settings with the recipe's longest clips, in micro-batches of one size."""
    names = ("precision", "gradient_checkpointing", "every_n_layers", "offload_checkpoints", "optimizer")
    return one_step(
        recipe, model, clips=plan["per_device_train_batch_size"], accumulation=plan["gradient_accumulation_steps"],
        **{name: plan[name] for name in names},
    )  # fmt: skip


def runs(recipe: Recipe) -> Figures:
    """The three trainings of the tiny model."""
    with tempfile.TemporaryDirectory() as folder:
        plain = train_plainly(recipe, f"{folder}/plain")
        calm = train_with_plan(recipe, f"{folder}/calm")
        short = train_with_plan(recipe, f"{folder}/short", memory_runs_out=True)
        found = {"first_loss": plain.losses[0], "planned_loss": calm.losses[0], **shortage(calm, short)}
        if recipe.untrained is None:
            return found
        calm = train_with_plan(recipe, f"{folder}/frozen", frozen=True)
        short = train_with_plan(recipe, f"{folder}/frozen-short", frozen=True, memory_runs_out=True)
    return {**found, "frozen": shortage(calm, short)}


def shortage(calm: Outcome, short: Outcome) -> Figures:
    """How the training that ran out of memory ended: with which distance, or refused with which words."""
    if short.refused:
        return {"refused": short.refused}
    return {"distance": distance(calm, short), "splits": [list(split) for split in short.splits]}


def read() -> dict[str, Figures]:
    return dict(json.loads(RESULTS.read_text("utf-8"))) if RESULTS.exists() else {}


def write(results: dict[str, Figures]) -> None:
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def page(recipes: list[Recipe], results: dict[str, Figures]) -> str:
    """The page with the tables of these results."""
    known = [recipe for recipe in recipes if "runs" in results.get(recipe.name, {})]
    batches = [_batch_row(recipe, results[recipe.name]) for recipe in known]
    trainings = [_run_row(recipe, results[recipe.name]) for recipe in known]
    text = (HERE / "page.txt").read_text("utf-8")
    tables = {
        "batches": _table(("recipe", "its batch", "card", "its peak", "the plan", "the plan's peak", "speed"), batches),
        "texts": "\n".join(_text_rows(known, results)),
        "runs": _table(("recipe", "the recipe's first loss", "when half of a batch fits"), trainings),
        "assumed": "\n".join(_remarks(known)),
    }
    for name, table in tables.items():
        text = text.replace(f"{{{name}}}", table)
    return text


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), *rows))


def _batch_row(recipe: Recipe, found: Figures) -> tuple[str, ...]:
    published, own, plan = recipe.published, found["own"], found.get("plan")
    settings = f"{published.batch} × {published.accumulation}, {published.precision}"
    settings += ", checkpointing" if published.checkpointing else ""
    verdict = _gib(own["peak"]) if own["fits"] else f"**{_gib(own['peak'])}: does not fit**"
    card = f"{published.card}, {_gib(own['available'])}"
    return (
        f"[{published.title}]({published.url})<br>{published.model}", settings, card, verdict,
        "not computed yet" if plan is None else _plan_words(plan), _gib(plan["peak"]) if plan and plan["fits"] else "–",
        _speed(own, plan),
    )  # fmt: skip


def _speed(own: Figures, plan: Figures | None) -> str:
    """How many times as many clips a second the plan trains on, of what the recipe's batch does."""
    if plan is None or not plan["fits"]:
        return "–"
    return f"{own['step_s']['likely'] / plan['step_s']['likely']:.1f}×" if own["fits"] else "its batch does not fit"


def _plan_words(plan: Figures) -> str:
    if not plan["fits"]:
        (_, least, _), *_ = plan["remedies"]  # traced with the settings that take the least memory
        return f"**none: a micro-batch of one clip takes {_gib(least)}**"
    words = [f"{plan['per_device_train_batch_size']} × {plan['gradient_accumulation_steps']}", plan["precision"]]
    if plan["gradient_checkpointing"]:
        every = plan["every_n_layers"]
        words.append("checkpointing" + (f" of one in {every} layers" if every > 1 else ""))
    if plan["offload_checkpoints"]:
        words.append("offloaded")
    if plan["micro_batching"] == "memory":
        words.append("micro-batches sized by memory")
    if plan["length_handling"] != "random":
        words.append("clips of similar length together")
    return ", ".join(words)


def _run_row(recipe: Recipe, found: Figures) -> tuple[str, ...]:
    run = found["runs"]
    ratio = run["first_loss"] / run["planned_loss"]
    same = "as with the plan" if abs(ratio - 1) < 1e-3 else f"{ratio:.0f} times the plan's"
    ends = _end(run)
    if "frozen" in run:
        ends += f"; with `freeze` of what does not train: {_end(run['frozen'])}"
    return recipe.published.title, same, ends


def _end(run: Figures) -> str:
    if "refused" in run:
        return f"refused: {run['refused'].partition('its batch cannot be split: ')[2] or run['refused']}"
    (before, after), *_ = run["splits"]
    return f"{before} → {after} clips, weights off by {run['distance']:.0e}"


def _text_rows(recipes: list[Recipe], results: dict[str, Figures]) -> list[str]:
    rows = []
    for recipe in recipes:
        found, published = results[recipe.name], recipe.published
        peaks = [(published.labels, found["own"]["peak"]), *map(tuple, found["texts"])]
        words = ", ".join(f"{labels} tokens {_gib(peak)}" for labels, peak in sorted(peaks))
        if found["text_logits"] is not None:
            words += f"; {published.labels} tokens and logits of the text alone {_gib(found['text_logits'])}"
            rows.append(f"- {published.title}, {published.batch} clips: {words}.")
    return rows


def _remarks(recipes: list[Recipe]) -> list[str]:
    rows = []
    for recipe in recipes:
        published = recipe.published
        parts = [f"assumed: {published.assumed}"] if published.assumed else []
        parts += [published.remark] if published.remark else []
        shape = f"clips up to {published.longest_s:g} s"
        shape += f" with {published.labels} tokens of text" if published.labels > 1 else ""
        rows.append(f"- {published.title}: {shape}{''.join(f'; {part}' for part in parts)}.")
    return rows


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
