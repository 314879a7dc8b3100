"""How long it takes to compare the whole catalogue of GPUs, from the config to the answer, with nothing cached.

For each model and setting, medians of several calls; the aim is a second. CPU time tells the work apart from what else
the machine does.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import asrconfig_go as ac
from asrconfig_go.plan import gpu_prices

AIM_S = 1.0
REPEATS = 7
TRAINING: dict[str, Any] = {"hours": 100, "mean_s": 8, "max_s": 25}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "wav2vec2-base": ("facebook/wav2vec2-base", {}),
    "XLS-R-300M": ("facebook/wav2vec2-xls-r-300m", {}),
    "XLS-R-1B": ("facebook/wav2vec2-xls-r-1b", {}),
    "XLS-R-2B": ("facebook/wav2vec2-xls-r-2b", {}),
    "WavLM-large": ("microsoft/wavlm-large", {}),
    "w2v-BERT 2.0": ("facebook/w2v-bert-2.0", {}),
    "whisper-small": ("openai/whisper-small", {}),
    "whisper-large-v3": ("openai/whisper-large-v3", {}),
    "whisper-large-v3, LoRA": ("openai/whisper-large-v3", {"lora_rank": 32}),
    "XLS-R-300M, effective batch 256": ("facebook/wav2vec2-xls-r-300m", {"target_batch_size": 256}),
}


def measured(name: str, options: dict[str, Any]) -> tuple[float, float, int]:
    """Median wall and CPU seconds of a comparison, and its rows."""
    walls, cpus, rows = [], [], 0
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        rows = len(ac.compare_gpus(name, **TRAINING, **options).rows)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus), rows


def main() -> None:
    """Print a line for each case."""
    gpu_prices()  # loads the library
    print(f"| model | GPUs | wall, s (aim {AIM_S:g}) | CPU, s |\n| --- | --- | --- | --- |")
    for label, (name, options) in CASES.items():
        wall, cpu, rows = measured(name, options)
        print(f"| {label} | {rows} | {wall:.2f} | {cpu:.2f} |", flush=True)
    wall = time.perf_counter()
    ac.largest_models("L4")
    print(f"| every known model on one L4 | | {time.perf_counter() - wall:.2f} | |")


if __name__ == "__main__":
    main()
