"""Runs of speech models that people reported, against our estimate: does it say the same of whether they fit?

Reports say little of clip lengths, so each row names the one that it assumes. "fits" proves only that memory sufficed.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable
from typing import Any

import asrconfig_go as ac
from asrconfig_go.trace.model import Model

GIB = 2**30
COMMON = {"precision": "fp16", "gradient_checkpointing": True, "optimizer": "adamw_torch"}


@dataclasses.dataclass(frozen=True)
class Report:
    """One reported run. ``capacity`` is the card's memory in GiB as drivers report it."""

    what: str
    outcome: str
    source: str
    model: str
    batch: int
    seconds: float
    capacity: float
    settings: dict[str, Any]
    change: Callable[[Any], Any] | None = None
    note: str = ""


def lora(model: Any) -> Any:
    """Adapters of rank 64 on the queries and values of a model in half precision."""
    import peft

    return peft.get_peft_model(model.half(), peft.LoraConfig(r=64, target_modules=["q_proj", "v_proj"]))


def frozen_front(model: Any) -> Any:
    """The convolutional front end is not trained."""
    model.freeze_feature_encoder()
    return model


def adapters_only(model: Any) -> Any:
    """MMS: everything is frozen but the language's adapters and the head."""
    model.init_adapter_layers()
    model.freeze_base_model()
    for parameter in (*model._get_adapters().values(), *model.lm_head.parameters()):
        parameter.requires_grad = True
    return model


WHISPER_EVENT = "huggingface/community-events, whisper-fine-tuning-event"
REPORTS = [
    Report(
        "whisper-large-v3 LoRA r=64, batch 1, 8-bit AdamW",
        "peak reserved 10.35 GB, fits",
        "unslothai/notebooks Whisper.ipynb",
        "openai/whisper-large-v3",
        1,
        30,
        14.56,
        {**COMMON, "optimizer": "adamw_8bit"},
        lora,
        "3.01 GB after loading; its kernels and offloading are not the Trainer's",
    ),
    Report(
        "whisper-large-v2 full, batch 16",
        "about 42 GB",
        "yeyupiaoling/Whisper-Finetune#23",
        "openai/whisper-large-v2",
        16,
        30,
        47.4,
        COMMON,
        None,
        "settings are not reported; checkpointing assumed",
    ),
    Report(
        "whisper-large-v2 full, batch 1",
        "out of memory",
        "yeyupiaoling/Whisper-Finetune#23",
        "openai/whisper-large-v2",
        1,
        30,
        23.6,
        {**COMMON, "gradient_checkpointing": False},
    ),
    Report(
        "wav2vec2-large-lv60 fp32, batch 6, sorted",
        "fits",
        "speechbrain/speechbrain#944",
        "facebook/wav2vec2-large-lv60",
        6,
        24.5,
        15.8,
        {**COMMON, "precision": "fp32", "gradient_checkpointing": False},
        frozen_front,
        "24.5 s, LibriSpeech's longest, assumed; SpeechBrain trains with another optimizer and head",
    ),
    Report(
        "wav2vec2-large-lv60 fp32, batch 8, sorted",
        "out of memory",
        "speechbrain/speechbrain#944",
        "facebook/wav2vec2-large-lv60",
        8,
        24.5,
        15.8,
        {**COMMON, "precision": "fp32", "gradient_checkpointing": False},
        frozen_front,
    ),
    Report("whisper-small, batch 16", "fits", WHISPER_EVENT, "openai/whisper-small", 16, 30, 15.77, COMMON),
    Report("whisper-medium, batch 2", "fits", WHISPER_EVENT, "openai/whisper-medium", 2, 30, 15.77, COMMON),
    Report("whisper-small, batch 64", "fits", WHISPER_EVENT, "openai/whisper-small", 64, 30, 39.4, COMMON),
    Report("whisper-medium, batch 32", "fits", WHISPER_EVENT, "openai/whisper-medium", 32, 30, 39.4, COMMON),
    Report(
        "xls-r-300m CTC, batch 16, front end frozen",
        "fits",
        "XLS-R fine-tuning guide, huggingface.co/blog",
        "facebook/wav2vec2-xls-r-300m",
        16,
        10,
        15.75,
        COMMON,
        frozen_front,
        "Common Voice clips, up to about 10 s",
    ),
    Report(
        "xls-r-300m CTC, batch 8, up to 20 s",
        "fits",
        "transformers speech-recognition README",
        "facebook/wav2vec2-xls-r-300m",
        8,
        20,
        15.77,
        COMMON,
        frozen_front,
    ),
    Report(
        "xlsr-53 CTC, batch 1, clips of minutes",
        "out of memory",
        "huggingface/transformers#10581",
        "facebook/wav2vec2-large-xlsr-53",
        1,
        300,
        15.75,
        COMMON,
        frozen_front,
        "five minutes assumed; its transformers of 2021 kept the full attention matrix, which today's kernels do not",
    ),
    Report(
        "mms-1b-all, adapters only, batch 32",
        "fits",
        "transformers speech-recognition README",
        "facebook/mms-1b-all",
        32,
        8,
        15.77,
        COMMON,
        adapters_only,
        "Common Voice clips, up to about 8 s",
    ),
]


def estimated(report: Report) -> tuple[float, int]:
    """Peak of the device in GiB, and that of reserved memory in bytes."""
    build = Model.of(report.model).build
    change = report.change
    model = (lambda: change(build())) if change else report.model
    traced = ac.MemoryModel.trace(model, **report.settings, gpu="V100-16GB", allocator="", progress=False)
    estimate = traced.estimate(report.batch, report.seconds, timeline=0)
    return estimate.peak_device / GIB, estimate.peak_reserved


def main() -> int:
    """Print one row per report, and how many agree."""
    warnings.simplefilter("ignore")
    agree = 0
    for report in REPORTS:
        peak, _ = estimated(report)
        verdict = "fits" if peak <= report.capacity else "out of memory"
        same = verdict == ("out of memory" if report.outcome == "out of memory" else "fits")
        agree += same
        print(
            f"{report.what:52} {report.seconds:4g} s  ours {peak:6.2f} of {report.capacity:5.2f} GiB: {verdict:13}  "
            f"reported: {report.outcome}{'' if same else '   DISAGREES'}  {report.note}",
            flush=True,
        )
    print(f"{agree} of {len(REPORTS)} verdicts agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
