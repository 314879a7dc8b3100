"""Rows a second of datasets with embedded bytes, as memory-mapped Arrow and as Parquet, beside decoding.

    python benchmarks/make_audio_corpus.py FOLDER --only rows
    python benchmarks/arrow_speed.py FOLDER/rows [--repeats 3]

Ours is scan_audio without its cache, of a datasets.Dataset over the Arrow file and of the Parquet file; for Parquet the
time that pyarrow takes to read the column alone stands beside it. Decoding is soundfile's, of a sample, in one process
and in two. All is measured in turn with a warm cache of files; medians count.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import multiprocessing.pool
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import soundfile
from datasets import Dataset

import asrconfig_go

DECODED_ROWS = 4_000
CHUNK = 100
WORKERS = 2
RATE_AIM, RATIO_AIM = 200_000, 100


def scan(source: Any) -> int:
    """Rows that were measured."""
    profile = asrconfig_go.scan_audio(source, progress=False, cache=False).profile
    if profile.bad_files:
        raise SystemExit(f"{len(profile.bad_files)} rows failed, the first: {profile.bad_files[0]}")
    return profile.sample_count


def read_parquet(path: Path) -> int:
    return sum(batch.num_rows for batch in pq.ParquetFile(path).iter_batches(columns=["audio"]))


def decode(clips: list[bytes]) -> int:
    for data in clips:
        soundfile.read(io.BytesIO(data), dtype="float32")
    return len(clips)


def decode_in(pool: multiprocessing.pool.Pool, clips: list[bytes]) -> int:
    return sum(pool.imap_unordered(decode, [clips[n : n + CHUNK] for n in range(0, len(clips), CHUNK)]))


def medians(runs: dict[str, Callable[[], int]], repeats: int) -> dict[str, float]:
    """Rows a second of each; the first round only warms."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    rows = {}
    for number in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            rows[name] = run()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {name: rows[name] / statistics.median(seconds[name]) for name in runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with rows.arrow and rows.parquet")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    dataset, parquet = Dataset.from_file(str(arguments.folder / "rows.arrow")), arguments.folder / "rows.parquet"
    step = max(1, len(dataset) // DECODED_ROWS)
    clips = [row["audio"]["bytes"] for row in dataset.select(range(0, len(dataset), step))]
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}; {len(dataset)} rows")
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        runs: dict[str, Callable[[], int]] = {
            "scan_audio(Dataset), Arrow": partial(scan, dataset),
            "scan_audio(Parquet)": partial(scan, parquet),
            "pyarrow reading the Parquet column": partial(read_parquet, parquet),
            "soundfile decoding": partial(decode, clips),
            f"soundfile decoding ×{WORKERS}": partial(decode_in, pool, clips),
        }
        rates = medians(runs, arguments.repeats)
    best = max(rate for name, rate in rates.items() if name.startswith("soundfile"))
    print("\n| | rows/s | × best decoding |\n| --- | --- | --- |")
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} | {rate / best:.1f} |")
    print(f"\naims for Arrow: {RATE_AIM:,} rows/s and {RATIO_AIM} times decoding")


if __name__ == "__main__":
    main()
