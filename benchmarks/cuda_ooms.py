"""GPU memory that really runs out, in speech models at many places: what the guard makes of each.

    python benchmarks/cuda_ooms.py [--only NAME ...] [--places TITLE ...]

It needs no GPU: the real torch.cuda runs on the stand-in CUDA runtime (build/cuda_standin), whose limit makes PyTorch's
own allocator raise its own error. Each training is planned for a T4, guarded, and has six optimizer steps in fp16. At a
place, all memory that is free or cached is taken away, so that the next allocation fails; behind the error all of it
comes back, or as much as leaves a share of what a step needs beside the weights. Kernels compute nothing there: losses
and values of weights mean nothing, and are compared by ``guard_kinds.py`` on the CPU.

"equal" are trainings whose weights' shapes, optimizer steps, samples of each step and their order, learning rates, and
entries of the log are those of an undisturbed run, and which leave nothing on the GPU. Exit status 1 when one is not.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("build", "python/tests/helpers", "python")]

import cuda_standin  # noqa: E402

COLUMNS = "{:12} {:38} {:>5} {:34} {}"


def _happened(run: Run) -> str:
    steps = [f"{before} → {after}" if before != after else "retried" for _, _, before, after in run.events]
    restarts = ["restarted"] * run.restarts
    return ", ".join([*steps, *restarts]) or "nothing"


def _row(name: str, title: str, run: Run, off: list[str]) -> str:
    return COLUMNS.format(name, title, run.ooms, _happened(run), "; ".join(off)[:160] or "equal")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(MODELS), help="models")
    parser.add_argument("--places", nargs="+", metavar="TITLE", default=[""], help="those whose title has one of these")
    return parser.parse_args()


def _measure(name: str, wanted: list[str]) -> list[bool]:
    """Print the rows of one model; whether each is equal."""
    reference, equal = Reference(name), []
    off = differences(reference.run, reference.run, NOTHING)
    print(_row(name, "nothing", reference.run, off), flush=True)
    for place in PLACES:
        if place.is_possible(MODELS[name]()) and any(text in place.title for text in wanted):
            run, off = reference.disturbed(place)
            equal.append(not off)
            print(_row(name, place.title, run, off), flush=True)
    return equal


def main() -> int:
    """Print the table as its rows come, and a summary."""
    options, begin = _options(), time.monotonic()
    gc.collect()
    gc.freeze()  # collections then pass over what is imported
    print(COLUMNS.format("model", "memory runs out in", "times", "micro-batches", "result"))
    equal = [equals for name in options.only for equals in _measure(name, options.places)]
    print(
        f"{len(equal)} places in {len(options.only)} models: {sum(equal)} equal, {len(equal) - sum(equal)} not; "
        f"{time.monotonic() - begin:.0f} s"
    )
    if names := cuda_standin.unsupported():
        print("the stand-in has no meaning for", ", ".join(names))
    return 0 if all(equal) else 1


if __name__ == "__main__":
    cuda_standin.load("T4")
    from cuda_tests.ooms import MODELS, NOTHING, PLACES, Reference, Run, differences

    status = main()
    sys.stdout.flush()
    os._exit(status)  # Python 3.11 aborts where autograd's threads ask for it while it finalizes
