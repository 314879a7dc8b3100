"""What this project does on a GPU, with the real torch.cuda on the stand-in CUDA runtime, from the plan to the report.

One process forks all the others (cuda_tests/forked.py).
"""

from __future__ import annotations

import signal
import socket
import sys
from typing import Any

import pytest

from cuda_tests.forked import Job, forked_on_cuda
from cuda_tests.process import kept_workspaces, stand_in, torch_version, with_kept_workspaces  # noqa: F401

MIB = 2**20
T4 = 15360 * MIB
CONTEXT = 300 * MIB
LIMIT = 1_500_000_000  # of a card on which memory runs out
BATCH = 40  # which does not fit there
UNEQUAL = [1_200_000_000, 600_000_000]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of each job, by its name; those of a group run at the same time."""

    def folder(name: str) -> str:
        return str(tmp_path_factory.mktemp(name))

    t4, two = {"gpu": "T4", "context_bytes": CONTEXT}, {"gpu": "T4", "devices": 2, "memory_bytes": [2 * LIMIT, LIMIT]}
    shared, killed, whole = folder("ranks"), {"output": folder("killed")}, {"output": folder("whole")}
    commands = folder("commands")
    groups = {
        "planned": [Job("cuda_tests.plans.planned", (folder("planned"),), t4)],
        "watched": [Job("cuda_tests.plans.watched", (folder("watched"),), t4)],
        "tools": [Job("cuda_tests.tools.tools", (folder("tools"),), {**t4, "memory_bytes": LIMIT})],
        "train": [Job("cuda_tests.tools.fine_tuned", (commands,), t4)],
        "benchmark": [Job("cuda_tests.tools.benchmarked", (commands,), t4)],
        "ranks": [Job("cuda_tests.several.rank", (shared, BATCH, 2), two, rank) for rank in _ranks()],
        "one process": [Job("cuda_tests.several.one_process", (folder("one"),), {**two, "memory_bytes": UNEQUAL})],
        "killed": [
            Job("cuda_tests.several.killable", ({**killed, "kill": ["forward", 9]},), t4, ends=-signal.SIGKILL),
            Job("cuda_tests.several.killable", (whole,), t4),
        ],
        "resumed": [Job("cuda_tests.several.killable", (killed,), t4)],
    }
    return dict(zip(groups, forked_on_cuda(list(groups.values())), strict=True))


def _ranks() -> list[dict[str, str]]:
    """What torchrun tells two processes of one machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    size = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [{**place, **size, "RANK": str(i), "LOCAL_RANK": str(i)} for i in range(2)]


@pytest.fixture(scope="module")
def planned(done: dict[str, Any]) -> dict[str, Any]:
    return dict(done["planned"][0])


def test_plan_for_the_gpu_that_is_here_trains_on_it(planned: dict[str, Any]) -> None:
    assert planned["planned"] == ["Tesla T4", T4, "fp16", 8]
    assert planned["device"] == "cuda:0"
    assert planned["guard"] == ["", []]
    assert planned["trained"][0] == 4
    assert planned["trained"][1].endswith("effective batch 8: 8 × 1\nmemory never ran out")
    assert planned["unsupported"] == []


def test_planning_does_not_start_cuda(planned: dict[str, Any]) -> None:
    """Else the plan's own allocator settings come too late."""
    assert planned["started"] is False
    assert planned["environment"] == ["done", "expandable_segments:True", ""]
    assert planned["expandable"] == [True]


def test_allocator_settings_after_cuda_has_started_have_no_effect(planned: dict[str, Any]) -> None:
    state, value, why, warning, variable = planned["late"]
    assert (state, value, variable) == ("not done", "expandable_segments:True", "expandable_segments:True")
    assert why.startswith("expandable_segments:True,max_split_size_mb:64 has no effect: CUDA has started")
    assert warning == "TooLateWarning"


def test_report_has_the_peaks_of_torch(planned: dict[str, Any]) -> None:
    allocated, reserved, _ = planned["torch"]
    assert planned["reported"] == planned["torch"]
    assert 0 < allocated <= reserved
    assert planned["used"] == reserved + CONTEXT
    assert reserved <= planned["predicted"], "of all but the context"


@pytest.fixture(scope="module")
def watched(done: dict[str, Any]) -> dict[str, Any]:
    return dict(done["watched"][0])


def test_monitor_has_the_figures_of_driver_and_torch(watched: dict[str, Any]) -> None:
    sizes = [(300, 0, 300), (800, 0, 800), (1800, 0, 1800), (0, 1800, 1800), (0, 0, 1800)]
    for (ours, theirs, peak, headroom), each in zip(watched["figures"], sizes, strict=True):
        allocated, unused, highest = (size * MIB for size in each)
        used = CONTEXT + allocated + unused
        assert ours == theirs == [T4, used, T4 - used, allocated, allocated + unused]
        assert (peak, headroom) == (CONTEXT + highest, T4 - used + unused)


def test_thresholds_while_memory_fills(watched: dict[str, Any]) -> None:
    """Held shares of 0.5, 0.92, 0.93, 0.5, 0.91, 0.6 and 0.95, each with CUDA's context, within seconds."""
    over = "GPU 0 {} of 15.0 GiB ({}) is over "
    remedy = " → if memory runs out, halve per_device_train_batch_size and double gradient_accumulation_steps"
    assert watched["said"] == [
        [2, over.format("14.1", "94%") + "90%" + remedy],
        [7, over.format("14.5", "97%") + "95%: unused cached memory is freed"],
    ]
    assert watched["counted"] == [1, 1]


def test_clean_up_gives_the_cache_back(watched: dict[str, Any]) -> None:
    cached = int(0.01 * T4)
    assert watched["peak"] >= CONTEXT + watched["held"] + cached
    assert watched["held"] <= watched["reserved"] < watched["held"] + cached / 2


@pytest.fixture(scope="module")
def tools(done: dict[str, Any]) -> dict[str, Any]:
    found = done["tools"][0]
    assert found["unsupported"] == []
    return dict(found)


def test_calibration_measures_what_was_predicted(tools: dict[str, Any]) -> None:
    """Measured: 0.45 % apart in allocated memory, and 768 bytes in reserved memory, by which tensors are rounded up.

    Before torch 2.15: one segment of small blocks more in reserved memory, as a workspace of 1 MiB is kept among them.
    """
    found = tools["calibration"]
    segment = 0 if torch_version() >= (2, 15) else 2 * MIB
    assert (found["gpu"], found["context"]) == ("Tesla T4", CONTEXT)
    assert found["measured"][0] == pytest.approx(found["predicted"][0], rel=0.005)
    assert found["measured"][1] == pytest.approx(found["predicted"][1], abs=1024 + segment)
    assert found["factor"] == pytest.approx(found["measured"][1] / found["predicted"][1])
    assert found["corrected"] == pytest.approx(found["measured"][1], abs=1)


def test_calibration_leaves_nothing_on_the_gpu(tools: dict[str, Any]) -> None:
    """Not the optimizer of its steps, nor the scaler's tensors."""
    found = tools["calibration"]
    allocated, reserved = (after - before for before, after in zip(found["before"], found["left"], strict=True))
    assert allocated == kept_workspaces()
    assert (reserved > 0) == (allocated > 0)
    assert reserved <= with_kept_workspaces(0)
    before, after = found["trained"]
    assert after <= before
    if torch_version() >= (2, 15):  # torch 2.10 lets go of something of the training's last step in calibration's first
        assert after == before


def test_calibration_leaves_the_scale_of_gradients(tools: dict[str, Any]) -> None:
    """Before a training, and after one; each step doubles it here."""
    assert tools["calibration"]["scales"] == [65536.0, 65536.0, 131072.0, 131072.0]


def test_largest_batch_is_the_last_that_fits(tools: dict[str, Any]) -> None:
    found = tools["largest"]
    assert found["fits"] == [True, False], "plain steps of the size that was found, and of the next one"
    assert {(found["found"], True), (found["found"] + 1, False)} <= {(size, fits) for size, fits in found["probes"]}
    assert found["start"] == [found["probes"][0][0], "which its trace predicts"]
    assert found["after"] == found["before"]


def test_largest_batch_of_a_model_on_the_cpu_is_that_of_the_gpu(tools: dict[str, Any]) -> None:
    found, largest = tools["largest"]["of the cpu"], tools["largest"]["found"]
    assert found["found"] == largest
    assert found["probes"] == [[largest, True], [largest + 1, False]]
    assert found["notes"] == ["the model was on the CPU: moved to cuda:0 for the search, and back"]
    assert found["in place"], "the very weights and buffers"
    assert found["kept"][0] == found["kept"][1]


def test_largest_batch_of_a_trainer(tools: dict[str, Any]) -> None:
    found, largest = tools["of a trainer"], tools["largest"]["found"]
    assert found["found"] == largest
    assert found["probes"] == [[largest, True], [largest + 1, False]]
    before, after = found["kept"]
    assert after == before


def test_preflight_finds_micro_batches_that_fit(tools: dict[str, Any]) -> None:
    found = tools["preflight"]
    assert found["rehearsed"] == [["training", 48, 5.0, 24]]
    assert found["events"] == [["pre-flight", 48, 24]], "the training itself met nothing"
    assert found["optimizer"] == tools["largest"]["states"]
    assert found["steps"] == 1


@pytest.fixture(scope="module")
def commands(done: dict[str, Any]) -> dict[str, Any]:
    found = {name: done[name][0] for name in ("train", "benchmark")}
    assert [each["unsupported"] for each in found.values()] == [[], []]
    return found


def test_command_trains_with_the_plans_allocator(commands: dict[str, Any]) -> None:
    found = commands["train"]
    assert (found["status"], found["steps"], found["saved"]) == (0, 1, True)
    assert found["gpu"] == ["Tesla T4", CONTEXT + found["reserved"]]
    assert (found["allocator"], found["expandable"]) == ("expandable_segments:True", [True])


def test_benchmark(commands: dict[str, Any]) -> None:
    found = commands["benchmark"]
    assert (found["status"], found["device"], found["precision"]) == (0, "Tesla T4", True)
    ((steps, allocated, reserved, out_of_memory),) = found["blocks"]
    assert (steps, out_of_memory) == (2, 0)
    assert 0 < allocated <= reserved
    assert found["readings"] == [CONTEXT + reserved, T4]


def test_benchmark_ends_workers_before_memory_is_freed(commands: dict[str, Any]) -> None:
    """The garbage collector would wait 5 s for each loader."""
    planned, *left = commands["benchmark"]["workers"]
    assert planned == 1
    assert left
    assert set(left) == {0}


def test_one_process_of_two_runs_out_of_memory(done: dict[str, Any]) -> None:
    """DDP over gloo: only the smaller card's process computes its windows in parts, and both make all steps."""
    large, small = done["ranks"]
    for i, found in enumerate((large, small)):
        assert (found["device"], found["wrapped"]) == (f"cuda:{i}", "DistributedDataParallel")
        assert (found["steps"], found["elsewhere"], found["unsupported"]) == (2, 0, [])
    assert (large["ooms"], large["events"]) == (0, [])
    assert small["ooms"] > 0
    assert small["events"] == [["training", BATCH, BATCH // 2]]
    assert [size for size in large["sizes"] if size > 1] == [BATCH, BATCH]
    assert [size for size in small["sizes"] if size > 1] == [BATCH, *[BATCH // 2] * 4]
    assert [text.partition(":")[0] for text in large["ranks"]] == ["rank 0 (cuda", "rank 1 (cuda"]
    assert small["ranks"] == [], "the first process gathers them"


def test_two_gpus_in_one_process(done: dict[str, Any]) -> None:
    """DataParallel trains; that the second GPU runs out of memory ends it, and is explained."""
    fits, fails = done["one process"][0]
    for found in (fits, fails):
        assert (found["devices"], found["wrapped"]) == (2, "DataParallel")
    assert (fits["steps"], fits["ooms"], fits["said"]) == (2, [0, 0], ["", ""])
    weights = 4 * (7 * 2**20 + 2**20 + 1)
    assert all(peak > weights + 4 * 8 * MIB for peak in fits["peaks"])
    assert (fails["steps"], fails["ooms"]) == (0, [0, 1])
    error, *notes = fails["said"]
    assert "GPU 1 has a total capacity of 572.20 MiB" in error
    if sys.version_info >= (3, 11):
        expected = "it continues from the last checkpoint in micro-batches of 64 instead of 128"
        assert any(expected in note for note in notes)


def test_killed_training_goes_on_where_it_was(done: dict[str, Any]) -> None:
    """Killed in the fifth step, resumed after the checkpoint of the third: the fourth is made again."""
    whole, resumed = done["killed"][1], done["resumed"][0]
    assert [step for step, _ in whole] == list(range(1, 13))
    assert resumed == [*whole[:4], *whole[3:]]
