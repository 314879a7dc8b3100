"""A plan for several GPUs as files for torchrun, accelerate, DeepSpeed and FSDP: see docs/distributed.md."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "launch_arguments": ("trainer_arguments",),
        "launch_script": ("LaunchFiles", "launch_files"),
        "layers": ("layer_classes",),
        "sharded_plan": ("STRATEGIES", "for_strategy"),
    },
)
