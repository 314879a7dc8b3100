"""Times of fine-tuning speech models that others published, beside the estimate.

The first four are NVIDIA's, of a training loop with a loader that keeps up; nothing was chosen with them. Their
tokens per second are letters of the transcripts: fine-tuning counts ``target_lengths`` (add_target_dataset.py and
logging.py of theirs). Read as frames of 20 ms, 320 000 steps on eight cards would have taken 21 hours and not 6.5.

The others are whole runs of 2021 and 2022. Their attention ran in separate kernels; the estimate is of one, which is
faster. Their scripts prepare features once and keep them in Arrow tables, which the training process unpacks as lists
of Python floats, without workers. ``FLOAT_S`` is what that takes: 0.23 us a float with pyarrow 10, and 0.02 us to make
an array of it, on a core of an AMD EPYC of 2024 (72 000 floats 16 + 2 ms, 80 x 3000 floats 55 + 6 ms); cores of the
Xeons beside V100 and in Colab are half as fast. Newer versions of pyarrow take 0.02 us. Evaluations are as the commands
say: every 100 steps with the 1647 clips of Common Voice's Turkish test split, every 1000 with the 2894 of the Hindi
one, whose texts are generated; 40 tokens of usual speech of 10 s are assumed, which is little for Hindi. Splits' sizes
are from memory.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asrconfig_go as ac
from asrconfig_go._core import native
from asrconfig_go.plan.plan_records import Range


@dataclass(frozen=True)
class Report:
    """One published time: seconds of an optimizer step."""

    what: str
    source: str
    model: str | dict[str, Any]
    gpu: str
    step_s: float
    hours: float | None
    """Of the whole run, where that is what was published."""
    settings: dict[str, Any]
    run: dict[str, Any] = field(default_factory=dict)
    """What a whole run has beside its steps."""


def skipping(name: str, layerdrop: float) -> dict[str, Any]:
    """The config of a known model with the ``layerdrop`` that the published command sets."""
    answer = native.call("model.config", {"name": name})
    return {**answer["config"], "architectures": [answer["class_name"]], "layerdrop": layerdrop}


NVIDIA = "NVIDIA/DeepLearningExamples, PyTorch/SpeechRecognition/wav2vec2 (December 2022)"
EXAMPLES = "huggingface/transformers, examples/pytorch/speech-recognition"
BLOG = "huggingface/blog, fine-tune-whisper (November 2022)"
# Per second of LibriSpeech, with spaces: 9.4 million words in 960 hours, 5.3 letters a word; from memory.
LETTERS = 14.5
# 3.2 million samples hold twelve clips of 15 to 16 s, of which their loader takes a multiple of eight.
LIBRI = {"batch": 8, "seconds": 15.4, "freeze_feature_encoder": True}
EIGHT = {**LIBRI, "batch": 64}  # eight such batches in one
FLOAT_S = 0.5e-6
XLSR = {"seconds": 4.5, "precision": "fp16", "gradient_checkpointing": True, "freeze_feature_encoder": True}
WHISPER = {"batch": 16, "seconds": 10.0, "precision": "fp16", "gradient_checkpointing": True}
# Seconds of audio that the training process prepares in a second: 16 000 floats a second of waveform; of Whisper's
# features 80 x 3000 for any clip.
XLSR_RUN = {
    "steps": 1635,
    "eval_steps": 100,
    "eval_samples": 1647,
    "eval_batch": 8,
    "save_steps": 400,
    "loader_rate": 1 / (16000 * FLOAT_S),
}
WHISPER_RUN = {
    "steps": 5000,
    "eval_steps": 1000,
    "eval_samples": 2894,
    "eval_batch": 16,
    "save_steps": 1000,
    "loader_rate": 10 / (80 * 3000 * FLOAT_S),
    "generation_max_length": 225,
}
BASE = skipping("facebook/wav2vec2-base", 0.1)  # ENCODER_LAYERDROP of finetune_vox_960h.sh, which the base script calls
XLSR_53 = skipping("facebook/wav2vec2-large-xlsr-53", 0.0)  # --layerdrop="0.0"
NVIDIA_RUN = {"steps": 320000, "workers": 8, "loader_rate": 1000.0}
REPORTS = (
    Report("wav2vec2-base, bf16, 41 276 letters/s", NVIDIA, BASE, "A100-80GB",
           64 * 15.4 * LETTERS / 41275.76, None, {**EIGHT, "precision": "bf16"}),
    Report("wav2vec2-base, TF32, 34 813 letters/s", NVIDIA, BASE, "A100-80GB",
           64 * 15.4 * LETTERS / 34813.46, None, {**EIGHT, "precision": "fp32"}),
    Report("wav2vec2-base, bf16, 320 000 steps in 6.5 h", NVIDIA, BASE, "8xA100-80GB",
           6.5 * 3600 / 320000, 6.5, {**LIBRI, "precision": "bf16"}, NVIDIA_RUN),
    Report("wav2vec2-base, TF32, 320 000 steps in 8.2 h", NVIDIA, BASE, "8xA100-80GB",
           8.2 * 3600 / 320000, 8.2, {**LIBRI, "precision": "fp32"}, NVIDIA_RUN),
    Report("XLSR-53, 1635 steps of 32 in 1 h 20", EXAMPLES, XLSR_53, "V100",
           4800 / 1635, 4 / 3, {**XLSR, "batch": 16, "accumulation": 2}, XLSR_RUN),
    Report("XLSR-53, 1635 steps of 8 × 4 in 18 min", EXAMPLES, XLSR_53, "8xV100",
           1080 / 1635, 0.3, {**XLSR, "batch": 4}, XLSR_RUN),
    Report("whisper-small, 5000 steps of 32 in 8 h", EXAMPLES, "openai/whisper-small", "V100",
           28800 / 5000, 8.0, {**WHISPER, "accumulation": 2}, WHISPER_RUN),
    Report("whisper-small, 5000 steps of 2 × 16 in 4 h", EXAMPLES, "openai/whisper-small", "2xV100",
           14400 / 5000, 4.0, WHISPER, WHISPER_RUN),
    Report("whisper-small, 5000 steps of 16 in 5 to 10 h on Colab", BLOG, "openai/whisper-small", "T4",
           27000 / 5000, 7.5, WHISPER, {**WHISPER_RUN, "eval_batch": 8}),
)  # fmt: skip


def figures() -> dict[str, str]:
    """What README and guides quote, in percent: the training loops, and all of the whole runs but the worst."""
    loops = [100 * (step(r).likely / r.step_s - 1) for r in REPORTS if r.source == NVIDIA]
    runs = [100 * (whole(r).run_hours.likely / r.hours - 1) for r in REPORTS if r.source != NVIDIA and r.hours]
    return {
        "times_loops": f"{max(map(abs, loops)):.0f}",
        "times_loops_range": spread(loops),
        "times_runs": f"{sorted(map(abs, runs))[-2]:.0f}",
        "times_runs_range": spread(runs),
    }


def spread(shares: list[float]) -> str:
    return f"{min(shares):+.0f} to {max(shares):+.0f}".replace("-", "−")


def main() -> None:
    """Print the steps, then the whole runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    options = parser.parse_args()
    print("| published | GPU | s a step | predicted, s | / published |")
    print("| --- | --- | --- | --- | --- |")
    for report in REPORTS:
        cells = [report.what, report.gpu, f"{report.step_s:.3f}"]
        prediction = step(report)
        cells += [
            f"{prediction.likely:.2f} ({prediction.low:.2f}–{prediction.high:.2f})",
            f"{prediction.likely / report.step_s:.2f}",
        ]
        print(f"| {' | '.join(cells)} |")
    print("\n| run | GPU | published, h | predicted, h | / published | training | evaluation | checkpoints | start |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for report in REPORTS:
        if report.hours is not None:
            print(f"| {' | '.join(whole_run(report, report.hours))} |")
    for source in dict.fromkeys(report.source for report in REPORTS):
        print(f"- {source}")
    if options.json:
        options.json.write_text(json.dumps(figures()))


def step(report: Report) -> Range:
    return ac.estimate_step_time(report.model, report.gpu, **report.settings).step_s


def whole(report: Report) -> Any:
    return ac.estimate_run_time(report.model, report.gpu, **report.settings, **report.run)


def whole_run(report: Report, published: float) -> list[str]:
    """The cells of a run: hours, and what they go to."""
    prediction = whole(report)
    hours, parts = prediction.run_hours, prediction.run_parts
    stages = (parts.training, parts.evaluation, parts.checkpoints, parts.start_up)
    cells = [report.what, report.gpu, f"{published:.2f}", f"{hours.likely:.2f} ({hours.low:.2f}–{hours.high:.2f})"]
    return [*cells, f"{hours.likely / published:.2f}", *(f"{part.likely:.3f}" for part in stages)]


if __name__ == "__main__":
    main()
