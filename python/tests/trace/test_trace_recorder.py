"""The recorder: what counts, whose it is, and that it leaves no mark."""

from __future__ import annotations

import random
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.trace import MemoryRecorder, Trace, TraceError


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))


def loop(steps: int = 2, **shape: int) -> Trace:
    """A user's own loop, written for a GPU."""
    with MemoryRecorder() as recorder:
        model = perceptron().to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        for _ in range(steps):
            x, y = torch.randn(32, 128).cuda(), torch.randint(0, 10, (32,), device="cuda")
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(**shape)
    return recorder.trace()


def tagged(trace: Trace, segment: int, tag: str) -> list[int]:
    s = trace.segments[segment]
    sizes = [e for e in s["events"] if e >= 0]
    return sorted(size for size, t in zip(sizes, s["tag"], strict=True) if trace.tags[t] == tag)


PARAMETERS = sorted([128 * 256 * 4, 256 * 4, 256 * 10 * 4, 10 * 4])


def test_a_loop_of_ones_own() -> None:
    trace = loop(batch=32)
    assert [s["kind"] for s in trace.segments] == ["load", "iteration", "iteration"]
    assert [s.get("batch") for s in trace.segments] == [None, 32, 32]
    assert tagged(trace, 0, "parameter") == PARAMETERS
    assert tagged(trace, 1, "gradient") == tagged(trace, 2, "gradient") == PARAMETERS
    assert tagged(trace, 1, "optimizer") == sorted(PARAMETERS * 2)
    assert tagged(trace, 2, "optimizer") == []
    assert 32 * 128 * 4 in tagged(trace, 1, "input")
    assert [name for _, name in trace.segments[1]["phases"]] == ["forward", "backward", "optimizer"]


def test_modules_are_named_forward_and_backward() -> None:
    trace = loop()
    s = trace.segments[1]
    start = {name: at for at, name in s["phases"]}
    births_before = sum(e >= 0 for e in s["events"][: start["backward"]])
    forward = {trace.modules[m] for m in s["module"][:births_before]}
    births_after = sum(e >= 0 for e in s["events"][: start["optimizer"]])
    backward = {trace.modules[m] for m in s["module"][births_before:births_after]}
    assert {"0", "1", "2"} <= forward
    assert {"0", "1", "2"} <= backward


def test_parameters_and_states_have_their_modules() -> None:
    trace = loop()
    for number, tag, count in ((0, "parameter", 1), (1, "optimizer", 2)):
        s, counts = trace.segments[number], Counter[str]()
        counts.update(trace.modules[m] for m, t in zip(s["module"], s["tag"], strict=True) if trace.tags[t] == tag)
        assert counts == {"0": 2 * count, "2": 2 * count}, tag


def test_recurrent_weights_keep_their_module_when_loaded_again() -> None:
    with MemoryRecorder() as recorder:
        model = nn.Sequential(nn.LSTM(4, 4))
        recorder.load(model)
        recorder.load_again(model)
    (segment,) = recorder.trace().segments
    flattened = recorder.trace().ops.index("aten._cudnn_rnn_flatten_weight.default")
    where = [
        recorder.trace().modules[m] for m, op in zip(segment["module"], segment["op"], strict=True) if op == flattened
    ]
    assert where == ["0", "0"]
    assert [name for _, name in segment["phases"]] == ["load", "load_again"]


def test_every_storage_dies_once_and_after_its_birth() -> None:
    trace = loop(3)
    born, dead = 0, set()
    for s in trace.segments:
        assert len(s["op"]) == len(s["module"]) == len(s["tag"]) == sum(e >= 0 for e in s["events"])
        for event in s["events"]:
            if event >= 0:
                born += 1
            else:
                number = -1 - event
                assert number < born and number not in dead
                dead.add(number)
    assert born - len(dead) >= 3 * 4  # parameters and two moments live on


def test_nothing_is_left_behind() -> None:
    torch.manual_seed(7)
    random.seed(7)
    expected = torch.rand(3), random.random()
    torch.manual_seed(7)
    random.seed(7)
    loop()
    assert torch.equal(torch.rand(3), expected[0]) and random.random() == expected[1]
    x = torch.randn(4, 4, requires_grad=True)
    made = nn.functional.dropout(x, 0.5)
    assert made.grad_fn is not None and "NativeDropout" not in type(made.grad_fn).__name__
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.functional.layer_norm(x.bfloat16(), (4,)).dtype is torch.bfloat16
    assert torch.autocast("cpu").device == "cpu"


def test_an_error_inside_leaves_nothing_behind_either() -> None:
    with pytest.raises(ZeroDivisionError), MemoryRecorder():
        _ = 1 / 0
    assert next(s["kind"] for s in loop().segments) == "load"


def test_a_large_model_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with MemoryRecorder() as recorder:
        model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(64)))  # 17 GB
        model(torch.randn(64, 8192)).sum().backward()
    size = sum(tagged(recorder.trace(), 0, "parameter"))
    assert size == 64 * (8192 * 8192 + 8192) * 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 * 1024  # KiB


def test_integers_are_real_and_floats_are_not() -> None:
    with MemoryRecorder():
        lengths = torch.tensor([5, 9, 2]).cumsum(0)
        assert lengths.tolist() == [5, 14, 16]
        assert torch.randn(1000).sum().item() == 0.0
        mask = torch.arange(1000) < 10
        assert torch.randn(1000)[mask].shape == (10,)


def test_one_recorder_at_a_time() -> None:
    with MemoryRecorder(), pytest.raises(InvalidArgumentError, match="already active"):
        MemoryRecorder().__enter__()


def test_a_result_that_depends_on_values_names_operation_and_module() -> None:
    class Picky(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return (x > 0).nonzero()

    with MemoryRecorder(), pytest.raises(TraceError, match=r"aten\.nonzero\.default in 1 cannot be traced"):
        nn.Sequential(nn.Linear(100, 100), Picky())(torch.randn(100, 100))


def test_nothing_recorded() -> None:
    with MemoryRecorder() as recorder, pytest.raises(InvalidArgumentError, match="nothing was recorded"):
        recorder.trace()
    with MemoryRecorder() as recorder, pytest.raises(InvalidArgumentError, match="before any forward pass"):
        recorder.step()


def test_a_trace_survives_its_file(tmp_path: Path) -> None:
    trace = loop()
    trace.save(tmp_path / "a.trace")
    assert Trace.load(tmp_path / "a.trace") == trace
    assert "2 segments" not in repr(trace) and "3 segments" in repr(trace)


@pytest.mark.parametrize("content", [b"", b"no gzip", b"\x1f\x8b\x08\x00"])
def test_a_file_that_is_no_trace(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(TraceError, match="cannot read the trace"):
        Trace.load(tmp_path / "bad")
