"""A training of each kind of speech model by the recipe, cut off half-way and resumed: CTC, TDT, Whisper, an audio LLM.

    python benchmarks/kinds_training.py [OUT.md] [--scale 1] [--only ctc]

Small models with random weights, the recipe's own processors, collators and metrics, on the bundled clips. The audio
LLM is trained whole on them first, as a checkpoint to begin from; its row is that of adapters beside it, on clips that
are joined of those, too. Error rates are of clips that no training saw. Takes about twelve minutes on a busy core.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

SHOWN = 4  # transcripts of each row
LOGGED = 20  # steps between two losses
JOINED = 1750  # clips made of the 250 bundled ones
LONGEST = 4  # words of a joined clip, as of the bundled ones
SPEEDS = (0.9, 1.0, 1.1)
SEED = 1
WHOLE = (("CTC", "tiny-wav2vec2", 1000), ("TDT", "tiny-parakeet-tdt", 700), ("Whisper", "tiny-whisper", 1200))
BASE, BESIDE = 2000, 1000  # steps of the audio LLM's checkpoint, and of the adapters
# The plan's learning rate is for models of a thousand times the size, and sorted by length few clips would come in
# nearly the same order in every epoch.
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


def joined_clips(folder: Path) -> Path:
    """A manifest of the bundled clips, and of new ones to train on, joined of two to four of those to train on.

    Single digits are among the parts, so that nearly every string can come about. The strings of the clips to evaluate
    with are left out, as they are among the bundled clips to train on.
    """
    import numpy as np
    import soundfile

    from asrconfig_go._core.settings import SAMPLING_RATE
    from asrconfig_go.audio import ChangeSpeed
    from asrconfig_go.data.splits import demo_rows

    rows = [{name: row[name] for name in ("audio_filepath", "text", "split")} for row in demo_rows()]
    unseen = {row["text"] for row in rows if row["split"] != "train"}
    heard = [
        (soundfile.read(row["audio_filepath"], dtype="float32")[0], row["text"])
        for row in rows
        if row["split"] == "train"
    ]
    draw, change, noise = random.Random(SEED), ChangeSpeed(SPEEDS), np.random.default_rng(SEED)
    folder.mkdir()
    made = 0
    while made < JOINED:
        parts = drawn(heard, draw)
        text = " ".join(words for _, words in parts)
        if text in unseen:
            continue
        sound = np.concatenate([samples for samples, _ in parts])
        batch, lengths = change(sound[None], np.array([len(sound)]), noise)
        path = folder / f"{made}.wav"
        soundfile.write(path, batch[0, : lengths[0]], SAMPLING_RATE)
        rows.append({"audio_filepath": str(path), "text": text, "split": "train"})
        made += 1
    manifest = folder / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return manifest


def drawn(heard: list[tuple[Any, str]], draw: random.Random) -> list[tuple[Any, str]]:
    """Two or more clips of at most ``LONGEST`` words together."""
    while True:
        remaining, parts = draw.randint(2, LONGEST), list[tuple[Any, str]]()
        while remaining:
            words = draw.randint(1, remaining)
            parts.append(draw.choice([clip for clip in heard if len(clip[1].split()) == words]))
            remaining -= words
        if len(parts) > 1:
            return parts


def cut_at(step: int) -> Any:
    """A callback that ends the training there, as Ctrl-C does."""
    from transformers import TrainerCallback

    class Cut(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                raise KeyboardInterrupt

    return Cut()


def before(source: Path | str, model: str) -> float:
    """The word error rate of the model as it is loaded."""
    from asrconfig_go.recipe import build_processor, load_model, load_speech, transcribe
    from asrconfig_go.recipe.speech_data import column
    from asrconfig_go.recipe.transcription import word_error_rate

    data = load_speech(source, progress=False)
    processor = build_processor(column(data.train, "text"), model)
    heard = transcribe(load_model(model, processor), processor, data.evaluation, max_length=16)
    return word_error_rate(column(data.evaluation, "text"), heard)


def trained(source: Path | str, kind: str, model: str, output: Path, steps: int, **options: Any) -> Row:
    """Train, be interrupted, resume."""
    from asrconfig_go.recipe import fine_tune

    settings = {"eval_strategy": "no", "save_steps": steps // 2, "logging_steps": LOGGED, "report_to": []}
    settings |= options.pop("settings", {})
    arguments: dict[str, Any] = {"max_steps": steps, "target_batch_size": 8, "verbose": False, "settings": settings}
    arguments |= options
    rate = before(source, model)
    with contextlib.suppress(KeyboardInterrupt):
        fine_tune(source, model, output, **arguments, callbacks=[cut_at(steps // 2 + 5)])
    result = fine_tune(source, model, output, **arguments, resume=True)
    state = json.loads((output / f"checkpoint-{steps}" / "trainer_state.json").read_text())
    losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    resumed = Path(result.training.resumed_from).name
    trained_part = f"adapters of rank {result.config.lora_rank}" if result.config.lora_rank else "the whole model"
    rates = (rate, result.wer if result.wer is not None else float("nan"))
    return Row(
        kind, type_of(output, model), trained_part, steps, resumed, (losses[0], losses[-1]), rates, result.samples
    )


def type_of(output: Path, model: str) -> str:
    """The class, by the folder's config, or that of the model that its adapters are beside."""
    for folder in (output, Path(model)):
        if (folder / "config.json").is_file():
            return str(json.loads((folder / "config.json").read_text())["architectures"][0])
    return model


def rows(folder: Path, scale: float, only: str) -> Iterator[Row]:
    """One after the other."""
    for kind, model, steps in WHOLE:
        if only.lower() in kind.lower():
            yield trained("demo", kind, model, folder / kind, round(scale * steps))
    if only.lower() in "audio llm":
        from asrconfig_go.recipe import fine_tune

        clips = joined_clips(folder / "clips")
        base = folder / "base"
        quiet = {"eval_strategy": "no", "save_strategy": "no", "report_to": []}
        fine_tune("demo", "tiny-qwen3-asr", base, max_steps=round(scale * BASE), verbose=False, settings=quiet)
        yield trained(clips, "audio LLM", str(base), folder / "adapters", round(scale * BESIDE), settings=ADAPTERS)


def page(made: list[Row], scale: float, minutes: float) -> str:
    """Markdown."""
    lines = [
        "# A training of each kind", "",
        f"Written by `python benchmarks/kinds_training.py` in {minutes:.0f} minutes.", "",
        "The models are small and begin with random weights. They train on the 250 bundled clips. Error rates are of",
        "the 60 bundled clips to evaluate with, none of whose texts is trained on. The numbers of steps were chosen by",
        "these rates, and each row is one run: they show that a kind learns, not how well.", "",
        "Of an audio LLM the recipe trains adapters and the projector behind the encoder, beside weights that have",
        f"learnt something. Its row therefore begins with a checkpoint: {round(scale * BASE)} steps of the whole",
        f"model on the bundled clips. The adapters train on these and on {JOINED} more, joined of two to {LONGEST} of",
        f"them and played at {SPEEDS[0]} to {SPEEDS[-1]} of their speed. The first error rate is the checkpoint's.",
        f"The learning rate is {ADAPTERS['learning_rate']:g} in place of the plan's, which is for large models.", "",
        f"| kind | class | trains | steps | resumed from | loss, first and last {LOGGED} steps | word error rate |",
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
        lines += [f"| {reference} | {heard} |" for reference, heard in row.samples[:SHOWN]]
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers of steps")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(1)
    made: list[Row] = []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder), arguments.scale, arguments.only):
            print(row, flush=True)
            made.append(row)
    text = page(made, arguments.scale, (time.monotonic() - start) / 60)
    print(text)
    if arguments.output:
        arguments.output.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
