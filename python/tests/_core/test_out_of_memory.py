"""What is logged and reported of an error of memory."""

from __future__ import annotations

import pytest

from asrconfig_go._core.out_of_memory import first_line

TRIED = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 15 GiB of which 1.60 MiB is free"
IN_USE = (
    "Including non-PyTorch memory, this process has 26.00 MiB memory in use. Of the allocated memory 8.70 MiB is "
    "allocated by PyTorch, and 17.30 MiB is reserved by PyTorch but unallocated."
)
ADVICE = (
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html)"
)
OLD = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 14.75 GiB total capacity; 13.10 GiB already allocated)"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{TRIED}. {IN_USE} {ADVICE}", TRIED),  # PyTorch 2.15
        (f"{TRIED}. Process 812 has 14.10 GiB memory in use. {IN_USE} {ADVICE}", TRIED),
        (f"{OLD} If reserved memory is >> allocated memory try setting max_split_size_mb. See documentation", OLD),
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronous", "CUDA error: out of memory"),
        ("shapes cannot be multiplied. If reservedly", "shapes cannot be multiplied. If reservedly"),
        ("  \n", "RuntimeError"),
    ],
)  # fmt: skip
def test_first_line(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line
