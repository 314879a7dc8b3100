"""Uses an installed package as a person would first: import, scan the bundled clips, plan for a GPU not at hand."""

import importlib.util
import sys
import time
from pathlib import Path

start = time.perf_counter()
import asrconfig_go as ac  # noqa: E402

seconds = time.perf_counter() - start

if importlib.util.find_spec("torch") is not None:
    sys.exit("this environment should not have torch")
clips = ac.scan_audio(Path(ac.__file__).parent / "data" / "clips", progress=False).profile
config, _ = ac.create_optimal_config(clips, "xls-r-300m", gpu="T4", verbose=False)
plan = (config.per_device_train_batch_size, config.gradient_accumulation_steps, config.effective_batch_size)
if clips.sample_count < 240 or plan[2] != 32:
    sys.exit(f"unexpected: {clips.sample_count} clips, plan {plan}")
print(f"{sys.argv[1]}: {clips.sample_count} clips, T4 plan {plan}, import {1000 * seconds:.0f} ms, {ac.__file__}")
