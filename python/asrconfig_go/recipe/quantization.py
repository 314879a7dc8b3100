"""Checkpoints whose weights bitsandbytes loads in 8 or 4 bits, for adapters to train beside."""

from __future__ import annotations

from typing import Any

from .._base.errors import InvalidArgumentError, UnsupportedError
from .required_packages import need

# A head that is new trains, and bytes do not. wav2vec2 writes into what its feature projection gives, which autograd
# refuses behind bitsandbytes' products on a GPU.
_WHOLE = ["lm_head", "proj_out", "feature_projection.projection"]


def check_bits(bits: int | None, adapters: bool, random: bool) -> None:
    """Raise ``InvalidArgumentError`` where such weights could not be trained, ``UnsupportedError`` without packages."""
    if bits is None:
        return
    if bits not in (4, 8):
        raise InvalidArgumentError(f"bits = {bits} is not 8 or 4", "leave bits (--bits) out for whole weights")
    if not adapters:
        raise InvalidArgumentError(
            f"weights of {bits} bits do not train", "train adapters beside them: lora_rank=16 (--lora 16)"
        )
    if random:
        raise InvalidArgumentError("bits loads a checkpoint, and the tiny models have none", "leave bits (--bits) out")
    need(f"bits={bits}", "bitsandbytes")
    if bits == 4 and not _on_a_gpu():
        raise UnsupportedError(
            "bits=4 needs a GPU: on a CPU bitsandbytes fails in training", "use bits=8 (--bits 8) here"
        )


def quantized(bits: int | None) -> dict[str, Any]:
    """What ``from_pretrained`` takes for that."""
    if bits is None:
        return {}
    import torch
    from transformers import BitsAndBytesConfig

    if bits == 8:
        config = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=_WHOLE)
    else:
        config = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=_computed(torch),
            llm_int8_skip_modules=_WHOLE,
        )  # fmt: skip
    return {"quantization_config": config}


def _on_a_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _computed(torch: Any) -> Any:
    """What autocast computes in there, in place of float32."""
    ampere = _on_a_gpu() and torch.cuda.get_device_capability()[0] >= 8
    return torch.bfloat16 if ampere else torch.float16
