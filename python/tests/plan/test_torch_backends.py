"""torch's switches: set as planned, readable by both of its interfaces, put back after a training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from asrconfig_go.plan.environment import TrainingSwitches, set_backends
from locations import HELPERS
from training_fixtures import make_plan

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """Leaves torch as it was, but for TF32, whose two interfaces cannot be put back; other tests use no GPU."""
    cudnn = torch.backends.cudnn
    torch.backends.cuda.enable_cudnn_sdp(True)
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


def test_other_plans_leave_determinism_to_the_user() -> None:
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
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


def test_cudnn_attention_is_off_while_such_a_plan_trains() -> None:
    switches = TrainingSwitches(make_plan(cudnn_attention=False))
    switches.set()
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    switches.put_back()
    assert torch.backends.cuda.cudnn_sdp_enabled()


# Each in a process of its own, forked from one with torch: TF32's interfaces remember how they were used.

TF32 = """
import json, os, sys, torch
from asrconfig_go.plan.environment import set_backends
from training_fixtures import make_plan
backends = torch.backends
new = hasattr(backends.cuda.matmul, "fp32_precision")
def older(on): backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = on
def everywhere(on): backends.fp32_precision = "tf32" if on else "ieee"
def each(on):
    for part in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        part.fp32_precision = "tf32" if on else "ieee"
def read(get):
    try: return get()
    except RuntimeError: return "error"
def states(before, wanted):
    {"older": older, "everywhere": everywhere, "each": each}.get(before, lambda on: None)(not wanted)
    list(set_backends(make_plan(tf32=wanted)))
    second = {s.name: s.state for s in set_backends(make_plan(tf32=wanted))}
    parts = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn] if new else []
    return {
        "new": [part.fp32_precision == "tf32" for part in parts],
        "old": [read(lambda: backends.cuda.matmul.allow_tf32), read(lambda: backends.cudnn.allow_tf32)],
        "second": sorted({state for name, state in second.items() if "TF32" in name}),
    }
found = []
for case in json.loads(sys.argv[1]):
    reader, writer = map(os.fdopen, os.pipe(), "rw")
    if os.fork() == 0:
        print(json.dumps(states(*case)), file=writer, flush=True)
        os._exit(0)
    writer.close()
    found.append(json.loads(reader.read()))
    os.wait()
print(json.dumps(found))
"""
CASES = [("none", True), ("older", False), ("everywhere", True), ("everywhere", False), ("each", False)]


def alone(script: str, *arguments: str) -> Any:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS.parent), str(HELPERS), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_tf32_whatever_was_set_before() -> None:
    new = hasattr(torch.backends.cuda.matmul, "fp32_precision")  # else torch has the older interface alone
    cases = [case for case in CASES if new or case[0] in ("none", "older")]
    for (before, wanted), state in zip(cases, alone(TF32, json.dumps(cases)), strict=True):
        assert set(state["new"]) <= {wanted}, (before, wanted)
        assert state["second"] == ["kept"], (before, wanted)
        if wanted or before in ("none", "older"):
            assert state["old"] == [wanted] * 2, (before, wanted)  # for code that uses the older interface
