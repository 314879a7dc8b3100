"""Writes what comes with the package of known models: their counts, and recordings of those that people use most.

    python build/record_models.py            # both
    python build/record_models.py --counts   # the counts alone

Needs torch and transformers. Models are built without memory, so that every one takes seconds.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from asrconfig_go._core import native
from asrconfig_go._core.declared import Precision
from asrconfig_go._core.modules import versions
from asrconfig_go._core.settings import TRACED_MICRO_BATCHES
from asrconfig_go.predict.memory_settings import MemorySettings
from asrconfig_go.predict.model_profile import adafactor_bytes, counts_of_module, known_models, on_meta
from asrconfig_go.predict.recordings import FOLDER, RecordedSettings, Recording
from asrconfig_go.trace.event_log import FORMAT, VERSION
from asrconfig_go.trace.model import Model
from asrconfig_go.trace.tiny_models import TINY

COUNTS = Path(__file__).parent.parent / "core" / "model" / "counts.json"
MODELS = (
    "tiny-wav2vec2", "tiny-whisper", "facebook/wav2vec2-base", "facebook/wav2vec2-xls-r-300m",
    "facebook/wav2vec2-xls-r-1b", "microsoft/wavlm-base-plus", "facebook/w2v-bert-2.0", "openai/whisper-tiny",
    "openai/whisper-base", "openai/whisper-small", "openai/whisper-medium", "openai/whisper-large-v3",
    "openai/whisper-large-v3-turbo", "nvidia/parakeet-ctc-0.6b",
)  # fmt: skip
# What suits each class of kernels: float32 on cards before Volta, float16 up to Turing, bfloat16 from Ampere on.
_PRECISIONS: dict[int, tuple[tuple[int, int], Precision]] = {
    0: ((6, 0), "fp32"),
    7: ((7, 5), "fp16"),
    8: ((8, 0), "bf16"),
    9: ((9, 0), "bf16"),
}


SETTINGS = [
    (RecordedSettings(precision, checkpointing, kernels), capability)
    for kernels, (capability, precision) in _PRECISIONS.items()
    for checkpointing in (False, True)
]


def recorded(name: str, settings: RecordedSettings, capability: tuple[int, int]) -> dict[str, Any]:
    """One trace, as the object that its file holds."""
    memory_settings = MemorySettings(
        precision=settings.precision, gradient_checkpointing=settings.gradient_checkpointing,
        accumulation=TRACED_MICRO_BATCHES,
    )  # fmt: skip
    trace = Recording(Model.of(name), memory_settings, capability).trace()
    return {"format": FORMAT, "version": VERSION, **vars(trace)}


def counts_of_built(build: Callable[[], Any]) -> dict[str, Any]:
    """What the core's table of known models has of one, whole and of its front end."""
    model = on_meta(build)
    counts = counts_of_module(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    if hasattr(model, "freeze_feature_encoder"):
        model.freeze_feature_encoder()
    front_end = [p for p in trained if not p.requires_grad]
    return {
        "class_name": counts["class_name"],
        "architecture": counts["architecture"],
        "total": counts["total"],
        "trainable": counts["trainable"],
        "adafactor_state_bytes": counts["adafactor_state_bytes"],
        "hidden_size": counts.get("hidden_size"),
        "layers": counts.get("layers"),
        "front_end": sum(p.numel() for p in front_end),
        "front_end_adafactor": sum(adafactor_bytes(tuple(p.shape)) for p in front_end),
    }


def write_counts() -> None:
    """Count every model of the catalogue as it is built."""
    counts = {}
    for name in (*TINY, *known_models()):
        counts[name] = counts_of_built(Model.of(name).build)
    lines = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in counts.items()]
    COUNTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def packed(traces: Iterable[tuple[RecordedSettings, dict[str, Any]]]) -> bytes:
    """A file of traces, each as the object that its own file would hold."""
    header, parts, begin = [], [], 0
    for settings, body in traces:
        parts.append(json.dumps(_relative(body), separators=(",", ":")).encode())
        header.append({"settings": list(settings), "begin": begin, "end": begin + len(parts[-1])})
        begin += len(parts[-1])
    head = json.dumps(header, separators=(",", ":")).encode()
    return lzma.compress(b"\n".join([head, b"".join(parts)]), preset=9 | lzma.PRESET_EXTREME)


def _relative(body: dict[str, Any]) -> dict[str, Any]:
    born, segments = 0, []
    for segment in body["segments"]:
        events = []
        for event in segment["events"]:
            events.append(event if event >= 0 else -born - 1 - event)
            born += event >= 0
        modules = segment["module"]
        steps = [now - before for before, now in zip([0, *modules], modules, strict=False)]
        segments.append({**segment, "events": events, "module": steps})
    return {**body, "segments": segments}


def write_recordings() -> None:
    """Record the models, each into a file of its own; models with equal configs share one."""
    FOLDER.mkdir(exist_ok=True)
    files: dict[str, str] = {}
    by_config: dict[str, str] = {}
    for name in MODELS:
        file = f"{name.rpartition('/')[2]}.xz"
        (FOLDER / file).write_bytes(
            packed((model, recorded(name, model, capability)) for model, capability in SETTINGS)
        )
        files[name] = by_config[_config(name)] = file
        print(f"{name}: {(FOLDER / file).stat().st_size} B", flush=True)
    for name in known_models():
        if (twin := by_config.get(_config(name))) is not None:
            files.setdefault(name, twin)
    index = {"versions": versions(), "files": dict(sorted(files.items()))}
    (FOLDER / "models.json").write_text(json.dumps(index, indent=1) + "\n")


def _config(name: str) -> str:
    values = TINY[name] if name in TINY else native.call("model.config", {"name": name})["config"]
    return json.dumps(values, sort_keys=True)


def main() -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true", help="the counts alone")
    arguments = parser.parse_args()
    write_counts()
    if not arguments.counts:
        write_recordings()
    return 0


if __name__ == "__main__":
    sys.exit(main())
