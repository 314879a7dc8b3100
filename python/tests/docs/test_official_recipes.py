"""benchmarks/official_recipes: recipes train as their pages say and with a plan; our page says what was found."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from locations import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks" / "official_recipes"))

pytest.importorskip("peft")
run = pytest.importorskip("all_recipes")
recipe_page = pytest.importorskip("recipe_page")
recipe_runs = pytest.importorskip("recipe_runs")

RECIPES = {recipe.name: recipe for recipe in run.recipes()}
RESULTS: dict[str, Any] = recipe_page.read()


def test_the_page_is_made_of_the_results() -> None:
    text = recipe_page.PAGE.read_text("utf-8")
    assert recipe_page.page(run.recipes(), RESULTS) == text, "run benchmarks/official_recipes/all_recipes.py --page"
    assert RESULTS.keys() <= RECIPES.keys()
    for name in RESULTS:
        assert RECIPES[name].published.title in text


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_exact_or_refused(name: str) -> None:
    """As they were measured last; the trainings below measure them again."""
    found = RESULTS[name]
    assert found["own"]["peak"] > 4 * found["trained"]
    assert found["own"]["fits"] == (found["own"]["peak"] <= found["own"]["available"])
    check_plan(found["own"], found.get("plan"), RECIPES[name].published.clips_a_step)
    check_end(found["runs"])
    if "frozen" in found["runs"]:
        assert "refused" not in found["runs"]["frozen"]
        check_end(found["runs"]["frozen"])


def check_plan(own: dict[str, Any], plan: dict[str, Any] | None, clips: int) -> None:
    """As many clips a step as the recipe, within the card, and times where both can be compared."""
    if plan is None or not plan["fits"]:
        return
    assert plan["per_device_train_batch_size"] * plan["gradient_accumulation_steps"] == clips
    assert plan["peak"] < own["available"]
    for part in (own, plan) if own["fits"] else (plan,):
        assert 0 < part["step_s"]["low"] <= part["step_s"]["likely"] <= part["step_s"]["high"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_speeds_are_those_of_the_planner() -> None:
    """Where all clips are as long as the longest, the page's seconds of a step are about the planner's own."""
    recipe = RECIPES["audio_classification_guide"]
    model = recipe.real()
    row = recipe_page.compare(recipe, model)
    plan = {name: getattr(row, name) for name in recipe_page.SETTINGS}
    found = recipe_page.planned_step(recipe, model, plan)["step_s"]
    assert row.step_s is not None
    assert found["likely"] == pytest.approx(row.step_s.likely, rel=0.05)


def check_end(figures: dict[str, Any]) -> None:
    if "refused" in figures:
        assert "normalise over the clips of a batch" in figures["refused"]
    else:
        assert figures["distance"] <= recipe_page.EXACT
        assert figures["splits"] and figures["splits"][0][1] < figures["splits"][0][0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_with_and_without_a_plan(name: str, tmp_path: Path) -> None:
    """The plan is from a trace, or an error; a training that runs out of memory ends exactly, or is refused by name."""
    recipe = RECIPES[name]
    plain = recipe_runs.train_plainly(recipe, str(tmp_path / "plain"))
    calm = recipe_runs.train_with_plan(recipe, str(tmp_path / "calm"))
    for outcome in (plain, calm):
        assert not outcome.refused
        assert len(outcome.losses) == recipe_runs.STEPS
        assert all(map(math.isfinite, outcome.losses))
    short = recipe_runs.train_with_plan(recipe, str(tmp_path / "short"), memory_runs_out=True)
    check_end(recipe_page.shortage(calm, short))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_frozen_encoder_lets_a_refused_recipe_go_on(tmp_path: Path) -> None:
    recipe = RECIPES["granite_notebook"]
    calm = recipe_runs.train_with_plan(recipe, str(tmp_path / "calm"), frozen=True)
    short = recipe_runs.train_with_plan(recipe, str(tmp_path / "short"), frozen=True, memory_runs_out=True)
    assert not short.refused
    check_end(recipe_page.shortage(calm, short))
