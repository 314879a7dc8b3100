"""The notebook's live panel to look at: a calm training and one that leaks, in light and dark.

    python benchmarks/panel_gallery.py OUT [--pictures]

writes OUT/NAME.html, and with --pictures (headless Chromium in the path) OUT/NAME-SCHEME-WIDTH.png. The figures are
made up; the panel is what a notebook shows.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests" / "helpers"))

from pictures import gallery, given, picture

from asrconfig_go._core.render import save_page
from asrconfig_go.watch.display import PanelState
from asrconfig_go.watch.watch_records import GPUHistory, MemoryHistory
from watching_fakes import GIB, FakeMonitor, activity, alert, gpu

WIDTH, HEIGHT = 820, 566
POINTS, TOTAL = 240, 15.0


def curve(leak_gib: float, gpus: int = 1) -> MemoryHistory:
    """Memory of a training: the model is loaded, then batches of all lengths, and what is never freed."""
    draw = random.Random(1)
    times = tuple(2.0 * i for i in range(POINTS))
    host = tuple(int((17 + 10 * (1 - math.exp(-i / 30))) * GIB) for i in range(POINTS))

    def used(i: int) -> int:
        if i < 12:
            return int(0.4 * i / 12 * 9 * GIB)
        return int((7.6 + 3.2 * draw.random() * min(1, (i - 12) / 20) + leak_gib * i / POINTS) * GIB)

    series = tuple(GPUHistory(int(TOTAL * GIB), tuple(used(i) for i in range(POINTS))) for _ in range(gpus))
    return MemoryHistory(0, times, 20, 100 * GIB, host, series)


def cases() -> Iterator[tuple[str, PanelState]]:
    busy = {"utilization": 0.93, "power_w": 66.0, "temperature_c": 74.0}
    calm = FakeMonitor([gpu(11.4, TOTAL, allocated=6.2, reserved=10.3)], host=27.0)
    yield (
        "calm",
        PanelState(
            412, 2400, 2310.0, 0.03, None, calm.read(), activity(busy, workers_rss_bytes=4.2 * GIB), curve(0.0), ()
        ),
    )
    full = FakeMonitor([gpu(13.9, TOTAL, allocated=12.7, reserved=12.9)], host=27.0)
    leak = alert(
        1,
        "GPU memory grows 38 MB/step since step 420: out of memory in about 34 steps (60 s)",
        severity="critical",
        advice="something keeps a tensor of every step: sum up loss.item() or loss.detach(), not loss, and keep no "
        "outputs in a list",
    )
    yield (
        "leak",
        PanelState(
            571, 2400, 2090.0, 0.03, None, full.read(), activity(busy, workers_rss_bytes=4.2 * GIB), curve(3.6), (leak,)
        ),
    )


def check_possible(state: PanelState) -> None:
    """What is allocated is reserved, what is reserved is in use, and no card has more in use than it has."""
    for card, series in zip(state.shot.gpus, state.history.gpus, strict=True):
        sizes = [card.allocated or 0, card.reserved or 0, card.used or 0, card.total or 0]
        if sizes != sorted(sizes) or max(filter(None, series.used_bytes)) > series.total_bytes:
            raise ValueError(f"no card can hold {sizes}, or its history")


def main() -> None:
    parser = gallery(__doc__)
    arguments, browser = given(parser)
    for name, state in cases():
        check_possible(state)
        file = arguments.out / f"{name}.html"
        save_page(file, "panel", dataclasses.asdict(state))
        print(f"{name:<6} {file.stat().st_size / 1000:5.1f} kB")
        for scheme in ("light", "dark") if browser else ():
            picture(browser, file, scheme, WIDTH, HEIGHT)


if __name__ == "__main__":
    main()
