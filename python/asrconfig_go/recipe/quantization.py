"""Checkpoints whose weights bitsandbytes loads in 8 or 4 bits, for adapters to train beside."""

from __future__ import annotations

from typing import Any

from .._base.errors import InvalidArgumentError, UnsupportedError
from .required_packages import need

# A new head must train. wav2vec2 writes in place to the output of its feature projection, which autograd refuses for
# bitsandbytes' layers on a GPU.
_WHOLE = ["lm_head", "proj_out", "feature_projection.projection"]


def check_bits(bits: int | None, adapters: bool, random: bool) -> None:
    """Raise ``InvalidArgumentError`` where such weights could not be trained, ``UnsupportedError`` without packages."""
    if bits is None:
        return
    if bits not in (4, 8):
        raise InvalidArgumentError(f"bits = {bits} is not 8 or 4", "leave bits (--bits) out for whole weights")
    if not adapters:
        hint = "train adapters beside them: lora_rank=16 (--lora 16)"
        raise InvalidArgumentError(f"weights of {bits} bits do not train", hint)
    if random:
        raise InvalidArgumentError("bits loads a checkpoint, and the tiny models have none", "leave bits (--bits) out")
    need(f"bits={bits}", "bitsandbytes")
    import torch

    if bits == 4 and not torch.cuda.is_available():
        raise UnsupportedError("bits=4 needs a GPU: bitsandbytes fails in training on a CPU", "use bits=8 (--bits 8)")


def quantized(bits: int | None) -> dict[str, Any]:
    """The arguments of ``from_pretrained`` for weights of ``bits``."""
    if bits is None:
        return {}
    import torch
    from transformers import BitsAndBytesConfig

    if bits == 8:
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=_WHOLE)}
    ampere = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", llm_int8_skip_modules=_WHOLE,
        bnb_4bit_compute_dtype=torch.bfloat16 if ampere else torch.float16,  # as autocast computes
    )  # fmt: skip
    return {"quantization_config": config}
