"""A plan for several GPUs as files for torchrun, accelerate, DeepSpeed and FSDP: see docs/distributed.md."""

from .launch_arguments import trainer_arguments
from .launch_script import LaunchFiles, launch_files
from .layers import layer_classes
from .sharded_plan import STRATEGIES, for_strategy

__all__ = ["STRATEGIES", "LaunchFiles", "for_strategy", "launch_files", "layer_classes", "trainer_arguments"]
