"""The options that have a closed set of values, each declared once: types for checkers, and sets for ``one_of``."""

from __future__ import annotations

from typing import Literal

from ._row_words import RowKind as RowKind

Policy = Literal["fastest", "published"]
"""A search for the least predicted time, or a formula, for comparison."""
Preset = Literal["balanced", "speed", "reproducible"]
PlannedOptimizer = Literal["adamw_torch_fused", "adamw_torch", "adamw_8bit", "adamw_bnb_8bit", "adafactor", "sgd"]
"""By the Trainer's names: those that a plan can choose."""
Optimizer = Literal[PlannedOptimizer, "adagrad", "rmsprop"]
"""By the Trainer's names: those whose memory is known."""
LRScaling = Literal["sqrt", "linear", "none"]
Preprocessing = Literal["light", "heavy"]
"""``"light"`` is reading and resampling only, ``"heavy"`` adds augmentation."""
Precision = Literal["fp32", "fp16", "bf16"]
Checkpointing = Literal["reentrant", "non_reentrant"]
"""The kinds of gradient checkpointing; True is the usual one, False none."""
LengthHandling = Literal["random", "grouped", "bucketed", "packed"]
StepMode = Literal["random", "bucketed", "packed"]
"""Which clips make up an optimizer step; ``"grouped"`` is the Trainer's own."""
StreamMode = Literal["random", "bucketed"]
"""The same of a stream, of which a window of clips is known at a time."""
ClipOrder = Literal["random", "grouped"]
MicroBatching = Literal["fixed", "memory"]
AttnImplementation = Literal["", "sdpa", "eager", "flash_attention_2"]
"""As transformers takes it; "" leaves the model's own."""
Distributed = Literal["ddp", "zero1", "zero2", "zero3", "fsdp"]
Strategy = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]
"""In the order in which one would try them: each needs less memory than the one before, and sends more."""
Estimator = Literal["auto", "trace", "published"]
OptimizerState = Literal["adamw", "adamw_8bit", "adafactor", "sgd"]
WeightRule = Literal["mean", "token_mean", "shifted_token_mean", "sum"]
"""What a micro-batch's loss is divided by: clips, tokens, tokens but each clip's first, nothing."""
PlannedRule = Literal[WeightRule, "given"]
"""As a plan holds it; ``"given"`` stands for a function."""
TooLong = Literal["raise", "skip"]
BadClipPolicy = Literal["report", "raise", "skip"]
"""What the guard does about clips whose loss or gradient is not finite, once it has saved and named them."""
OomSnapshot = Literal["off", "blocks", "history"]
"""What is written when GPU memory runs out: nothing, the allocator's blocks, or those and the allocations before."""
DurationUnit = Literal["samples", "seconds"]
CutRule = Literal["timestamps", "alignment", "silence"]
"""By what a clip over the limit is cut."""
StepKind = Literal["train", "evaluation", "checkpoint"]
"""As ``STEP_KINDS`` of ``_layout``."""
Cluster = Literal["ray", "spark"]
ReportAxis = Literal["time", "steps"]
ExportFormat = Literal["csv", "jsonl", "chrome"]
StartMethod = Literal["fork", "spawn", "forkserver"]
