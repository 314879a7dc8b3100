"""Hints of the library's operations: a request that gets one, and the request mended as the hint says.

Both are patches of the first request in capi/testdata that is answered: ``{"options.mode": "x"}``. None leaves a field out.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hint_sources import ROOT


class Operation(NamedTuple):
    """The mended request is the recorded one where ``mended`` is empty."""

    operation: str
    hint: str
    wrong: dict[str, Any]
    mended: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def request(self, patch: dict[str, Any]) -> dict[str, Any]:
        """The arguments, patched."""
        return patched(recorded(self.operation), patch)


def recorded(operation: str) -> dict[str, Any]:
    """The arguments of the first request that is answered."""
    pairs = json.loads((ROOT / "capi" / "testdata" / f"{operation}.json").read_text())
    return next(dict(pair["request"]["args"]) for pair in pairs if pair["answer"].get("ok"))


def patched(arguments: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A copy with some fields set, by dotted names, or left out."""
    copy: dict[str, Any] = json.loads(json.dumps(arguments))
    for name, value in patch.items():
        *path, last = name.split(".")
        within = copy
        for part in path:
            within = within[int(part)] if isinstance(within, list) else within.setdefault(part, {})
        if value is None:
            within.pop(last, None)
        else:
            within[last] = value
    return copy


O = Operation
_MANY = [1.0] * 10
_ROWS = "give rows of increasing seconds, each with the largest micro-batch that fits, which never increases"
_RANGE = "give {} a whole number from {} to {}"
_POSITIVE = "give {} a number above 0 and at most {}"
_TWO = "leave one of the two out"
_CORRECT = "correct the config, or pass the live module"
WAV2VEC2 = {"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"]}
WHISPER = {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]}

CASES: list[Operation] = [
    # batching
    O("batching.compare", "choose 1 to {}", {"options.step_samples": 0}),
    O("batching.compare", "choose 1 to {}", {"options.buckets": 0}),
    O("batching.compare", "choose a multiple of the number of processes", {"options.ranks": 3}, {"options.ranks": 2}),
    O("batching.compare", "give what fits, or choose bucketed", {"options.memory": None}, {"options.mode": "bucketed"}),
    O("batching.split", "give 0 to 1e7 seconds", {"overhead_s": -1}),
    O("batching.split", _ROWS, {"memory": [{"seconds": 4, "batch": 1}, {"seconds": 2, "batch": 4}]}),
    O(
        "batching.split",
        "give 0 to 1e7 seconds for every clip; drop those that cannot be read",
        {"seconds": [1, -1]},
        {"seconds": [1]},
    ),
    O(
        "batching.split",
        "drop or shorten them, enable gradient checkpointing, or use a larger GPU",
        {"seconds": [1, 90]},
        {"seconds": [1]},
    ),
    O(
        "batching.compare",
        "take smaller steps, or keep the last one",
        {"options.step_samples": 64, "options.drop_last": True, "options.mode": "random"},
        {"options.step_samples": 64, "options.mode": "random"},
    ),
    # timing and comparison
    O(
        "timing.calibrate",
        "give clips and seconds of each",
        {"steps": [{"micro_batches": [[0, 30]], "measured_s": 4.0}]},
    ),
    O("timing.calibrate", "give the seconds of some optimizer steps, without the first ones", {"steps": []}),
    O("timing.compare", "compare fewer at once", {"gpus": ["T4"] * 2000}, {"gpus": ["T4"]}),
    O(
        "timing.compare",
        "give dollars per hour and GPU, such as T4=0.35",
        {"prices": {"L4": -1}},
        {"prices": {"T4": 0.35}},
    ),
    O(
        "timing.compare",
        "give seconds above 0, with the longest clip at least as long as the mean one",
        {"data.max_s": 1},
    ),
    O(
        "timing.compare",
        "give a dataset, or its hours and the mean length of a clip",
        {"data": {}},
        {"data": {"clips": 4500, "mean_s": 8, "max_s": 25}},
    ),
    O("timing.largest", "0.85 keeps 15 % of the memory free", {"safety_margin": 2}, {"safety_margin": 0.85}),
    O("timing.largest", "give the duration of the longest clip in seconds", {"seconds": -1}),
    O("timing.largest", "leave it out for 32", {"lora_rank": -1}),
    O("timing.largest", "leave it out for the default of the card", {"precision": "int4"}),
    O("timing.largest", "try whisper, xls-r, wav2vec2, hubert, wavlm or mms", {"family": "gpt"}, {"family": "mms"}),
    O("timing.largest", "did you mean {}?", {"gpu": "L44"}, {"gpu": "L4"}),
    O("timing.largest", 'write the number of GPUs before the name, as in "2xT4"', {"gpu": "0xT4"}, {"gpu": "2xT4"}),
    O("timing.run", "give eval_samples", {"eval_samples": None}),
    O("timing.run", "give optimizer steps, or 0 for none", {"save_steps": -1}, {"save_steps": 0}),
    O("timing.run", "give seconds of audio per second", {"loader_rate": -1}),
    O("timing.run", "give the optimizer steps of the run", {"steps": 0}),
    O("timing.run", "give the workers of a GPU's loader", {"workers": -1}, {"workers": 2}),
    O("timing.step", "give the seconds of an optimizer step, 1e-9 to 1e9", {"measured_s": [-1.0]}),
    O("timing.kernels", "give the card's memory", {"memory_bytes": -1}),
    # memory
    O("memory.analytic", "choose one of {}", {"optimizer": "lion"}, {"optimizer": "adafactor"}),
    O("memory.analytic", "give 1 to checkpoint every layer", {"every_n_layers": -1}, {"every_n_layers": 1}),
    O("memory.analytic", "give bytes, or leave it out", {"device_bytes": -1}, {"device_bytes": None}),
    O("memory.analytic", "give the clips of one micro-batch", {"batch": 0}),
    O("memory.analytic", "give the duration of the longest clip in seconds", {"seconds": 0}),
    O("memory.analytic", "give the micro-batches of an optimizer step, or leave it out", {"accumulation": -1}),
    O("memory.analytic", "give the rank of the adapters, or leave it out", {"lora_rank": -1}),
    O(
        "memory.analytic",
        "give the tokens of the longest transcript, or leave it out",
        {"labels": -1},
        {"labels": None},
    ),
    O(
        "memory.analytic",
        "give what nvidia-smi --query-gpu=compute_cap prints",
        {"compute_capability": "sm_75"},
        {"compute_capability": "7.5"},
    ),
    O("memory.analytic", "leave it out for {}", {"precision": "int4"}, {"precision": None}),
    O(
        "memory.analytic",
        "turn checkpointing on, or leave every_n_layers out",
        {"checkpointing": False, "every_n_layers": 2},
        {"every_n_layers": 2},
    ),
    O(
        "memory.analytic",
        "turn checkpointing on, or leave offload_checkpoints out",
        {"checkpointing": False, "offload_checkpoints": True},
        {"checkpointing": False},
    ),
    O("memory.analytic", "give a longer duration", {"seconds": 0.001}),
    O(
        "memory.analytic",
        "split the clips into pieces of that length",
        {"model.name": "openai/whisper-tiny", "seconds": 31, "freeze_feature_encoder": False},
        {"model.name": "openai/whisper-tiny", "seconds": 30, "freeze_feature_encoder": False},
    ),
    O(
        "memory.analytic",
        "split the clips, or leave long transcripts out",
        {"model.name": "openai/whisper-tiny", "labels": 5000, "freeze_feature_encoder": False},
        {"model.name": "openai/whisper-tiny", "freeze_feature_encoder": False},
    ),
    O(
        "memory.analytic",
        "leave freeze_feature_encoder out; for other frozen parts pass the live module",
        {"model.name": "openai/whisper-tiny"},
        {"model.name": "openai/whisper-tiny", "freeze_feature_encoder": None},
    ),
    O("memory.analytic", "give exactly one of name, config, folder and counts", {"model": {}}),
    O("memory.device", 'write it as "2.15.0"', {"torch": "two"}, {"torch": "2.15.0"}),
    O("memory.device", 'write it as "8.6"', {"gpu.compute_capability": "sm_86"}, {"gpu.compute_capability": "8.6"}),
    O(
        "memory.replay",
        "did you mean {}?",
        {"settings": "expandable_segment:True"},
        {"settings": "expandable_segments:True"},
    ),
    O("memory.replay", "leave the backend out, or plan with measured memory", {"settings": "backend:cudaMallocAsync"}),
    O(
        "memory.replay",
        "raise max_split_size_mb",
        {"settings": "max_split_size_mb:20,large_segment_size_mb:40"},
        {"settings": "max_split_size_mb:512,large_segment_size_mb:40"},
    ),
    O(
        "memory.replay",
        'write "key:value,key:value", lists as "key:[a:b,c:d]"',
        {"settings": "expandable_segments"},
        {"settings": "expandable_segments:True,garbage_collection_threshold:0.8"},
    ),
    O(
        "memory.replay",
        "{} takes {}",
        {"settings": "expandable_segments:Maybe"},
        {"settings": "expandable_segments:True"},
    ),
    O("memory.replay", "free every storage once, after its allocation", {"events": [-5]}, {"events": [5, -1]}),
    O("memory.replay", "leave it out for a device without a limit", {"limit_bytes": 0}, {"limit_bytes": None}),
    O("memory.sharding", "choose fp32, fp16 or bf16", {"precision": "int4"}, {"precision": "fp32"}),
    O("memory.sharding", "choose none, {}", {"strategy": "zero9"}, {"strategy": "zero3"}),
    O("memory.sharding", "give 1 to {} processes", {"devices": 0}, {"devices": 1}),
    O(
        "memory.sharding",
        "give the sizes of one process without sharding, as a profile of the model has them",
        {"parameter_bytes": 0},
    ),
    O("memory.simulate", "give batch and length of a micro-batch", {"batch": None, "length": None, "labels": None}),
    O("memory.simulate", 'give "train", "evaluate" or "generate"', {"kind": "dream"}, {"kind": "train"}),
    O("memory.simulate", "see the operation's arguments in docs/memory-model.md", {"accumulation": -1}),
    O("memory.run", 'give "random" or "grouped"', {"order": "sorted"}, {"order": "random"}),
    # models
    O(
        "model.profile",
        "known names like it: {}; or pass the live module, its config or a folder with config.json",
        {"name": "xls-r-301m"},
        {"name": "xls-r-300m"},
    ),
    O(
        "model.profile",
        "give a name such as facebook/wav2vec2-xls-r-300m",
        {"name": "x" * 5000},
        {"name": "facebook/wav2vec2-xls-r-300m"},
    ),
    O("model.profile", "give exactly one of name, config, folder and counts", {"config": WAV2VEC2}, {}),
    O(
        "model.profile",
        "pass a whole transformers config; config.to_dict() has model_type",
        {"name": None, "config": {}},
        {"name": None, "config": WAV2VEC2},
    ),
    O(
        "model.profile",
        _CORRECT,
        {"name": None, "config": {**WAV2VEC2, "hidden_size": -1}},
        {"name": None, "config": WAV2VEC2},
    ),
    O(
        "model.profile",
        "correct the config: transformers refuses it too",
        {"name": None, "config": {**WAV2VEC2, "num_attention_heads": 7}},
        {"name": None, "config": WAV2VEC2},
    ),
    O(
        "model.profile",
        "pass the JSON of config.json, or config.to_dict()",
        {"name": None, "config": "no"},
        {"name": None, "config": WAV2VEC2},
    ),
    O("model.profile", "set head to one of {}; or pass the live module", {"head": "dance"}, {"head": "Wav2Vec2ForCTC"}),
    O(
        "model.profile",
        "leave freeze_feature_encoder out; for other frozen parts pass the live module",
        {"name": "openai/whisper-tiny", "freeze_feature_encoder": True},
        {"name": "openai/whisper-tiny"},
    ),
    O(
        "model.profile",
        "pass the live module, or ModelProfile(total_parameters=…, trainable_parameters=…)",
        {"name": None, "config": {"model_type": "unheard"}},
        {},
    ),
    # plans
    O("plan.make", _RANGE, {"options.target_batch_size": 0}, {"options.target_batch_size": 16}),
    O("plan.make", _POSITIVE, {"options.num_train_epochs": -1}, {"options.num_train_epochs": 2}),
    O("plan.make", "choose one of: {}", {"options.preset": "fast"}, {"options.preset": "speed"}),
    O(
        "plan.make",
        "0.85 is usual; lower it when other programs use the same device",
        {"options.safety_margin": 0.99},
        {"options.safety_margin": 0.85},
    ),
    O("plan.make", "give dollars per hour and GPU", {"options.price_usd_hour": -1}, {"options.price_usd_hour": 0.35}),
    O(
        "plan.make",
        _TWO,
        {"options.policy": "fastest", "options.every_n_layers": 2, "options.gradient_checkpointing": False},
        {"options.policy": "fastest", "options.every_n_layers": 2},
    ),
    O(
        "plan.make",
        _TWO,
        {"options.policy": "fastest", "options.offload_checkpoints": True, "options.gradient_checkpointing": False},
        {"options.policy": "fastest", "options.gradient_checkpointing": False},
    ),
    O(
        "plan.make",
        _TWO,
        {"options.policy": "fastest", "options.preset": "reproducible", "options.precision": "fp16"},
        {"options.policy": "fastest", "options.precision": "fp16"},
    ),
    O(
        "plan.make",
        "leave length_handling out, or load the dataset without streaming",
        {"options.policy": "fastest", "options.streamed": True, "options.length_handling": "bucketed"},
        {"options.policy": "fastest", "options.length_handling": "bucketed"},
    ),
    O(
        "plan.make",
        "leave policy out, or override the settings of the plan: config.gradient_checkpointing = True",
        {"options.policy": "published", "options.precision": "fp16"},
        {"options.policy": None, "options.precision": "fp16"},
    ),
    O(
        "plan.make",
        "raise target_batch_size or lower device_count",
        {"options.device_count": 64},
        {"options.device_count": 64, "options.target_batch_size": 64},
    ),
    O(
        "plan.make",
        'leave device_count out, or name a GPU to plan for, such as gpu="T4"',
        {"hardware.gpus": [], "options.device_count": 2},
        {"hardware.gpus": []},
    ),
    O("plan.make", 'name a GPU of the catalogue instead, such as gpu="T4"', {"hardware.gpus.0.memory_total_bytes": 0}),
    O("plan.make", "profile the hardware again", {"hardware.memory.total_bytes": 0}),
    O("plan.make", "profile the dataset again", {"dataset.mean_s": -1}),
    O(
        "plan.make",
        "check the path or the split; files that cannot be read are listed in bad_files",
        {"dataset.sample_count": 0},
    ),
    O(
        "plan.make",
        "profile the model again, or give a ModelProfile with total_parameters and trainable_parameters",
        {"model.total_parameters": 0},
    ),
    # recovery and reports
    O("recovery.next", "give {} a whole number from {} to {}", {"max_retries": 1000}, {"max_retries": 100}),
    O("recovery.next", "pass the class that classify returned", {"class": "oom"}, {"class": "gpu_oom"}),
    O("report.run", 'pass "time" or "steps"', {"by": "epochs"}, {"by": "steps"}),
    O("report.run", "pass what its monitors saw", {"sources": []}),
    O("report.compare", "pass what its monitors saw", {"a.sources": []}),
    O("diagnosis.of", "read it with the version of asrconfig-go that wrote it", {"run_log.version": 99}),
    O("runlog.check", "take another copy of the file", {"run_log.duration_s": -1}),
    O("view.render", "choose one of {}", {"kind": "poem"}, {"kind": "box"}),
    O("view.render", "choose text, brief, html, page, title or charts", {"format": "pdf"}, {"format": "html"}),
    O("view.render", "pass 20 to 1000 columns, or 0 for 110", {"width": 7}, {"width": 20}),
    O("view.render", "pass the record as its to_json gives it", {"record": []}),
]
