"""Plans and profiles with every field filled, made by hand: what an explanation has to show."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import asrconfig_go as ac
from asrconfig_go.data import DatasetProfile
from asrconfig_go.data.data_records import BadFile
from asrconfig_go.plan import (
    Alternative,
    MemoryPart,
    PlannedBucket,
    PlannedDevice,
    PlannedRunParts,
    PlannedStepParts,
    PlannedTimes,
)
from asrconfig_go.plan.plan_records import Range
from asrconfig_go.predict import HardwareProfile, ModelProfile
from asrconfig_go.predict.predict_records import GPUProcess

GIB = 2**30
PARTS = {
    "parameters": 1.18,
    "gradients": 1.18,
    "optimizer": 2.35,
    "activations": 5.9,
    "temporaries": 0.45,
    "cached": 0.62,
    "context": 0.22,
}


def published_plan() -> ac.TrainingConfig:
    """A plan by the published rules for a T4, from clips of 8 s and a model made by hand."""
    manager = ac.ASRConfigManager(gpu="T4")
    manager.profile_dataset(audio([8.0] * 40))
    manager.profile_model(ModelProfile(total_parameters=300_000_000))
    return manager.plan(ac.PlanOptions(policy="published"))


def hours(likely: float) -> Range:
    return Range(low=0.6 * likely, likely=likely, high=1.75 * likely)


def whole_plan(plan: Any, **changes: Any) -> ac.TrainingConfig:
    """``plan`` as one that a search in the memory model would give, with ``changes``."""
    parts = tuple(MemoryPart(name, int(size * GIB)) for name, size in PARTS.items())
    told = {
        "gradient_checkpointing": ("off", "on", "1.3× faster"),
        "length_handling": ("bucketed", "random order", "1.4× faster, 38 % less padding"),
        "micro_batching": ("memory", "fixed", "1.2× faster"),
    }
    decisions = [
        dataclasses.replace(d, alternative=told[d.setting][1], gain=told[d.setting][2]) if d.setting in told else d
        for d in plan.decisions
    ]
    found = {
        "policy": "fastest",
        "micro_batching": "memory",
        "micro_batch_size": 3,
        "per_device_train_batch_size": 32,
        "gradient_accumulation_steps": 1,
        "per_device_eval_batch_size": 16,
        "eval_accumulation_steps": 16,
        "length_handling": "bucketed",
        "length_buckets": tuple(
            PlannedBucket(s, n, m)
            for s, n, m in (
                (4.2, 520, 26),
                (6.1, 930, 16),
                (8.3, 1010, 11),
                (12.0, 960, 7),
                (17.5, 420, 5),
                (20.0, 90, 3),
            )
        ),
        "max_length_s": 20.0,
        "gradient_checkpointing": False,
        "every_n_layers": 1,
        "offload_checkpoints": False,
        "attn_implementation": "sdpa",
        "freeze_feature_encoder": True,
        "alloc_conf": "expandable_segments:True",
        "memory_parts": parts,
        "predicted_bytes": sum(part.bytes for part in parts),
        "predicted_high_bytes": int(12.4 * GIB),
        "times": PlannedTimes(
            step_s=Range(1.9, 3.2, 5.6),
            parts=PlannedStepParts(*(Range(0.5 * s, s, 2 * s) for s in (1.5, 1.0, 0.1, 0.3, 0.0, 0.3))),
            epoch_hours=hours(0.12),
            run_hours=hours(0.36),
            run_parts=PlannedRunParts(hours(0.32), hours(0.03), hours(0.004), hours(0.006)),
            audio_rate=Range(47.0, 82.0, 140.0),
            bound="compute",
            calibrated=False,
            measured="",
            cost_usd=hours(0.13),
            energy_kwh=hours(0.025),
        ),
        "alternatives": (
            Alternative(
                "published", "8 × 4, fp16, checkpointing, random order", True, int(9.4 * GIB), hours(0.23), 1.92
            ),
            Alternative("random order", "6 × 5 + 2, fp16", True, int(12.1 * GIB), hours(0.17), 1.42),
            Alternative(
                "with checkpointing", "32, fp16, checkpointing, bucketed", True, int(8.2 * GIB), hours(0.156), 1.3
            ),
            Alternative("adamw_bnb_8bit", "32, fp16, bucketed", None, int(10.0 * GIB), None, None),
            Alternative("float32", "32, fp32, bucketed", False, int(18.3 * GIB), None, None),
        ),
        "warnings": (),
        **changes,
    }
    config = dataclasses.replace(plan, **found)
    shown = {d.setting: d for d in decisions}
    rows = {row["setting"]: row["value"] for row in config.explain().to_json()["decisions"]}
    for setting in found.keys() & shown.keys():
        shown[setting] = dataclasses.replace(shown[setting], value=rows[setting])
    whole: ac.TrainingConfig = dataclasses.replace(config, decisions=tuple(shown.values()))
    return whole


def two_gpus(plan: Any) -> ac.TrainingConfig:
    """Shared unequally by an L4 and a T4."""
    devices = (
        PlannedDevice(0, "GPU-0", "NVIDIA L4", 22, 7, int(17.6 * GIB), int(19.1 * GIB)),
        PlannedDevice(1, "GPU-1", "Tesla T4", 10, 3, int(11.9 * GIB), int(12.7 * GIB)),
    )
    return whole_plan(plan, devices=devices, device_count=2, per_device_train_batch_size=16, distributed="ddp")


def audio(durations: list[float], *, bad: int = 0, source: str = "folder speech") -> DatasetProfile:
    """The profile of clips of these durations, as of 16 kHz files, with ``bad`` broken ones beside them."""
    clips = [[0.0] * max(1, round(20 * s)) for s in durations]
    profile = ac.scan_audio(clips, sampling_rate=20, progress=False).profile
    n = profile.measured_count
    return dataclasses.replace(
        profile,
        source=source,
        sample_rates={"16000": n},
        codecs={"flac": n},
        methods={"header": n},
        size_bytes=profile.decoded_bytes // 4,
        warnings=tuple(w for w in profile.warnings if "16 kHz" not in w),
        bad_count=bad,
        bad_files=tuple(BadFile(f"clips/<b>{i}</b>\u202e.wav", "ends inside its header") for i in range(min(bad, 60))),
    )


def read_speech(hours_of_it: float, seed: int = 1) -> list[float]:
    """Log-normal durations between 1.2 and 25 s, 8 s on average."""
    draw = random.Random(seed)
    return [min(25.0, max(1.2, draw.lognormvariate(1.98, 0.45))) for _ in range(round(hours_of_it * 450))]


def heavy_tail(clips: int, seed: int = 2) -> list[float]:
    """Short clips, and some of up to a minute."""
    draw = random.Random(seed)
    return [
        min(60.0, draw.lognormvariate(1.2, 0.8) + (draw.random() < 0.03) * draw.uniform(20, 60)) for _ in range(clips)
    ]


def shared_gpu(hardware: HardwareProfile, used_gib: float) -> HardwareProfile:
    """The same machine with another process on its GPUs."""
    gpus = tuple(
        dataclasses.replace(
            gpu,
            memory_used_bytes=int(used_gib * GIB),
            memory_free_bytes=gpu.memory_total_bytes - int(used_gib * GIB),
            processes=(GPUProcess(1, int(used_gib * GIB)),),
            source="driver",
        )
        for gpu in hardware.gpus
    )
    return dataclasses.replace(hardware, gpus=gpus)
