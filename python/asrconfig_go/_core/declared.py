"""Closed sets of choices, numbers and words that the library declares; written by build/generate from Go."""

from dataclasses import dataclass
from typing import Final, Literal

Policy = Literal["fastest", "published"]
"""A search for the least predicted time, or a formula, for comparison."""
Preset = Literal["balanced", "speed", "reproducible"]
PlannedOptimizer = Literal["adafactor", "adamw_8bit", "adamw_bnb_8bit", "adamw_torch", "adamw_torch_fused", "sgd"]
"""By the Trainer's names: those that a plan can choose."""
Optimizer = Literal[
    "adafactor",
    "adagrad",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "adamw_torch",
    "adamw_torch_fused",
    "rmsprop",
    "sgd",
]
"""By the Trainer's names: those whose memory is known."""
LRScaling = Literal["sqrt", "linear", "none"]
Preprocessing = Literal["light", "heavy"]
"""``"light"`` is reading and resampling only, ``"heavy"`` adds augmentation."""
Precision = Literal["fp32", "fp16", "bf16"]
LengthHandling = Literal["random", "grouped", "stratified", "bucketed"]
MicroBatching = Literal["fixed", "memory"]
StepMode = Literal["random", "stratified", "bucketed"]
"""Which clips make up an optimizer step; ``"grouped"`` is the Trainer's own."""
Distributed = Literal["ddp", "zero1", "zero2", "zero3", "fsdp"]
"""In the order in which one would try them: each needs less memory than the one before, and sends more."""
Strategy = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]
WeightRule = Literal["mean", "token_mean", "shifted_token_mean", "sum"]
"""What a micro-batch's loss is divided by: clips, tokens, tokens but each clip's first, nothing."""
PlannedRule = Literal["mean", "token_mean", "shifted_token_mean", "sum", "given"]
"""What a plan says that a loss is divided by; ``"given"`` stands for a function."""
StepKind = Literal["train", "evaluation", "checkpoint"]
PredictedFor = Literal[
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "device_count",
    "micro_batching",
    "micro_batch_size",
    "fp16",
    "bf16",
    "tf32",
    "gradient_checkpointing",
    "every_n_layers",
    "offload_checkpoints",
    "torch_compile",
    "attn_implementation",
    "freeze_feature_encoder",
    "lora_rank",
    "optimizer",
    "length_handling",
    "group_by_length",
    "max_length_s",
    "chunk_length_s",
    "distributed",
]
"""Settings that predicted memory and times hold for: once one is overridden, they no longer do."""

MARGIN_RANGE: Final = (0.7, 0.95)
"""The least and the greatest safety margin."""
SCHEMA_VERSION: Final = 2
"""The schema of a saved plan."""
RUN_LOG_VERSION: Final = 1
KERNEL_TABLE_VERSION: Final = 1
UNSET_VERSION: Final = "0.0.0+unset"
"""The version of a library that was not built by setup.py."""
SHORTEST_S: Final = 0.5
"""Seconds; shorter clips are planned with this length."""
OVERHEAD_S: Final = 4.0
"""What a micro-batch costs besides its padded seconds, in seconds of audio, unless it was predicted."""
BUCKETS: Final = 30
"""How many ranges of length bucketed steps are drawn from."""
REDUCE_BUCKET: Final = 25000000
"""Elements, as those below. DeepSpeed's own (5e8 and 1e9) are larger than most models: nothing would be saved."""
PREFETCH_BUCKET: Final = 25000000
LIVE_PARAMETERS: Final = 50000000

RowKind = Literal["clips", "texts"]
"""Clips of audio, whose lengths are seconds, or texts, whose lengths are tokens."""


@dataclass(frozen=True)
class RowWords:
    """The words of a kind of rows, how many units of their lengths count as a second, and its bytes in a batch."""

    noun: str
    unit: str
    content: str
    lengths: str
    per_second: int
    second_bytes: int

    @property
    def nouns(self) -> str:
        """``clips``, ``texts``."""
        return f"{self.noun}s"

    def count(self, number: int) -> str:
        """``1 clip``, ``32 texts``."""
        return f"{number} {self.noun if number == 1 else self.nouns}"

    def length(self, seconds: float) -> str:
        """``25.5 s``, ``80000 s``, ``128 tokens``."""
        figure = f"{seconds:.4g}" if self.per_second == 1 and seconds < 1000 else f"{seconds * self.per_second:.0f}"
        return f"{figure} {self.unit}"

    def amount(self, hours: float) -> str:
        """``9.91 h``, ``4.08 min``, ``12979 tokens``."""
        if self.per_second != 1 or 3600 * hours < 99.5:
            return self.length(3600 * hours)
        return f"{hours:.2f} h" if hours >= 0.1 else f"{60 * hours:.3g} min"


WORDS: Final[dict[RowKind, RowWords]] = {
    "clips": RowWords("clip", "s", "audio", "durations", 1, 64000),
    "texts": RowWords("text", "tokens", "text", "lengths", 50, 400),
}
