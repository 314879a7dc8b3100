"""Times of fine-tuning speech models that others published, beside the estimate.

The first four are NVIDIA's, of a training loop with a loader that keeps up; nothing was chosen with them. Their
tokens per second are letters of the transcripts: fine-tuning counts ``target_lengths`` (add_target_dataset.py and
logging.py of theirs). Read as frames of 20 ms, 320 000 steps on eight cards would have taken 21 hours and not 6.5.
The others are whole runs of 2021 and 2022: evaluations, checkpoints and loaders without workers are in them and not in
the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asrconfig_go as ac


@dataclass(frozen=True)
class Report:
    """One published time: seconds of an optimizer step."""

    what: str
    source: str
    model: str
    gpu: str
    step_s: float
    whole_run: bool
    settings: dict[str, Any]


NVIDIA = "NVIDIA/DeepLearningExamples, PyTorch/SpeechRecognition/wav2vec2 (December 2022)"
EXAMPLES = "huggingface/transformers, examples/pytorch/speech-recognition"
BLOG = "huggingface/blog, fine-tune-whisper (November 2022)"
# Per second of LibriSpeech, with spaces: 9.4 million words in 960 hours, 5.3 letters a word; from memory.
LETTERS = 14.5
# 3.2 million samples hold twelve clips of 15 to 16 s, of which their loader takes a multiple of eight.
LIBRI = {"batch": 8, "seconds": 15.4, "freeze_feature_encoder": True}
EIGHT = {**LIBRI, "batch": 64}  # eight such batches in one
XLSR = {"seconds": 4.5, "precision": "fp16", "gradient_checkpointing": True, "freeze_feature_encoder": True}
WHISPER = {"batch": 16, "seconds": 10.0, "precision": "fp16", "gradient_checkpointing": True}
REPORTS = (
    Report("wav2vec2-base, bf16, 41 276 letters/s", NVIDIA, "facebook/wav2vec2-base", "A100-80GB",
           64 * 15.4 * LETTERS / 41275.76, False, {**EIGHT, "precision": "bf16"}),
    Report("wav2vec2-base, TF32, 34 813 letters/s", NVIDIA, "facebook/wav2vec2-base", "A100-80GB",
           64 * 15.4 * LETTERS / 34813.46, False, {**EIGHT, "precision": "fp32"}),
    Report("wav2vec2-base, bf16, 320 000 steps in 6.5 h", NVIDIA, "facebook/wav2vec2-base", "8xA100-80GB",
           6.5 * 3600 / 320000, False, {**LIBRI, "precision": "bf16"}),
    Report("wav2vec2-base, TF32, 320 000 steps in 8.2 h", NVIDIA, "facebook/wav2vec2-base", "8xA100-80GB",
           8.2 * 3600 / 320000, False, {**LIBRI, "precision": "fp32"}),
    Report("XLSR-53, 1635 steps of 32 in 1 h 20", EXAMPLES, "facebook/wav2vec2-large-xlsr-53", "V100",
           4800 / 1635, True, {**XLSR, "batch": 16, "accumulation": 2}),
    Report("XLSR-53, 1635 steps of 8 × 4 in 18 min", EXAMPLES, "facebook/wav2vec2-large-xlsr-53", "8xV100",
           1080 / 1635, True, {**XLSR, "batch": 4}),
    Report("whisper-small, 5000 steps of 32 in 8 h", EXAMPLES, "openai/whisper-small", "V100",
           28800 / 5000, True, {**WHISPER, "accumulation": 2}),
    Report("whisper-small, 5000 steps of 2 × 16 in 4 h", EXAMPLES, "openai/whisper-small", "2xV100",
           14400 / 5000, True, WHISPER),
    Report("whisper-small, 5000 steps of 16 in 5 to 10 h on Colab", BLOG, "openai/whisper-small", "T4",
           27000 / 5000, True, WHISPER),
)  # fmt: skip


def main() -> None:
    """Print a line for each report, with attention in one kernel and in separate ones."""
    print("| published | GPU | s a step | attention fused, s | / published | separate, s | / published | whole run |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for report in REPORTS:
        cells = [report.what, report.gpu, f"{report.step_s:.3f}"]
        for attention in ("sdpa", "eager"):
            found = ac.estimate_step_time(report.model, report.gpu, attention=attention, **report.settings).step_s
            cells += [f"{found.likely:.2f} ({found.low:.2f}–{found.high:.2f})", f"{found.likely / report.step_s:.2f}"]
        print(f"| {' | '.join(cells)} | {'yes' if report.whole_run else 'no'} |")
    for source in dict.fromkeys(report.source for report in REPORTS):
        print(f"- {source}")


if __name__ == "__main__":
    main()
