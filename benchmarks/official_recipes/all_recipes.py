"""Trains every official recipe on a tiny model, plainly and with a plan, and writes docs/official-recipes.md.

    python benchmarks/official_recipes/all_recipes.py [--only NAME] [--page]

Measured results stand in results.json; the page is made of them and of page.txt, with ``--page`` without measuring them
again. A quarter of an hour on two quiet cores without a GPU, most of it for the plans of models of a billion and more
parameters.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import recipe_page
from recipe_runs import Recipe

MODULES = (
    "asr_guide", "audio_classification_guide", "audio_text_guide", "xls_r_blog", "whisper_blog", "parakeet_course",
    "voxtral_course", "qwen3_asr_sft", "granite_notebook",
)  # fmt: skip


def recipes() -> list[Recipe]:
    """All of them, in the page's order."""
    return [recipe for name in MODULES for recipe in importlib.import_module(name).RECIPES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="measure this recipe alone; may be repeated")
    parser.add_argument("--page", action="store_true", help="write the page of the results, measure nothing")
    asked = parser.parse_args()
    known, results = recipes(), recipe_page.read()
    if not asked.page:
        warnings.simplefilter("ignore")
        for recipe in known:
            if asked.only is None or recipe.name in asked.only:
                for found in recipe_page.measure(recipe, results.get(recipe.name, {})):
                    results[recipe.name] = found
                    recipe_page.write(results)
                print(recipe.name, results[recipe.name], flush=True)
    recipe_page.PAGE.write_text(recipe_page.page(known, results), "utf-8")


if __name__ == "__main__":
    main()
