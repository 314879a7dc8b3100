"""A plan for several GPUs as files for torchrun, accelerate, DeepSpeed and FSDP: see docs/distributed.md."""

from .arguments import trainer_arguments
from .files import LaunchFiles, launch_files
from .layers import layer_classes
from .sharing import STRATEGIES, for_strategy

__all__ = ["STRATEGIES", "LaunchFiles", "for_strategy", "launch_files", "layer_classes", "trainer_arguments"]
