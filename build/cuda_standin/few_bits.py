"""bitsandbytes on the stand-in, whose library of kernels needs more of CUDA's runtime than is there."""

from __future__ import annotations

from collections.abc import Callable


class _Library:
    """Each of its functions returns at once, as all kernels do here."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 0


def replace_kernels() -> None:
    """For the rest of the process; torch and bitsandbytes take memory as they would on a GPU."""
    from bitsandbytes import functional
    from bitsandbytes.backends.cuda import ops

    functional.lib = ops.lib = _Library()
