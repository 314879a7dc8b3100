"""The numbers and structures of ``capi/layout.h`` for ctypes, written by build/generate from core/api/abi.go."""

import ctypes

ABI_VERSION = 5
MAX_GPUS = 16
MAX_REQUEST = 1073741824
OK = 0
BAD_CALL = 1
NO_MONITOR = 2
POISONED = 3
STEP_KINDS = ("train", "evaluation", "checkpoint")  # by their numbers


class GPUStats(ctypes.Structure):
    """``ac_gpu_stats``: One GPU's memory in bytes."""

    _fields_ = [
        ("total", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("peak", ctypes.c_uint64),
        ("valid", ctypes.c_bool),
        ("allocated", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
        ("headroom", ctypes.c_uint64),
        ("torch_valid", ctypes.c_bool),
        ("free_at_step", ctypes.c_uint64),
    ]


class Stats(ctypes.Structure):
    """``ac_stats``: The newest sample."""

    _fields_ = [
        ("samples", ctypes.c_uint64),
        ("errors", ctypes.c_uint64),
        ("unix_nanos", ctypes.c_int64),
        ("host_total", ctypes.c_uint64),
        ("host_used", ctypes.c_uint64),
        ("host_peak", ctypes.c_uint64),
        ("gpu_count", ctypes.c_ssize_t),
        ("alerts", ctypes.c_uint64),
        ("gpu", GPUStats * 16),
    ]


class Step(ctypes.Structure):
    """``ac_step``: One optimizer step, evaluation batch or checkpoint at its end."""

    _fields_ = [
        ("number", ctypes.c_uint64),
        ("kind", ctypes.c_int64),
        ("gpu", ctypes.c_ssize_t),
        ("ago_s", ctypes.c_double),
        ("spent_s", ctypes.c_double),
        ("waited_s", ctypes.c_double),
        ("audio_s", ctypes.c_double),
        ("padded_s", ctypes.c_double),
        ("longest_s", ctypes.c_double),
        ("arithmetic_s", ctypes.c_double),
        ("allocated", ctypes.c_double),
        ("reserved", ctypes.c_double),
        ("peak_allocated", ctypes.c_double),
        ("peak_reserved", ctypes.c_double),
    ]
