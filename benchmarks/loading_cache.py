"""What a DataLoader gives a training in its second epoch: decoding as usual, against the two caches.

    python benchmarks/loading_cache.py [--clips 96] [--repeats 7] [--formats flac-16k mp3-44k …] [--json FILE]

Clips of 4 to 12 s are made of the bundled ones. Every way has the same shuffled DataLoader, and gives the same batches,
normalised and padded as wav2vec2 takes them. Usual is soundfile, soxr, and transformers' extractor; then datasets.Audio
where torchcodec is installed; then CTCCollator, with the same reading, with a DecodedCache and with a ResampledCache.
``load`` is reading alone, without DataLoader and collator; the floor hands over tensors of the same sizes that are
ready, which no reader can beat. Epochs of all ways take turns; medians of seconds of audio
per second, the range in brackets, and the ratio to the usual way. The last row of a format takes each way with the
number of workers that suits it best, as who has no cache does well to take two. The aim is three times the usual rate
in the second epoch with the decoded cache, for each format. Exits with 1 where it is missed, in ``load``, in the
DataLoader without workers, or with the best number of workers on both sides.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch
from transformers import Wav2Vec2FeatureExtractor

from asrconfig_go.audio import CTCCollator, DecodedCache, ResampledCache
from asrconfig_go.audio.features import new_tensor
from asrconfig_go.data.source import CLIPS

RATE, AIM, BATCH = 16_000, 3.0, 8
USUAL, CACHE, FLOOR = "soundfile", "DecodedCache", "ready tensors, the floor"
FORMATS = {
    "flac-16k": ("flac", 16_000),
    "flac-48k": ("flac", 48_000),
    "mp3-16k": ("mp3", 16_000),
    "mp3-44k": ("mp3", 44_100),
    "wav-16k": ("wav", 16_000),
}
Load = Callable[[Any], Any]
GAINS: dict[str, dict[str, float]] = {}  # what was measured: by what, how many times the usual rate


def make_clips(folder: Path, suffix: str, rate: int, count: int) -> tuple[list[str], float]:
    """Files of 4 to 12 s of speech, and the seconds of all."""
    spoken = [soundfile.read(path, dtype="float32")[0] for path in sorted(CLIPS.glob("*.mp3"))]
    chance, paths, seconds = np.random.default_rng(0), [], 0.0
    for number in range(count):
        wanted, parts = int(chance.uniform(4, 12) * RATE), []
        while sum(map(len, parts)) < wanted:
            parts.append(spoken[chance.integers(len(spoken))])
        clip = np.concatenate(parts)[:wanted]
        path = folder / f"{number:04d}.{suffix}"
        soundfile.write(path, soxr.resample(clip, RATE, rate), rate)
        paths.append(str(path))
        seconds += len(clip) / RATE
    return paths, seconds


def plain(source: str) -> Any:
    """What people write: soundfile, and soxr where the rate is another one."""
    samples, rate = soundfile.read(source, dtype="float32")
    return samples if rate == RATE else soxr.resample(samples, rate, RATE)


class HuggingFace:
    """The decoder of datasets.Audio."""

    def __init__(self) -> None:
        from datasets import Audio

        self.audio = Audio(sampling_rate=RATE)

    def __call__(self, source: str) -> Any:
        return self.audio.decode_example({"path": source, "bytes": None})["array"]


class Usual:
    """The collator of most recipes."""

    def __init__(self, extractor: Any, load: Load) -> None:
        self.extractor, self.load = extractor, load

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        clips = [self.load(row["audio"]) for row in rows]
        batch = self.extractor(clips, sampling_rate=RATE, padding=True, return_tensors="pt")
        labels = [torch.tensor(row["labels"]) for row in rows]
        batch["labels"] = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        return dict(batch)


class Ready:
    """The floor: tensors of the same sizes, each byte written once where it is handed over, and nothing else."""

    def __init__(self, paths: list[str]) -> None:
        self.lengths = {path: round(soundfile.info(path).duration * RATE) for path in paths}
        self.ready = np.ones((BATCH, max(self.lengths.values())), np.float32)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        shape = (len(rows), max(self.lengths[row["audio"]] for row in rows))
        batch = {"input_values": new_tensor(shape, np.float32), "attention_mask": new_tensor(shape, np.int32)}
        for tensor in batch.values():
            tensor.numpy()[:] = self.ready[: shape[0], : shape[1]].view(tensor.numpy().dtype)
        return batch


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    """Paths as rows."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"audio": self.paths[i], "labels": [1, 2, 3]}


def ways(folder: Path) -> dict[str, Load]:
    """How a clip may be read. The caches are empty."""
    loads: dict[str, Load] = {USUAL: plain}
    if importlib.util.find_spec("torchcodec"):
        loads["datasets.Audio"] = HuggingFace()
    loads[CACHE] = DecodedCache(4 << 30)
    loads["ResampledCache"] = ResampledCache(folder / "cache")
    return loads


def loader(paths: list[str], way: str, load: Load, workers: int) -> Any:
    torch.manual_seed(0)
    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=True)
    usual = way in (USUAL, "datasets.Audio")
    collator: Any = Usual(extractor, load) if usual else CTCCollator(extractor, load=load)
    if way == FLOOR:
        collator = Ready(paths)
    more = {"persistent_workers": True} if workers else {}
    return torch.utils.data.DataLoader(
        Rows(paths), BATCH, shuffle=True, num_workers=workers, collate_fn=collator, **more
    )


def epoch(batches: Any) -> float:
    began = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - began


def in_turns(kinds: dict[str, Any], run: Callable[[Any], float], repeats: int) -> dict[str, list[float]]:
    """Seconds of each, once unmeasured (the first epoch) and then in turns."""
    for load in kinds.values():
        run(load)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(repeats):
        for name, load in kinds.items():
            times[name].append(run(load))
    return times


def printed(label: str, times: dict[str, list[float]], seconds: float) -> dict[str, float]:
    """A row for each way; the median seconds of each."""
    base = statistics.median(times[USUAL])
    GAINS[label] = {name: base / statistics.median(runs_s) for name, runs_s in times.items()}
    for name, runs_s in times.items():
        rates = sorted(seconds / run_s for run_s in runs_s)
        middle, ratio = seconds / statistics.median(runs_s), base / statistics.median(runs_s)
        print(f"| {label} | {name} | {middle:.0f} ({rates[0]:.0f}–{rates[-1]:.0f}) | {ratio:.1f}× |", flush=True)
    return {name: statistics.median(runs_s) for name, runs_s in times.items()}


def reads(paths: list[str]) -> Callable[[Load], float]:
    def run(load: Load) -> float:
        began = time.perf_counter()
        for path in paths:
            float(load(path).sum())  # touches every sample: mapping alone reads nothing
        return time.perf_counter() - began

    return run


def measure(name: str, folder: Path, clips: int, repeats: int) -> list[str]:
    """Print the rows of one format; what missed the aim."""
    suffix, rate = FORMATS[name]
    folder.mkdir()
    paths, seconds = make_clips(folder, suffix, rate, clips)
    loads = ways(folder)
    medians = {"load": printed(f"{name}, load", in_turns(loads, reads(paths), repeats), seconds)}
    loads["soundfile, CTCCollator"] = loads[FLOOR] = plain
    for workers in (0, 2):
        if workers:
            loads = {**loads, CACHE: DecodedCache(4 << 30), "DecodedCache, filled before": loads[CACHE]}
        loaders = {way: loader(paths, way, load, workers) for way, load in loads.items()}
        label = f"DataLoader, {workers} workers"
        medians[label] = printed(f"{name}, {label}", in_turns(loaders, epoch, repeats), seconds)
    without, two = list(medians.values())[1:]
    medians["DataLoader, the better of both"] = {way: min(without[way], two[way]) for way in (USUAL, CACHE)}
    gains = {label: by_load[USUAL] / by_load[CACHE] for label, by_load in medians.items()}
    *_, (best, gain) = gains.items()
    print(f"| {name}, {best} | {CACHE} | {seconds / medians[best][CACHE]:.0f} | {gain:.1f}× |", flush=True)
    del gains["DataLoader, 2 workers"]  # told, and not aimed at: batches handed over set its pace
    return [f"{name}, {label}: {gain:.1f}" for label, gain in gains.items() if gain < AIM]


def collating(repeats: int) -> None:
    """Batches of clips that are decoded already: what is left for an epoch from memory."""
    chance = np.random.default_rng(0)
    clips = [chance.standard_normal(int(n)).astype(np.float32) for n in chance.uniform(4, 12, BATCH) * RATE]
    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=True)
    rows = [{"audio": clip, "labels": [1, 2, 3]} for clip in clips]
    sides = {USUAL: Usual(extractor, lambda clip: clip), "CTCCollator": CTCCollator(extractor, load=lambda clip: clip)}

    def batches(collate: Any) -> float:
        began = time.perf_counter()
        for _ in range(10):
            collate(rows)
        return time.perf_counter() - began

    seconds = 10 * sum(map(len, clips)) / RATE
    printed("arrays, collating", in_turns(sides, batches, repeats), seconds)


def files_or_packs(folder: Path, count: int) -> None:
    """A clip of its own file against a slice of one mapped file, both from the page cache."""
    clip, data = np.ones(RATE // 10, np.float32), io.BytesIO()
    soundfile.write(data, clip, RATE, format="WAV")
    source = folder / "source.wav"
    source.write_bytes(data.getvalue())
    cache = ResampledCache(folder / "many")
    names = []
    for number in range(count):
        path = folder / f"l{number}.wav"
        path.symlink_to(source)
        names.append(str(path))
        cache(names[-1])
    pack = folder / "pack"
    np.tile(clip, count).tofile(pack)
    mapped, chance = np.memmap(pack, np.float32, "r"), np.random.default_rng(0)
    order = chance.permutation(count)
    times: dict[str, list[float]] = {"a file each": [], "one packed file": []}
    for _ in range(3):
        began = time.perf_counter()
        for i in order:
            float(cache(names[i])[::1024].sum())
        times["a file each"].append(time.perf_counter() - began)
        began = time.perf_counter()
        for i in order:
            float(mapped[i * len(clip) : (i + 1) * len(clip)][::1024].sum())
        times["one packed file"].append(time.perf_counter() - began)
    for name, runs_s in times.items():
        print(f"{count} clips, {name}: {statistics.median(runs_s) / count * 1e6:.0f} µs a clip", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS)[:4])
    parser.add_argument("--many", type=int, help="only: so many clips in a file each, against one packed file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the ratios to the usual rate to it as well")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.many:
            files_or_packs(Path(folder), arguments.many)
            return
        print("| format | read by | s of audio a second | to usual |\n| --- | --- | --- | --- |")
        collating(arguments.repeats)
        misses = (measure(name, Path(folder) / name, arguments.clips, arguments.repeats) for name in arguments.formats)
        missed = [miss for format_misses in misses for miss in format_misses]
    if arguments.json:
        arguments.json.write_text(json.dumps(GAINS, indent=1))
    if missed:
        sys.exit(f"the decoded cache is less than {AIM:g} times as fast: {', '.join(missed)}")


if __name__ == "__main__":
    main()
