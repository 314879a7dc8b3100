"""Times of fine-tuning speech models that others published, beside the estimate.

Two are throughputs of the training loop alone, and the assumed shares of the cards' figures were chosen with them. The
others are whole runs: evaluations, checkpoints and a loader of 2021 to 2023 are in them and not in the estimate, so it
should come out below; how far is all that they tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asrconfig_go as ac


@dataclass(frozen=True)
class Report:
    """One published time: seconds of an optimizer step, with the separate attention operations of its day."""

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
AUDIO_S = 1600.0  # in an NVIDIA step: eight batches of 3.2 million samples
FRAME_RATE = 49.95
LIBRI = {"batch": 104, "seconds": AUDIO_S / 104, "freeze_feature_encoder": True}
XLSR = {"seconds": 4.5, "precision": "fp16", "gradient_checkpointing": True, "freeze_feature_encoder": True}
WHISPER = {"batch": 16, "seconds": 10.0, "precision": "fp16", "gradient_checkpointing": True}
REPORTS = (
    Report("wav2vec2-base, bf16, 41 276 frames/s", NVIDIA, "facebook/wav2vec2-base", "A100-80GB",
           AUDIO_S * FRAME_RATE / 41275.76, False, {**LIBRI, "precision": "bf16"}),
    Report("wav2vec2-base, TF32, 34 813 frames/s", NVIDIA, "facebook/wav2vec2-base", "A100-80GB",
           AUDIO_S * FRAME_RATE / 34813.46, False, {**LIBRI, "precision": "fp32"}),
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
    """Print a line for each report."""
    print("| published | GPU | s a step | estimate, s (range) | estimate / published | whole run |")
    print("| --- | --- | --- | --- | --- | --- |")
    for report in REPORTS:
        found = ac.estimate_step_time(report.model, report.gpu, attention="eager", **report.settings).step_s
        ratio = found.likely / report.step_s
        span = f"{found.likely:.2f} ({found.low:.2f}–{found.high:.2f})"
        print(
            f"| {report.what} | {report.gpu} | {report.step_s:.2f} | {span} | {ratio:.2f} "
            f"| {'yes' if report.whole_run else 'no'} |"
        )
    for source in dict.fromkeys(report.source for report in REPORTS):
        print(f"- {source}")


if __name__ == "__main__":
    main()
