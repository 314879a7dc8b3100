"""Which of torch's functions have their small results computed on the CPU, and how."""

from __future__ import annotations

import functools

MAX_ELEMENTS = 1 << 25  # of integers, and of all that is read for a result
MAX_FLOATS = 1 << 12  # floating-point results and their inputs: factors and scales, not activations

# Results that are the first argument, in another type, place or layout.
CONVERSIONS = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "type",
        "type_as",
        "clone",
        "contiguous",
        "bool",
        "byte",
        "char",
        "short",
        "int",
        "long",
        "half",
        "bfloat16",
        "float",
        "double",
    ]
)

# Sizes of results that depend on values: computed on the CPU alone, and copied to the device.
SIZED_BY_VALUES = frozenset(["nonzero", "argwhere", "unique", "unique_consecutive", "bincount", "masked_select"])

# Answers that are no tensors, for which the device would run kernels.
ANSWERS = frozenset(["equal", "allclose", "tolist"])

# Functions that are changed, or answered, by the values of what they are given.
BY_VALUES = ANSWERS | SIZED_BY_VALUES | {"__getitem__", "__setitem__", "where", "repeat_interleave"}

# Random integers must lie in their range; the CPU's own generator is not to be advanced.
RANDOM_INTEGERS = frozenset(
    ["randint", "randint_like", "randperm", "multinomial", "bernoulli", "bernoulli_", "random_"]
)

# Activations, random or not, and what only describes a tensor.
_LEFT_ALONE = """
    rand randn rand_like randn_like normal normal_ uniform_ exponential_ empty empty_like new_empty empty_strided
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout lstm gru rnn_tanh rnn_relu
    scaled_dot_product_attention multi_head_attention_forward _pack_padded_sequence ctc_loss
    item numpy detach detach_ data_ptr requires_grad_ retain_grad register_hook register_post_accumulate_grad_hook
    size dim ndimension stride numel nelement element_size storage_offset untyped_storage get_device is_contiguous
    is_floating_point is_complex is_pinned is_shared pin_memory record_stream share_memory_ _is_view __get__ __set__
    __repr__ __format__ __hash__ __len__ __bool__ __int__ __float__ __index__ __contains__ __iter__ __deepcopy__
    __reduce_ex__
"""
LEFT_ALONE = frozenset(_LEFT_ALONE.split())

# Gradients are not computed, so that their infinities mean nothing: GradScaler finds none and steps.
_GRADIENTS = ("_fused_", "_amp_foreach_non_finite_check_and_unscale_")


@functools.cache
def is_left_alone(name: str) -> bool:
    """Whether a function's result stays what the device made of it."""
    return name in LEFT_ALONE or name.startswith(_GRADIENTS)


@functools.cache
def is_in_place(name: str) -> bool:
    """Whether a function writes to its first argument by its name; others do by ``out``."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__"))
    return name.endswith("_")
