"""What DeepSpeed, FSDP and accelerate are configured with."""

from __future__ import annotations

from typing import Any

from ..plan.plan_record import PlanRecord
from .layers import Units

# Elements, as core/memory/sharding counts them. DeepSpeed's own defaults (5e8 and 1e9) are larger than most speech
# models: its buckets would take more than it saves, and ZeRO-3 would keep all that it has gathered.
REDUCE_BUCKET = 25_000_000
PREFETCH_BUCKET = 25_000_000
LIVE_PARAMETERS = 50_000_000


def deepspeed_config(stage: int) -> dict[str, Any]:
    """DeepSpeed's configuration for the Trainer.

    ``"auto"`` is what the Trainer fills in from its arguments, so that batch, accumulation, clipping and precision
    cannot differ. Optimizer and schedule are the Trainer's.
    """
    zero: dict[str, Any] = {
        "stage": stage,
        "contiguous_gradients": True,
        "overlap_comm": stage == 3,  # in stages 1 and 2 it needs a second bucket
        "reduce_scatter": True,
        "reduce_bucket_size": REDUCE_BUCKET,
        "allgather_bucket_size": REDUCE_BUCKET,
    }
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": PREFETCH_BUCKET,
            "stage3_max_live_parameters": LIVE_PARAMETERS,
            "stage3_max_reuse_distance": LIVE_PARAMETERS,
            "stage3_gather_16bit_weights_on_model_save": True,  # without it checkpoints hold no usable weights
        }
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000},
        "bf16": {"enabled": "auto"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # the Trainer's, 8-bit ones among them
    }


def fsdp_config(config: PlanRecord, units: Units) -> dict[str, Any]:
    """FSDP's settings under the Trainer's names; accelerate's are these behind ``fsdp_``.

    Recomputation is FSDP's own, since the Trainer's would gather each layer once more.
    """
    return {
        "version": units.version,
        "reshard_after_forward": True if units.version == 2 else "full_shard",
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "transformer_layer_cls_to_wrap": list(units.layers),
        "activation_checkpointing": config.gradient_checkpointing,
        "cpu_ram_efficient_loading": False,
        "state_dict_type": "FULL_STATE_DICT",
    }


def accelerate_config(config: PlanRecord, machines: int, units: Units | None, deepspeed_file: str) -> dict[str, Any]:
    """The content of accelerate's file, for a plan whose ``distributed`` is settled.

    accelerate starts several processes on CPUs by MPI only; named as GPUs they are started by torchrun, and the
    Trainer's ``use_cpu`` makes them what they are. DeepSpeed's precision comes from its own file: accelerate refuses
    to be passed twice.
    """
    kind = {"none": "NO", "ddp": "MULTI_GPU", "fsdp": "FSDP"}.get(config.distributed, "DEEPSPEED")
    content: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_machines": machines,
        "num_processes": config.device_count,
        "machine_rank": 0,
        "main_training_function": "main",
        "use_cpu": not config.gpu_name,
    }
    if kind == "DEEPSPEED":
        content["deepspeed_config"] = {
            "deepspeed_config_file": deepspeed_file,
            "zero3_init_flag": config.distributed == "zero3",
            "deepspeed_multinode_launcher": "standard",
        }
        return content
    content["mixed_precision"] = "no" if config.precision == "fp32" else config.precision
    if units:
        settings = fsdp_config(config, units)
        settings["transformer_layer_cls_to_wrap"] = ",".join(units.layers)
        content["fsdp_config"] = {f"fsdp_{name}": value for name, value in settings.items()}
    return content
