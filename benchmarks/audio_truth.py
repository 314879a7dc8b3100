"""Durations of odd files against decoded truth: ours, soundfile, mutagen, tinytag and ffprobe.

    python benchmarks/make_audio_corpus.py FOLDER --only odd
    python benchmarks/audio_truth.py FOLDER/odd [--out benchmarks/audio_truth.md] [--json FILE]

An answer is right within 1 ms, of MP3, MP2 and ADTS AAC within one frame; of a file without audio, an error or 0 is
right.
Where an MP4 file declares less of its last frame as sound than ffmpeg plays, either is right.
Median and worst error are of the files that hold audio and got an answer.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audio_peers import CRASHED, HUNG, TRUTH_PEERS, read_each

import asrconfig_go

OURS = "asrconfig"
KNOWN = {"xing_claims_half.mp3", "pages_lost.opus", "ffmpeg.spx", "truncated.spx"}
"""What ours has wrong; another one ends the script with status 1."""
LOST = {CRASHED, HUNG}


@dataclass(frozen=True)
class Truth:
    """What a decoder found in one file."""

    name: str
    family: str
    seconds: float | None
    tolerance_s: float
    known_by: str
    declared: float | None

    def off(self, answer: float) -> float:
        """By how much the answer is off, from what is nearer: what a decoder plays, or what the file declares."""
        lengths = [s for s in (self.seconds, self.declared) if s is not None]
        return min((answer - s for s in lengths), key=abs)

    def right(self, answer: float | str) -> bool:
        """Whether the answer is within the tolerance, or an error or 0 where nothing can be played."""
        if isinstance(answer, str):
            return self.seconds is None and answer not in LOST
        if self.seconds is None:
            return answer == 0
        return abs(self.off(answer)) <= self.tolerance_s + 1e-9


def ours(paths: list[Path]) -> list[float | str]:
    """Our answers; notes tell what the header claims instead, and how the duration is known."""
    clips = asrconfig_go.scan_audio(paths, progress=False, cache=False).clips
    return [clip.error if clip.duration_s is None else clip.duration_s for clip in clips]


def cell(truths: list[Truth], answers: list[float | str]) -> str:
    """Median and worst error, and what is not right."""
    pairs = list(zip(truths, answers, strict=True))
    errors = [abs(t.off(a)) for t, a in pairs if t.seconds is not None and not isinstance(a, str)]
    refused = sum(t.seconds is not None and isinstance(a, str) and a not in LOST for t, a in pairs)
    believed = sum(t.seconds is None and not t.right(a) and a not in LOST for t, a in pairs)
    wrong = sum(not t.right(a) for t, a in pairs if t.seconds is not None and not isinstance(a, str))
    lost = sum(a in LOST for _, a in pairs if isinstance(a, str))
    text = f"{seconds(statistics.median(errors))} / {seconds(max(errors))}" if errors else "–"
    counts = {"wrong": wrong, "refused": refused, "made up": believed, "lost": lost}
    notes = [f"{count} {word}" for word, count in counts.items() if count]
    return text + (f" ({', '.join(notes)})" if notes else "")


def seconds(value: float) -> str:
    """A duration or error, short."""
    if value < 1:
        return f"{value * 1000:.2f} ms" if value >= 5e-6 else "0"
    return f"{value:.1f} s" if value < 3600 else f"{value / 3600:.0f} h"


def detail(truth: Truth, answer: float | str) -> str:
    """One answer beside its truth: bold when it is not right."""
    if isinstance(answer, str):
        text = answer if answer in LOST else "error"
    elif truth.seconds is None:
        text = seconds(answer)
    else:
        off = truth.off(answer)
        text = ("−" if off < 0 else "+") + seconds(abs(off)) if abs(off) >= 5e-6 else "0"
    return text if truth.right(answer) else f"**{text}**"


def rights(truths: list[Truth], answers: dict[str, list[float | str]]) -> dict[str, int]:
    """How many files each reader has right."""
    return {r: sum(t.right(a) for t, a in zip(truths, durations, strict=True)) for r, durations in answers.items()}


def figures(truths: list[Truth], answers: dict[str, list[float | str]]) -> dict[str, Any]:
    """What README and guides quote."""
    right = rights(truths, answers)
    ours = right.pop(OURS)
    others = f"{min(right.values())} to {max(right.values())}"
    return {"audio_files": len(truths), "audio_right": ours, "audio_others": others}


def tables(truths: list[Truth], answers: dict[str, list[float | str]]) -> str:
    """Both tables: a row per format, and a row per file."""
    readers = list(answers)
    rule = f"| {' | '.join(['---'] * (len(readers) + 2))} |"
    lines = [f"| format | files | {' | '.join(readers)} |", rule]
    for family in dict.fromkeys(t.family for t in truths):
        rows = [n for n, t in enumerate(truths) if t.family == family]
        cells = [cell([truths[n] for n in rows], [answers[r][n] for n in rows]) for r in readers]
        lines.append(f"| {family} | {len(rows)} | {' | '.join(cells)} |")
    counts = rights(truths, answers).values()
    lines.append(f"| **right** | {len(truths)} | {' | '.join(f'**{n}**' for n in counts)} |")
    lines += ["", f"| file | truth | {' | '.join(readers)} |", rule]
    for n, truth in enumerate(truths):
        description = "no audio" if truth.seconds is None else f"{truth.seconds:.4f} s by {truth.known_by}"
        description += f", {truth.declared:.4f} s declared" if truth.declared else ""
        cells = [detail(truth, answers[r][n]) for r in readers]
        lines.append(f"| {truth.family}: {truth.name} | {description} | {' | '.join(cells)} |")
    return "\n".join(lines)


def versions() -> str:
    """Whom we are compared with."""
    ffprobe = subprocess.run(["ffprobe", "-version"], capture_output=True, text=True).stdout.split()[2]
    lines = [f"{name} {importlib.metadata.version(name)}" for name in ("soundfile", "mutagen", "tinytag")]
    return ", ".join([*lines, f"ffprobe {ffprobe}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    arguments = parser.parse_args()
    truths = [Truth(name, **t) for name, t in json.loads((arguments.folder / "truth.json").read_text()).items()]
    paths = [arguments.folder / t.name for t in truths]
    answers = {OURS: ours(paths)} | {reader: read_each(reader, paths) for reader in TRUTH_PEERS}
    text = f"# Durations of odd files against decoded truth\n\nMade by `benchmarks/audio_truth.py`; {versions()}.\n"
    text += (__doc__ or "").split("\n\n")[-1]
    text += "Cells of the first table: median / worst error. Bold in the second: not right.\n\n"
    text += tables(truths, answers) + "\n"
    arguments.out.write_text(text)
    print(text)
    failed = [t.name for t, a in zip(truths, answers[OURS], strict=True) if not t.right(a)]
    print(f"ours is wrong on {len(failed)}: {', '.join(failed)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures(truths, answers)))
    if set(failed) - KNOWN:
        sys.exit("ours was right on some of them before")


if __name__ == "__main__":
    main()
