"""torch's switches: set as planned, readable by both of its interfaces, put back after a training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.apply.torch_backends import TrainingSwitches, set_backends
from locations import HELPERS
from training_fixtures import make_plan

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """Leaves torch as it was, but for TF32, whose two interfaces cannot be put back; other tests use no GPU."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    yield
    cudnn.benchmark, cudnn.deterministic = before
    torch.use_deterministic_algorithms(False)


def in_force() -> tuple[Any, ...]:
    determinism = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, *determinism


def states(**changes: Any) -> dict[str, str]:
    return {setting.name: setting.state for setting in set_backends(make_plan(**changes))}


def test_a_deterministic_plan() -> None:
    torch.backends.cudnn.benchmark = True
    done = states(deterministic=True, cudnn_benchmark=False)
    assert in_force() == (False, True, True, True)
    assert (done["cudnn.benchmark"], done["use_deterministic_algorithms"]) == ("done", "done")
    assert set(states(deterministic=True, cudnn_benchmark=False).values()) == {"kept"}


def test_benchmark_gives_way_to_determinism() -> None:
    states(deterministic=True, cudnn_benchmark=True)
    assert torch.backends.cudnn.benchmark is False


def test_other_plans_leave_determinism_to_the_user() -> None:
    torch.use_deterministic_algorithms(True)
    assert states(cudnn_benchmark=True)["cudnn.benchmark"] == "done"
    assert in_force() == (True, False, True, False)


def test_ctc_on_a_gpu_survives_the_trainer_s_full_determinism() -> None:
    """CUDA has no deterministic gradient of the CTC loss; the Trainer's way makes an error of that."""
    pytest.importorskip("transformers")
    from transformers.trainer_utils import enable_full_determinism

    before = dict(os.environ)
    try:
        enable_full_determinism(1)
        assert in_force() == (False, True, True, False)
        switches = TrainingSwitches(make_plan(deterministic=True))
        switches.set()
        assert in_force() == (False, True, True, True)
        switches.put_back()
        assert in_force() == (False, True, True, False)
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_switches_of_a_training_are_put_back() -> None:
    torch.backends.cudnn.benchmark = False
    switches = TrainingSwitches(make_plan(cudnn_benchmark=True))
    for _ in range(2):  # the second must not take the plan's value for the user's
        switches.set()
        assert torch.backends.cudnn.benchmark is True
    for _ in range(2):
        switches.put_back()
        assert torch.backends.cudnn.benchmark is False
    TrainingSwitches(None).set()


# Each in a process of its own: TF32's interfaces remember how they were used.

TF32 = """
import json, sys, torch
from asrconfig_go.apply.torch_backends import set_backends
from training_fixtures import make_plan
backends = torch.backends
new = hasattr(backends.cuda.matmul, "fp32_precision")
def older(on): backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = on
def everywhere(on): backends.fp32_precision = "tf32" if on else "ieee"
def each(on):
    for part in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        part.fp32_precision = "tf32" if on else "ieee"
before = {"none": lambda on: None, "older": older, "everywhere": everywhere, "each": each}[sys.argv[1]]
before(sys.argv[2] == "on")
wanted = sys.argv[3] == "on"
first = {s.name: s.state for s in set_backends(make_plan(tf32=wanted))}
second = {s.name: s.state for s in set_backends(make_plan(tf32=wanted))}
def read(get):
    try: return get()
    except RuntimeError: return "error"
parts = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn] if new else []
print(json.dumps({
    "new": [part.fp32_precision == "tf32" for part in parts],
    "old": [read(lambda: backends.cuda.matmul.allow_tf32), read(lambda: backends.cudnn.allow_tf32)],
    "second": sorted({state for name, state in second.items() if "TF32" in name}),
}))
"""


def alone(script: str, *arguments: str) -> Any:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS.parent), str(HELPERS), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("before", "wanted"),
    [("none", "on"), ("older", "off"), ("everywhere", "on"), ("everywhere", "off"), ("each", "off")],
)
def test_tf32_whatever_was_set_before(before: str, wanted: str) -> None:
    if before in ("everywhere", "each") and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the older interface alone")
    found = alone(TF32, before, "off" if wanted == "on" else "on", wanted)
    assert set(found["new"]) <= {wanted == "on"}
    assert found["second"] == ["kept"]
    if wanted == "on" or before in ("none", "older"):
        assert found["old"] == [wanted == "on"] * 2  # readable by code that uses the older interface


PRESET = """
import json, os, sys, warnings
import asrconfig_go as ac
from asrconfig_go.machine import ModelProfile
preset, output = sys.argv[1], sys.argv[2]
model = ModelProfile(total_parameters=300_000_000)
clips = [[0.0] * 8000 for _ in range(40)]
config, manager = ac.create_optimal_config(clips, model, gpu="A100-40GB", preset=preset, policy="published",
                                           sampling_rate=1000, verbose=False)
config.apply()
import torch
def flags():
    return [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
            torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]
after_apply = flags()
from transformers.trainer_callback import TrainerCallback
from tiny_training import tiny_trainer
warnings.simplefilter("ignore")
args = config.to_training_arguments(output, use_cpu=True)
seen = []
class Look(TrainerCallback):
    def on_step_begin(self, *args, **kwargs): seen.append(flags())
trainer = tiny_trainer(__import__("pathlib").Path(output), full_determinism=args.full_determinism, seed=args.seed,
                       callbacks=[manager.callback(), Look()])
after_trainer = flags()
trainer.train()
print(json.dumps({"apply": after_apply, "trainer": after_trainer, "steps": [list(x) for x in set(map(tuple, seen))],
    "end": flags(), "compile": args.torch_compile, "full": args.full_determinism, "precision": config.precision,
    "cublas": os.environ.get("CUBLAS_WORKSPACE_CONFIG")}))
"""


@pytest.mark.parametrize("preset", ["speed", "balanced", "reproducible"])
def test_presets_reach_torch(preset: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = alone(PRESET, preset, str(tmp_path))
    fast = [True, False, False, False, True, True]
    repeatable = [False, True, True, True, False, False]
    expected = repeatable if preset == "reproducible" else fast
    assert found["apply"] == expected
    assert found["steps"] == [expected]
    # The Trainer asks for determinism without "warn only", the callback's steps did not.
    assert found["end"] == found["trainer"]
    assert found["trainer"] == ([False, True, True, False, False, False] if preset == "reproducible" else fast)
    assert found["full"] is (preset == "reproducible")
    assert found["cublas"] == (":16:8" if preset == "reproducible" else None)
    assert found["compile"] is (preset == "speed")
    assert found["precision"] == ("fp32" if preset == "reproducible" else "bf16")
