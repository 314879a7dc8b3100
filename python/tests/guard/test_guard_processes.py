"""The guard with two processes: memory that runs out in one of them neither hangs nor changes the training."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import attach
from scripts.ranks_training import launch, results, run
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without processes")

LIMIT_S = 300  # a hang, even on a slow machine
# Before this the Trainer counts windows across epochs, and never ends one that is shorter.
ENDS_WINDOWS = "device" in inspect.signature(Trainer.get_batch_samples).parameters
TRAINED: dict[str, dict[str, Any]] = {
    # 14 clips: the last batches of the processes are of 4 and 2 clips.
    "ctc mean": {"kind": "ctc mean", "samples": 14, "arguments": {"accelerator_config": {"even_batches": False}}},
    "ctc sum": {"kind": "ctc sum", "batch": 2, "accumulation": 2, "epochs": 1},
    # In windows of three batches, the last one of an epoch of one.
    "whisper": {"kind": "whisper", "batch": 2, "accumulation": 3, "samples": 16 if ENDS_WINDOWS else 12},
    "w2v-bert": {"kind": "w2v-bert", "batch": 2, "accumulation": 2, "arguments": {"max_grad_norm": 1.0}},
    "one by one": {"kind": "whisper", "batch": 1, "accumulation": 4, "epochs": 1},
    "bf16": {"kind": "ctc mean", "epochs": 1, "arguments": {"bf16": True}},
}
DISTURBED: dict[str, dict[str, Any]] = {
    "calm": {},
    "forward": {"fails": {"1": {"place": "forward", "over": 1}}},
    "backward": {"fails": {"1": {"place": "backward", "over": 1}}},
    "other sizes": {"options_of": {"1": {"micro_batch": 1}}},
}
# Steps of eight clips, the last one of an epoch of six.
SHARED = {"samples": 14, "options_of": {"0": {"micro_batch": 2}}}
SHARES: dict[str, list[int]] = {"even": [], "by speed": [6, 2], "one clip": [1, 7]}
GIVEN = {"even": [[4, 3], [4, 3]], "by speed": [[6, 5], [2, 1]], "one clip": [[1, 1], [7, 5]]}
PLANNED = {"as planned": {"V100": "v", "Tesla T4": "t"}, "other cards": {"P40": "p", "Tesla T4": "t"}}
SHARED_KINDS = ("ctc mean", "ctc sum", "whisper", "w2v-bert")
EXPECTED = {"ctc mean": "mean", "ctc sum": "sum", "whisper": "token_mean", "w2v-bert": "mean", "bf16": "mean"}
CASES = [(kind, variant) for kind in TRAINED for variant in DISTURBED if variant == "calm" or kind != "one by one"]
PARTLY_USED: list[dict[str, Any]] = [
    {"kind": "partly used", "way": "plain"},
    {"kind": "partly used"},
    {"kind": "partly used", "fails": {"1": {"place": "backward", "over": 2}}},
]
PREDICTED = [
    {"kind": "whisper", "predict": True, "samples": 14, "fails": fails}
    for fails in ({}, {"1": {"place": "evaluation", "over": 1}})
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """All trainings one after the other, in one pair of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    # 16-bit precision last: accelerate keeps it for later trainers of the process.
    runs = PARTLY_USED + PREDICTED + [{**TRAINED[kind], **DISTURBED[variant]} for kind, variant in CASES]
    status, output, _ = launch(runs, folder, LIMIT_S)
    assert status == 0, output
    return results(folder, len(runs))


def case(trained: Any, kind: str, variant: str) -> Any:
    """What became of one training, in both processes."""
    return trained[len(PARTLY_USED) + len(PREDICTED) + CASES.index((kind, variant))]


def apart(run: Any, other: Any) -> float:
    """How far the weights of two trainings are from each other, of how far they have come."""
    return float((run["weights"] - other["weights"]).norm() / (other["weights"] - other["start"]).norm())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Trainings on the same steps, shared evenly and not."""
    folder = tmp_path_factory.mktemp("shares")
    cases = [(kind, variant) for kind in SHARED_KINDS for variant in SHARES]
    cases += [("ctc mean", variant) for variant in PLANNED]
    shares: dict[str, Any] = {**SHARES, **PLANNED}
    status, output, _ = launch(
        [{**SHARED, "kind": k, "shares": shares[variant]} for k, variant in cases], folder, LIMIT_S
    )
    assert status == 0, output
    assert output.count("PlanNotFollowedWarning: the plan's shares of a step are not taken") == 2, output
    return dict(zip(cases, results(folder, len(cases)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARED_KINDS)
def test_unequal_shares_of_a_step_train_as_even_ones(shared: Any, kind: str) -> None:
    even = shared[kind, "even"]
    for variant in SHARES:
        first, second = shared[kind, variant]
        assert [first["given"], second["given"]] == [2 * share for share in GIVEN[variant]]
        assert torch.equal(first["weights"], second["weights"]), variant
        assert first["steps"] == even[0]["steps"] == 4
        assert apart(first, even[0]) < 1e-5, variant
        for before, after in zip(even[0]["log"], first["log"], strict=True):
            assert after["loss" if "loss" in after else "train_loss"] == pytest.approx(
                before["loss" if "loss" in before else "train_loss"], rel=1e-4
            ), variant


@pytest.mark.slow
def test_processes_take_the_shares_that_are_planned_for_their_gpus(shared: Any) -> None:
    """CUDA numbers the V100 first, the plan has the T4 first; where a card is another one, shares are even."""
    for variant, same in (("as planned", "by speed"), ("other cards", "even")):
        for measured, expected in zip(shared["ctc mean", variant], shared["ctc mean", same], strict=True):
            assert measured["given"] == expected["given"], variant
            assert torch.equal(measured["weights"], expected["weights"]), variant


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(EXPECTED))
def test_memory_that_runs_out_in_one_process_changes_nothing(trained: Any, kind: str) -> None:
    calm = case(trained, kind, "calm")
    for variant in DISTURBED:
        first, second = case(trained, kind, variant)
        assert torch.equal(first["weights"], second["weights"]), variant
        assert apart(first, calm[0]) < (2e-2 if kind == "bf16" else 1e-5), variant
        assert first["steps"] == calm[0]["steps"]
        for entry, wanted in zip(first["log"], calm[0]["log"], strict=True):
            assert entry == pytest.approx(wanted, rel=2e-2 if kind == "bf16" else 1e-4)
        assert first["rule"][0] == EXPECTED[kind]
        assert not first["events"], "the first process never ran out of memory"
        assert bool(second["events"]) == (variant in ("forward", "backward"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "variant"),
    [("ctc mean", "backward"), ("whisper", "forward"), ("w2v-bert", "calm"), ("one by one", "calm")],
)
def test_two_processes_train_as_one_with_batches_of_twice_the_size(
    trained: Any, tmp_path: Path, kind: str, variant: str
) -> None:
    alone = run({**TRAINED[kind], "batch": 2 * TRAINED[kind].get("batch", 4)}, str(tmp_path))
    both = case(trained, kind, variant)[0]
    assert apart(both, alone) < 1e-5
    assert both["steps"] == alone["steps"]
    assert both["log"][0]["loss"] == pytest.approx(alone["log"][0]["loss"], rel=1e-4)


@pytest.mark.slow
def test_the_sum_is_what_the_trainer_makes_of_it(trained: Any, tmp_path: Path) -> None:
    """The sum of the processes' losses where it multiplies each by their number, else their mean."""
    spec = TRAINED["ctc sum"]
    both = case(trained, "ctc sum", "calm")[0]
    alone = run({**spec, "batch": 4}, str(tmp_path))["log"][0]["loss"]
    assert both["log"][0]["loss"] == pytest.approx(alone if ENDS_WINDOWS else alone / 2, rel=1e-3)


@pytest.mark.slow
def test_weights_that_one_process_does_not_use_get_their_share(trained: Any) -> None:
    """Of a model of the user's own, whose loss the process alone measures in which memory runs out."""
    (plain, _), calm, short = trained[: len(PARTLY_USED)]
    for first, second in (calm, short):
        assert torch.equal(first["weights"], second["weights"])
        assert not torch.equal(first["weights"][-7:], first["start"][-7:])
        assert apart(first, plain) < 1e-6
        assert not first["events"] and first["rule"] == (None, False)
    assert not calm[1]["events"] and calm[1]["rule"] == (None, False)
    assert short[1]["events"] == [("training", 4, 2)] and short[1]["rule"] == ("mean", False)


@pytest.mark.slow
def test_evaluation_in_pieces_in_one_process_gives_the_same(trained: Any) -> None:
    calm, disturbed = trained[len(PARTLY_USED) :][: len(PREDICTED)]
    assert [r["events"] for r in disturbed] == [[], [("evaluation", 4, 2), ("evaluation", 2, 1)]]
    for mine, wanted in zip(disturbed, calm, strict=True):
        assert mine["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
        assert (mine["labels"] == wanted["labels"]).all()
        assert abs(mine["predictions"][0] - wanted["predictions"][0]).max() < 1e-5


@pytest.mark.slow
def test_one_that_fails_for_good_is_not_waited_for(tmp_path: Path) -> None:
    """Started by accelerate; the processes live on, and the next training succeeds."""
    failing = {
        "InfeasiblePlanError: step 0 (training) ran out of GPU memory": {"place": "forward", "over": 0},
        "KeyError: 'model'": {"place": "backward", "over": 0, "error": "model"},
        "KeyError: 'collator'": {"place": "collator", "over": 0, "error": "collator"},
    }
    runs = [{"caught": True, "batch": 2, "accumulation": 2, "fails": {"1": fails}} for fails in failing.values()]
    accelerate = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1")
    more = ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0")
    status, output, _ = launch([*runs, {"batch": 2}], tmp_path, LIMIT_S, (*accelerate, *more))
    assert status == 0, output
    *failed, (first, second) = results(tmp_path, len(runs) + 1)
    for (spared, broken), message in zip(failed, failing, strict=True):
        assert broken["error"].startswith(message)
        assert spared["error"].startswith("OtherProcessFailedError: another process of this training has failed")
    assert torch.equal(first["weights"], second["weights"])


@pytest.mark.slow
def test_a_killed_process_ends_the_training(tmp_path: Path) -> None:
    killed = {"fails": {"1": {"place": "backward", "over": 0, "error": "killed"}}}
    status, output, _ = launch([killed], tmp_path, LIMIT_S)
    assert status not in (0, None), "ended by torchrun, not by the time limit"
    assert "Signal 9" in output


@pytest.mark.parametrize("shared", [True, False])
def test_steps_that_processes_share_are_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """As with FSDP: batches are computed whole, and memory that runs out ends the run."""

    def fail(model: Any, size: int) -> None:
        if size > 2:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    model = Regression()
    model.fail = fail
    trainer = tiny_trainer(tmp_path, model=model)
    guard = attach(trainer, micro_batch=3, rule="mean")
    if not shared:
        trainer.train()
        assert len(guard.events) == 1
        return
    monkeypatch.setattr(trainer, "is_fsdp_enabled", True)
    monkeypatch.setattr(type(trainer.accelerator.state), "fsdp_plugin", None, raising=False)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        trainer.train()
    assert not guard.events
    assert model.seen == [model.seen[0]] and len(model.seen[0]) == 4


class Stream(IterableDataset):  # type: ignore[misc]
    """Points without end."""

    def __iter__(self) -> Any:
        return iter(lambda: 0, 1)


def test_windows_that_the_trainer_does_not_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where gradients of one epoch go on into the next, as in transformers 4.46; one process is told of it."""

    def begun(processes: int, samples: int) -> Any:
        trainer = tiny_trainer(tmp_path, gradient_accumulation_steps=3, max_steps=1, samples=samples)
        guard = attach(trainer)
        guard._ranks.size = processes
        trainer.callback_handler.train_dataloader = trainer.get_train_dataloader()
        trainer.create_optimizer()
        guard._training_begins()
        return guard.notes

    monkeypatch.setattr(Trainer, "get_batch_samples", lambda self, batches, count: None)
    assert not begun(2, samples=12)
    assert "gradients of the last 1 batches of an epoch on" in begun(1, samples=16)[0]
    with pytest.raises(InvalidArgumentError, match="the weights of several processes come apart"):
        begun(2, samples=16)
    monkeypatch.setattr(Trainer, "get_train_dataloader", lambda self: DataLoader(Stream()))
    assert not begun(2, samples=16), "a stream has no length to go by"


@pytest.mark.parametrize("rank", [0, 1])
def test_what_holds_for_all_ranks_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, rank: int) -> None:
    guard = attach(tiny_trainer(tmp_path))
    guard._loop.rank = rank
    guard._loop.say("of all", of_all=True)
    guard._loop.say("of this rank")
    assert guard.notes[-2:] == ("of all", "of this rank")
    assert caplog.messages[-2:] == ["of all", "of this rank"][rank:]
