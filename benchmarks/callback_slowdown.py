"""How much slower a training becomes by being watched: ours beside the Trainer's own memory tracker, and neither.

    python benchmarks/callback_slowdown.py [--rounds 7] [--steps 60] [--json]

The demo's model on the bundled clips, on one thread of the CPU. Each round trains once in each way, one after the other
and in turning order, so that what else the machine does hits all alike; what counts is the median over the rounds of
the ratio to the round's training without anything. CPU time counts all threads of the process; it is the steadier
figure on a machine that others use.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

import asrconfig_go as ac
from asrconfig_go.audio import CTCCollator
from asrconfig_go.data.splits import demo_rows
from asrconfig_go.recipe import build_processor
from asrconfig_go.recipe.model_building import small_model

WAYS = ("neither", "neither again", "our callback", "the Trainer's memory tracker")
AIM = 1.002


def train(way: str, rows: list[dict[str, Any]], processor: Any, steps: int, folder: Path) -> tuple[float, float]:
    """Seconds of the clock and of the CPU that one training takes."""
    torch.manual_seed(0)
    trainer = Trainer(
        small_model(len(processor.tokenizer), seed=0),
        TrainingArguments(
            str(folder),
            per_device_train_batch_size=8,
            max_steps=steps,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
            skip_memory_metrics=way != WAYS[3],
        ),
        train_dataset=rows,  # type: ignore[arg-type]
        data_collator=CTCCollator(processor),
        callbacks=[ac.AdaptiveMemoryCallback()] if way == WAYS[2] else [],
    )
    trainer.remove_callback(PrinterCallback)
    clock, cpu = time.perf_counter(), time.process_time()
    trainer.train()
    return time.perf_counter() - clock, time.process_time() - cpu


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """Each way's median ratios to the training without anything, of the clock and of the CPU."""
    rows = [{"audio": {"path": row["audio_filepath"]}, **row} for row in demo_rows()]
    processor = build_processor((row["text"] for row in rows), "tiny-wav2vec2")
    rows = [row for row in rows if row["split"] == "train"]
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        train(WAYS[0], rows, processor, 5, Path(folder))
        for i in range(rounds):
            for way in WAYS[i % len(WAYS) :] + WAYS[: i % len(WAYS)]:
                took[way].append(train(way, rows, processor, steps, Path(folder)))
    alone = took[WAYS[0]]
    return {
        "step_ms": 1000 * statistics.median(clock for clock, _ in alone) / steps,
        "ratios": {
            way: [
                statistics.median(x[part] / y[part] for x, y in zip(took[way], alone, strict=True)) for part in (0, 1)
            ]
            for way in WAYS[1:]
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    hf_logging.set_verbosity_error()
    torch.set_num_threads(1)
    slowdown = measure(arguments.rounds, arguments.steps)
    if arguments.json:
        print(json.dumps(slowdown, indent=2))
        return 0
    print(f"a step takes {slowdown['step_ms']:.0f} ms; {arguments.rounds} rounds; times as long, by clock and by CPU:")
    for way, (clock, cpu) in slowdown["ratios"].items():
        print(f"{way:<30} {clock:6.3f} {cpu:6.3f}" + (f"   aim {AIM}" if way == WAYS[2] else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
