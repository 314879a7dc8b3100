"""Where the memory of CUDA code differs between versions of torch, found by running them on build/cuda_standin.

A build for the CPU has only the version number to ask for.
"""

from __future__ import annotations

import torch

_VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])

# Workspaces of matrix products, aten/src/ATen/cuda/CublasHandlePool.cpp: from 2.15 on TORCH_CUBLAS_WORKSPACE_CACHE is
# off. cuBLASLt's was taken for one call up to 2.8, kept from 2.9 on, and is a part of cuBLAS's from 2.12 on.
KEEPS_CUBLAS = _VERSION < (2, 15)
KEEPS_CUBLAS_LT = (2, 9) <= _VERSION < (2, 15)
SHARES_CUBLAS = (2, 12) <= _VERSION < (2, 15)

# _efficient_attention_forward in aten/src/ATen/native/transformers/cuda/attention.cu: without dropout, too, the seed
# and its offset are on the device, and keys may have fewer heads than queries.
EFFICIENT_SEEDS_ON_DEVICE = _VERSION >= (2, 14)
EFFICIENT_SHARES_HEADS = _VERSION >= (2, 14)
FLASH_SEEDS_ON_DEVICE = _VERSION >= (2, 7)  # mha_fwd in flash_attn/flash_api.cpp, the same folder

# convert_boolean_attn_mask and _scaled_dot_product_attention_math in aten/src/ATen/native/transformers/attention.cpp.
FILLS_MASKS = _VERSION < (2, 5)
MATH_IN_FLOAT = _VERSION >= (2, 5)

# ConfigureAndLaunchGammaBetaBackwardKernel, aten/src/ATen/native/cuda/layer_norm_kernel.cu.
SPLITS_NORMS = _VERSION >= (2, 8)
