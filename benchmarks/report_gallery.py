"""Pages of reports to look at: several runs, each in light and dark, wide and narrow; and how long they take.

    python benchmarks/report_gallery.py OUT [--pictures]

writes OUT/NAME.html, and with --pictures (headless Chromium in the path) OUT/NAME-SCHEME-WIDTH.png. The runs are
made by rule (python/tests/helpers/made_runs.py): no GPU is needed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests" / "helpers"))

from pictures import WIDTHS, gallery, given, picture

from asrconfig_go.watch import compare_runs, report
from made_runs import logged, put_run, trained, week
from run_logs import Json, empty, put_activity, put_memory, saved


def short() -> Json:
    """Three seconds without a training."""
    run_log = empty()
    for at in range(4):
        put_memory(run_log, at, 4e9)
        put_activity(run_log, at, cpu_share=0.1 * at, host_available_bytes=2.8e10)
    return run_log


def cases() -> Iterator[tuple[str, Json]]:
    yield "leak", trained()
    yield "healthy", trained(leak=False)
    yield "sixteen-gpus", trained(gpus=16)
    yield "week-eight-gpus", week()
    yield "no-gpu", trained(gpus=0)
    yield "short", short()


def compared(out: Path) -> Path:
    """The page of a comparison: a leak against a training in order, which is longer and uses other settings."""
    leaking = put_run(out / "leaking", trained(seconds=1200, steps=460), wer=0.23)
    mended = put_run(out / "mended", trained(leak=False), batch=16)
    page = out / "comparison.html"
    comparison = compare_runs(leaking, mended)
    comparison.to_html(page)
    print(comparison)
    return page


def made(out: Path, name: str, run_log: Json) -> Path:
    """The page of a run."""
    file = saved(run_log, out / name / "asrconfig_monitor.json")
    if run_log["steps"]["number"]:
        (file.parent / "trainer_state.json").write_text(json.dumps(logged(run_log)))
    began = time.perf_counter()
    summary = report(file.parent)
    read = time.perf_counter()
    page = out / f"{name}.html"
    summary.to_html(page)
    drawn = time.perf_counter()
    sizes = f"{file.stat().st_size / 1e6:5.1f} MB read in {read - began:.2f} s"
    print(
        f"{name:<16} {sizes}, {page.stat().st_size / 1e3:5.1f} kB of HTML in {drawn - read:.2f} s  {summary.headline}"
    )
    return page


def main() -> None:
    parser = gallery(__doc__)
    parser.add_argument("--only", help="of these cases, parted by commas")
    arguments, browser = given(parser)
    only = arguments.only.split(",") if arguments.only else None
    pages = [made(arguments.out, name, run_log) for name, run_log in cases() if only is None or name in only]
    if only is None or "comparison" in only:
        pages.append(compared(arguments.out))
    for page in pages:
        for scheme in ("light", "dark") if browser else ():
            for width in WIDTHS:
                picture(browser, page, scheme, width)


if __name__ == "__main__":
    main()
