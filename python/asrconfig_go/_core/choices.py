"""Closed sets of choices that Python alone knows; those that Go decides by are in ``declared``."""

from __future__ import annotations

from typing import Literal

Checkpointing = Literal["reentrant", "non_reentrant"]
"""The kinds of gradient checkpointing. A setting may also be True, for the usual kind, or False, for none."""
StreamMode = Literal["random", "bucketed"]
"""How a stream makes the steps of a window: of any clips, or each of clips of similar length."""
AttnImplementation = Literal["", "sdpa", "eager", "flash_attention_2"]
"""The implementations of attention, by transformers' names; "" keeps the model's own."""
Estimator = Literal["auto", "trace", "published"]
"""How memory is estimated: by a traced step, by a published formula, or ``"auto"``, by the first of both that works."""
TooLong = Literal["raise", "skip"]
"""What the guard does about a clip for which the memory is too small even when it is alone."""
BadClipPolicy = Literal["report", "raise", "skip"]
"""What the guard does about clips whose loss or gradient is not finite, once it has saved and named them."""
OomSnapshot = Literal["off", "blocks", "history"]
"""What is written when GPU memory runs out: nothing, the allocator's blocks, or those and the allocations before."""
DurationUnit = Literal["samples", "seconds"]
"""The unit of the numbers in a column of lengths."""
CutRule = Literal["timestamps", "alignment", "silence"]
"""What decides where a clip over the limit is cut."""
Cluster = Literal["ray", "spark"]
"""The engines that scan a dataset on several machines."""
ReportAxis = Literal["time", "steps"]
"""The horizontal axis of a report's charts."""
ExportFormat = Literal["csv", "jsonl", "chrome"]
"""The formats of an exported run log; ``"chrome"`` is the trace format of Chrome and Perfetto."""
StartMethod = Literal["fork", "spawn", "forkserver"]
"""How a DataLoader starts its worker processes, by multiprocessing's names."""
