"""`asrconfig benchmark --compare` of two models on the bundled clips, twice each: how far apart are the tables?

    python benchmarks/benchmark_demo.py [OUT.md] [--rounds 9] [--only tiny]

The models are the demo's, and a wav2vec2 of 11.4 M parameters with random weights. Each run is a process of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Told = dict[str, Any]
SWEEP = "precision,checkpointing,attention"


def larger_model(folder: Path) -> None:
    """Save a wav2vec2 of 11.4 M parameters as a checkpoint is saved."""
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForCTC

    torch.manual_seed(0)
    config = Wav2Vec2Config(
        vocab_size=32, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536,
        conv_dim=[64, 128, 192, 192], conv_stride=[16, 5, 2, 2], conv_kernel=[32, 10, 4, 4], conv_bias=True,
        num_conv_pos_embeddings=32, feat_extract_norm="layer", do_stable_layer_norm=True, layerdrop=0.0,
        mask_time_length=3, pad_token_id=0,
    )  # fmt: skip
    model = Wav2Vec2ForCTC(config)
    model.save_pretrained(folder)
    Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)


def command(model: str, batch: int, steps: int, rounds: int) -> list[str]:
    return [
        "benchmark", "--model", model, "--data", "demo", "--compare", "--target-batch-size", str(batch),
        "--steps", str(steps), "--warm-up", "1", "--rounds", str(rounds), "--sweep", SWEEP,
    ]  # fmt: skip


def measured(arguments: list[str]) -> tuple[Told, float]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "asrconfig_go", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout), time.perf_counter() - began


def ratios(told: Told) -> Iterator[tuple[str, Told]]:
    yield "plan / baseline", told["speedup"]
    yield "plan / baseline, processor time", told["cpu_speedup"]
    for each in told["options"]:
        if each["gain"]:
            name = f"{each['option']} {each['value']} / plan"
            yield name, each["gain"]
            yield f"{name}, processor time", each["cpu_gain"]


def table(first: Told, second: Told) -> Iterator[str]:
    yield "| ratio | first run | second run | apart |"
    yield "| --- | --- | --- | --- |"
    for (name, a), (_, b) in zip(ratios(first), ratios(second), strict=True):
        apart = abs(a["median"] / b["median"] - 1)
        cells = [f"{x['median']:.2f} ({x['low']:.2f} to {x['high']:.2f})" for x in (a, b)]
        yield f"| {name} | {cells[0]} | {cells[1]} | {100 * apart:.1f} % |"


def figures(first: Told, second: Told) -> Iterator[str]:
    yield "| | first run | second run |"
    yield "| --- | --- | --- |"
    for side in ("original", "plan"):
        what = first[side]["name"]
        for name, unit in (("clips_per_s", "clips/s"), ("audio_per_s", "s of audio/s"), ("cpu_use", "of the cores")):
            yield f"| {what}, {unit} | {first[side][name]['median']:.3g} | {second[side][name]['median']:.3g} |"
        yield f"| {what}, padding | {first[side]['padding']:.1%} | {second[side]['padding']:.1%} |"
    for one, two in zip(first["loader"], second["loader"], strict=True):
        name = f"loader, {one['workers']} workers" + (f" × prefetch {one['prefetch']}" if one["workers"] else "")
        yield f"| {name}, clips/s | {one['clips_per_s']['median']:.3g} | {two['clips_per_s']['median']:.3g} |"


def section(title: str, arguments: list[str], shown: str) -> Iterator[str]:
    loads, told, took = [], [], []
    for _ in range(2):
        found, seconds = measured(arguments)
        told.append(found)
        took.append(f"{seconds:.0f} s")
        loads.append(f"{os.getloadavg()[1]:.1f}")
    text = shlex.join(["asrconfig", *arguments]).replace(arguments[2], shown)
    yield from (f"## {title}", "", "```", f"$ {text}", "```", "")
    yield f"Load of the machine behind each run: {', '.join(loads)} (2 cores). The runs took {' and '.join(took)}."
    yield from ("", *table(*told), "", *figures(*told), "")
    yield f"What holds the plan back: {told[0]['bottleneck']['title']} ({told[0]['bottleneck']['evidence']})."
    yield from (f"Next: {told[0]['next_change']}.", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("tiny", "larger"))
    arguments = parser.parse_args()
    day = datetime.datetime.now(tz=datetime.timezone.utc).date()
    lines = ["# Both sides on the bundled clips, twice", "", f"By `python benchmarks/benchmark_demo.py`, {day}.", ""]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "larger":
            lines += section("The demo's model", command("tiny-wav2vec2", 16, 3, arguments.rounds), "tiny-wav2vec2")
        if arguments.only != "tiny":
            larger_model(Path(folder))
            lines += section("A wav2vec2 of 11.4 M parameters", command(folder, 8, 2, arguments.rounds), "FOLDER")
    text = "\n".join(lines)
    print(text)
    if arguments.out:
        arguments.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
