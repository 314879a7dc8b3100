"""A training of each kind of speech model by the recipe, cut off half-way and resumed: CTC, TDT, Whisper, an audio LLM.

    python benchmarks/kinds_training.py [OUT.md] [--steps 800] [--only ctc]

Small models on the bundled clips, with the recipe's own processors, collators and metrics. The audio LLM is trained
whole first, as a checkpoint to begin from; the row is that of adapters beside it. Error rates are of clips that no
training saw.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

SHOWN = 4  # transcripts of each row
LONGER = 3  # times as many steps, for decoders that first have to find what to attend to
ADAPTERS: dict[str, Any] = {"learning_rate": 2e-3, "warmup_steps": 20, "group_by_length": False}


@dataclass(frozen=True)
class Row:
    """One training."""

    kind: str
    model: str
    trained: str
    steps: int
    resumed: str
    losses: tuple[float, float]
    rates: tuple[float, float]
    samples: tuple[tuple[str, str], ...]


def cut_at(step: int) -> Any:
    """A callback that ends the training there, as Ctrl-C does."""
    from transformers import TrainerCallback

    class Cut(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                raise KeyboardInterrupt

    return Cut()


def before(model: str) -> float:
    """The word error rate of the model as it is loaded."""
    from asrconfig_go.recipe import build_processor, load_model, load_speech, transcribe
    from asrconfig_go.recipe.error_rates import word_error_rate
    from asrconfig_go.recipe.speech_data import column

    data = load_speech("demo", progress=False)
    processor = build_processor(column(data.train, "text"), model)
    heard = transcribe(load_model(model, processor), processor, data.evaluation, max_length=16)
    return word_error_rate(column(data.evaluation, "text"), heard)


def trained(kind: str, model: str, output: Path, steps: int, **options: Any) -> Row:
    """Train, be interrupted, resume."""
    from asrconfig_go.recipe import fine_tune

    settings = {"eval_strategy": "no", "save_steps": steps // 2, "logging_steps": 20, "report_to": []}
    settings |= options.pop("settings", {})
    asked: dict[str, Any] = {"max_steps": steps, "target_batch_size": 8, "verbose": False, "settings": settings}
    asked |= options
    rate = before(model)
    with contextlib.suppress(KeyboardInterrupt):
        fine_tune("demo", model, output, **asked, callbacks=[cut_at(steps // 2 + 5)])
    result = fine_tune("demo", model, output, **asked, resume=True)
    state = json.loads((output / f"checkpoint-{steps}" / "trainer_state.json").read_text())
    losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    resumed = Path(result.training.resumed_from).name
    what = f"adapters of rank {result.config.lora_rank}" if result.config.lora_rank else "the whole model"
    rates = (rate, result.wer if result.wer is not None else float("nan"))
    return Row(kind, type_of(output, model), what, steps, resumed, (losses[0], losses[-1]), rates, result.samples)


def type_of(output: Path, model: str) -> str:
    """The class, by the folder's config, or that of the model that its adapters are beside."""
    for folder in (output, Path(model)):
        if (folder / "config.json").is_file():
            return str(json.loads((folder / "config.json").read_text())["architectures"][0])
    return model


def rows(folder: Path, steps: int, only: str) -> Iterator[Row]:
    """One after the other."""
    plain = (("CTC", "tiny-wav2vec2", 1), ("TDT", "tiny-parakeet-tdt", 1), ("Whisper", "tiny-whisper", LONGER))
    for kind, model, times in plain:
        if only.lower() in kind.lower():
            yield trained(kind, model, folder / kind, times * steps)
    if only.lower() in "audio llm":
        from asrconfig_go.recipe import fine_tune

        base = folder / "base"
        quiet = {"eval_strategy": "no", "save_strategy": "no", "report_to": []}
        fine_tune("demo", "tiny-qwen3-asr", base, max_steps=LONGER * steps, verbose=False, settings=quiet)
        yield trained("audio LLM", str(base), folder / "adapters", steps, settings=ADAPTERS)


def page(made: list[Row]) -> str:
    """Markdown."""
    lines = [
        "# A training of each kind", "", "Written by `python benchmarks/kinds_training.py`.", "",
        "| kind | class | trains | steps | resumed from | loss, first and last 20 steps | word error rate |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in made:
        first, last = row.losses
        lines.append(
            f"| {row.kind} | {row.model} | {row.trained} | {row.steps} | {row.resumed} | {first:.2f} → {last:.2f} "
            f"| {row.rates[0]:.0%} → {row.rates[1]:.1%} |"
        )
    for row in made:
        lines += ["", f"## {row.kind}", "", "| said | heard |", "| --- | --- |"]
        lines += [f"| {said} | {heard} |" for said, heard in row.samples[:SHOWN]]
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?", type=Path)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(1)
    made: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder), arguments.steps, arguments.only):
            print(row, flush=True)
            made.append(row)
    text = page(made)
    print(text)
    if arguments.output:
        arguments.output.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
