"""Pages of explanations to look at: plans for several machines and datasets, each in light and dark, wide and narrow.

    python benchmarks/explain_gallery.py OUT [--policy fastest] [--pictures]

writes OUT/NAME.html, .json and .txt, and with --pictures (headless Chromium in the path) OUT/NAME-SCHEME-WIDTH.png.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests" / "helpers"))

from pictures import WIDTHS, gallery, given, picture

import asrconfig_go as ac
from asrconfig_go.data import DatasetProfile
from asrconfig_go.plan import Explanation
from asrconfig_go.predict import HardwareProfile
from whole_plans import audio, heavy_tail, published_plan, read_speech, shared_gpu, whole_plan


def planned(
    gpu: str | None, model: str, dataset: DatasetProfile, policy: str, used_gib: float = 0, second: str = ""
) -> Explanation:
    manager = ac.ASRConfigManager(gpu=gpu)
    if second:
        other = dataclasses.replace(HardwareProfile.detect(second).gpus[0], index=1)
        manager.hardware = dataclasses.replace(manager.hardware, gpus=(*manager.hardware.gpus, other))
    if used_gib:
        manager.hardware = shared_gpu(manager.hardware, used_gib)
    manager.profile_dataset(dataset)
    manager.profile_model(model)
    manager.plan(ac.PlanOptions(policy=policy), trace=False)
    return manager.explain()


def cases(policy: str) -> Iterator[tuple[str, Explanation]]:
    hour, ten = audio(read_speech(1)), audio(read_speech(10))
    tail, three = audio(heavy_tail(6000), bad=87, source="folder talks"), audio([0.03, 2.0, 9.5], source="3 files")
    first = planned("T4", "xls-r-300m", ten, policy)
    yield "t4-read-speech", first
    yield "a100-100-hours", planned("A100-40GB", "xls-r-1b", audio(read_speech(100)), policy)
    yield "searched", dataclasses.replace(first, config=whole_plan(published_plan()))
    yield "two-gpus-talks", planned("L4", "xls-r-300m", tail, policy, second="T4")
    yield "whisper-talks", planned("T4", "whisper-small", tail, policy)
    shared = planned("T4", "xls-r-300m", hour, policy, used_gib=5.5)
    shared.config.per_device_train_batch_size = 16
    shared.config.learning_rate = 3e-4
    yield "shared-changed", shared
    yield "cpu-three-clips", planned(None, "whisper-tiny", three, policy)
    yield "config-alone", Explanation(first.config)


def main() -> None:
    parser = gallery(__doc__)
    parser.add_argument("--policy", default="fastest")
    parser.add_argument("--only", help="of these cases, parted by commas")
    arguments, browser = given(parser)
    for name, explanation in cases(arguments.policy):
        if arguments.only and name not in arguments.only.split(","):
            continue
        for kind in ("html", "json", "txt"):
            explanation.save(arguments.out / f"{name}.{kind}")
        size = (arguments.out / f"{name}.html").stat().st_size
        print(f"{name:<18} {size / 1000:5.1f} kB")
        for scheme in ("light", "dark") if browser else ():
            for width in WIDTHS:
                picture(browser, arguments.out / f"{name}.html", scheme, width)


if __name__ == "__main__":
    main()
