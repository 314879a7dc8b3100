"""Benchmarks of real Trainers on the bundled clips: what is the same on both sides, what is left as it was."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("soundfile")

from transformers import Trainer, TrainingArguments

import asrconfig_go as ac
from asrconfig_go.audio import CTCCollator
from asrconfig_go.benchmark import BenchmarkResult, benchmark_training, runner
from asrconfig_go.benchmark.benchmark_clips import draw, durations_of
from asrconfig_go.benchmark.blocks import Bench, run_block
from asrconfig_go.benchmark.request import default_side, original_side
from asrconfig_go.benchmark.runner import LEARNING_STEPS
from asrconfig_go.benchmark.sides import Side
from asrconfig_go.data.splits import load_split
from asrconfig_go.errors import CorruptFileError, EmptyDatasetError, InvalidArgumentError, NotFoundError
from asrconfig_go.recipe import build_processor
from asrconfig_go.recipe.model_building import small_config
from speech_models import Clips, wav2vec2
from tiny_training import OUT_OF_MEMORY

BATCH = 4
QUICK: dict[str, Any] = {
    "target_batch_size": BATCH, "steps": 2, "rounds": 1, "warm_up": 1, "loader": False, "sweep": "none",
    "progress": False,
}  # fmt: skip


class Digits:
    """The bundled clips, and a collator that notes which of them it has seen."""

    def __init__(self) -> None:
        self.clips = load_split("train").select(range(24))
        self.processor = build_processor(self.clips["text"], "tiny-wav2vec2")
        self.collate = CTCCollator(self.processor)
        self.seen: list[list[str]] = []

    def __call__(self, rows: Any) -> Any:
        self.seen.append([row["audio"]["path"] for row in rows])
        return self.collate(rows)

    def model(self, fail: Any = None) -> Any:
        """A small wav2vec2 that asks ``fail`` before each forward of a training."""
        from transformers import Wav2Vec2ForCTC

        torch.manual_seed(0)
        config = small_config(len(self.processor.tokenizer))
        config.num_hidden_layers, config.hidden_size, config.intermediate_size = 1, 32, 32
        config.conv_dim = [8, 8, 16, 16]
        model = Wav2Vec2ForCTC(config)
        if fail:  # inside of what the Trainer wraps in autocast
            model.wav2vec2.register_forward_pre_hook(
                lambda module, inputs: fail(module) if module.training and torch.is_grad_enabled() else None
            )
        return model


@pytest.fixture(scope="module")
def digits() -> Digits:
    return Digits()


@pytest.fixture(scope="module")
def plan(digits: Digits) -> ac.TrainingConfig:
    return ac.create_optimal_config(digits.clips, digits.model(), target_batch_size=BATCH, verbose=False)[0]


@pytest.fixture(scope="module")
def outcome(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> BenchmarkResult:
    """All there is, once."""
    folder = tmp_path_factory.mktemp("profile")
    sweep = "precision,prefetch,tf32,persistent,order"
    return benchmarked(digits, profile=folder, loader=True, rounds=2, sweep=sweep)


def benchmarked(digits: Digits, model: Any = None, **options: Any) -> BenchmarkResult:
    settings = {**QUICK, **options}
    return benchmark_training(model or digits.model(), digits.clips, collator=digits.collate, **settings)


def bench(digits: Digits, plan: ac.TrainingConfig, collator: Any) -> Bench:
    sample = draw(digits.clips, durations_of(digits.clips), 3, BATCH, plan.max_length_s, 0)
    return Bench(digits.model(), sample, collator, Trainer, {}, 0, 2)


def test_both_sides_train_the_same_clips_and_as_many_a_step(digits: Digits, plan: ac.TrainingConfig) -> None:
    own = Digits()
    setup = bench(digits, plan, own)
    wanted = Counter(row["audio"]["path"] for row in setup.sample.dataset)
    orders = {"length_handling": "bucketed", "micro_batching": "memory"}
    bucketed = ac.TrainingConfig.from_dict({**plan.to_dict(), **orders})
    for side in (default_side(BATCH), Side("plan", {}, plan), Side("bucketed", {}, bucketed)):
        own.seen = []
        done = run_block(setup, side, 3)
        batches = own.seen[-3:]  # behind those that warm up
        assert Counter(path for batch in batches for path in batch) == wanted, side.name
        assert not any("steps are not taken" in note for note in done.notes), "the plan's order is measured"
        assert [len(step) for step in (done.block.steps, own.seen[0])] == [3, BATCH]
        assert all(min(step.forward_s, step.backward_s, step.optimizer_s) > 0 for step in done.block.steps), side.name


@pytest.mark.slow
def test_parts_of_a_step_add_up(outcome: BenchmarkResult) -> None:
    for side in (outcome.plan, outcome.original):
        assert side is not None
        for block in side.blocks:
            assert sum(step.seconds for step in block.steps) == pytest.approx(block.seconds, rel=0.01)
            for step in block.steps:
                parts = [step.waiting_s, step.forward_s, step.backward_s, step.optimizer_s, step.other_s]
                assert min(parts) >= 0 and max(parts) > 0
                assert sum(parts) == pytest.approx(step.seconds, rel=0.01)


def test_padding_is_that_of_the_batches(outcome: BenchmarkResult) -> None:
    assert outcome.original is not None and outcome.original.padding is not None and 0 < outcome.original.padding < 0.6
    assert outcome.plan.padding is not None and 0 <= outcome.plan.padding < 0.5
    assert outcome.plan.audio_s == pytest.approx(outcome.original.audio_s)
    assert [step.micro_batches for step in outcome.original.blocks[0].steps] == [1, 1]
    # The forwards that a guard tries in its first steps are in no figure.
    steps = [step for block in outcome.plan.blocks for step in block.steps]
    assert {step.micro_batches for step in steps} <= set(range(1, BATCH + 1))


def test_without_a_gpu_its_figures_are_absent(outcome: BenchmarkResult) -> None:
    assert outcome.plan.readings.gpu_use is None and outcome.plan.peak_bytes is None and outcome.plan.queueing is None
    assert outcome.to_json()["plan"]["readings"]["gpu_use"] is None
    assert "GPU use" not in str(outcome) and "CPU use" in str(outcome)
    assert outcome.too_few_rounds and "too few rounds: 2 measured" in str(outcome)
    assert outcome.cpu_speedup is not None and outcome.plan.cpu_use is not None and outcome.plan.cpu_use.median > 0


def test_options_are_measured_or_say_why_not(outcome: BenchmarkResult) -> None:
    by_name = {(option.option, option.value): option for option in outcome.options}
    assert by_name["precision", "bf16"].gain is not None
    assert by_name["precision", "bf16"].side is not None and by_name["precision", "bf16"].side.settings["bf16"] is True
    assert "refuses it on a CPU" in by_name["precision", "fp16"].why_not
    assert by_name["tf32", ""].why_not and by_name["persistent", ""].why_not
    assert outcome.bottleneck is not None and outcome.next_change


def test_the_loader_is_measured_with_and_without_workers(outcome: BenchmarkResult) -> None:
    ways = {(loader.workers, loader.prefetch): loader for loader in outcome.loader}
    assert {(0, None), (1, 2), (1, 4)} <= set(ways)
    for loader in outcome.loader:
        assert loader.clips_per_s.low <= loader.clips_per_s.median <= loader.clips_per_s.high
        assert loader.audio_per_s is not None and loader.start_s > 0 and loader.again_s > 0


def test_profiles_are_traces_of_the_steps(outcome: BenchmarkResult) -> None:
    files = ["plan.pt.trace.json", "the-trainer-s-defaults.pt.trace.json"]
    assert [Path(name).name for name in outcome.profile] == files
    for name in outcome.profile:
        events = json.loads(Path(name).read_text())["traceEvents"]
        names = {event.get("name", "") for event in events}
        assert {"aten::conv1d", "aten::linear"} <= names
        assert any("ctc_loss" in n for n in names) and any("Backward" in n for n in names)
        assert sum(n.startswith("ProfilerStep#") for n in names) == 2
        assert any(n.startswith("Optimizer.step") for n in names)


def test_nothing_is_left_behind(digits: Digits, plan: ac.TrainingConfig, tmp_path: Path) -> None:
    model = digits.model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mine = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    trainer = Trainer(digits.model(), mine, train_dataset=digits.clips)
    assert trainer.accelerator.mixed_precision == "no"
    state, python, numbers = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    torch.backends.cudnn.benchmark = True
    try:
        benchmarked(digits, model, sweep="checkpointing,attention,precision", plan=plan, compare=False, loader=True)
        assert torch.backends.cudnn.benchmark is True
    finally:
        torch.backends.cudnn.benchmark = False
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and random.getstate() == python
    assert torch.get_num_threads() == numbers
    assert trainer.accelerator.mixed_precision == "no"  # also after a change to bf16
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    assert model.config._attn_implementation == digits.model().config._attn_implementation
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("error", "problem"),
    [(RuntimeError(OUT_OF_MEMORY), "out of memory"), (TypeError("no such kernel"), "TypeError: no such kernel")],
)
def test_a_change_that_fails_is_a_result(digits: Digits, error: Exception, problem: str) -> None:
    def fail(module: Any) -> None:
        if torch.is_autocast_enabled("cpu"):
            raise error

    result = benchmarked(digits, digits.model(fail), compare=False, sweep="precision")
    bf16 = next(option for option in result.options if option.value == "bf16")
    assert (bf16.problem, bf16.gain) == (problem, None) and problem in str(result)
    assert result.original is None and result.speedup is None


@pytest.mark.slow
def test_a_compiled_model_warms_up_on_every_shape(
    digits: Digits, plan: ac.TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []

    def compile_model(model: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.append(model)
        return model

    monkeypatch.setattr(torch, "compile", compile_model)
    own = Digits()
    options = {**QUICK, "sweep": "compile", "plan": plan, "compare": False}
    result = benchmark_training(digits.model(), own.clips, collator=own, **options)
    (change,) = result.options
    assert (change.option, change.value, change.problem) == ("compile", "on", "") and change.gain is not None
    assert len(compiled) >= 1 and change.side is not None
    assert change.side.padding is None  # no hook in what is compiled
    blocks = len(result.plan.blocks) + 2  # and those beside the change
    assert len(own.seen) == blocks * (1 + 2) + LEARNING_STEPS + (1 + 2 + 2)


def test_originals_that_run_out_of_memory_leave_the_plan(digits: Digits) -> None:
    def fail(module: Any) -> None:
        if any(getattr(part, "gradient_checkpointing", False) for part in module.modules()):
            raise RuntimeError(OUT_OF_MEMORY)

    original = {"per_device_train_batch_size": BATCH, "gradient_checkpointing": True}
    result = benchmarked(digits, digits.model(fail), original=original)
    assert result.original is not None and result.original.problem == "out of memory"
    assert result.speedup is None and result.plan.clips_per_s is not None
    assert str(result).startswith(f"out of memory with your settings: batch {BATCH} × 1, fp32, checkpointing; the plan")
    assert len(result.plan.rounds) == QUICK["rounds"] + 1


@pytest.mark.parametrize(("fits", "used"), [(2, (2, 2)), (1, None)])
def test_defaults_that_run_out_of_memory_are_halved(
    digits: Digits, plan: ac.TrainingConfig, fits: int, used: tuple[int, int] | None
) -> None:
    model, sizes = digits.model(), []

    def fail(module: Any, inputs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            sizes.append(len(inputs[0]))
            if len(inputs[0]) > fits:
                raise RuntimeError(OUT_OF_MEMORY)

    model.wav2vec2.register_forward_pre_hook(fail)
    result = benchmarked(digits, model, plan=plan)
    assert result.original is not None and result.plan.clips_per_s is not None
    adapted = f"8 × 1 makes no steps of {BATCH} clips; {BATCH} × 1 ran out of memory on this device"
    assert result.original.adapted == adapted and "ran out of memory on this device" in str(result)
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    assert [result.original.settings[name] for name in names] == [2, 2]
    assert (BATCH, 2) in itertools.pairwise(sizes), "the guard splits the plan's batches otherwise, by length"
    assert result.original.problem == ("" if used else "out of memory") and (result.speedup is not None) == bool(used)


def test_a_model_that_fails_is_one_clear_error(digits: Digits) -> None:
    def fail(module: Any) -> None:
        raise ValueError("shapes do not match")

    with pytest.raises(InvalidArgumentError, match="with the plan: ValueError: shapes do not match") as caught:
        benchmarked(digits, digits.model(fail))
    assert isinstance(caught.value.__cause__.__cause__, ValueError)  # type: ignore[union-attr]


@pytest.mark.parametrize("after", [0, 3])
def test_ctrl_c_keeps_what_was_measured(digits: Digits, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    blocks = iter(range(1000))

    def run(*args: Any, **kwargs: Any) -> Any:
        if next(blocks) >= after:
            raise KeyboardInterrupt
        return run_block(*args, **kwargs)

    monkeypatch.setattr(runner, "run_block", run)
    if after == 0:
        with pytest.raises(KeyboardInterrupt):
            benchmarked(digits, rounds=3)
        return
    result = benchmarked(digits, rounds=3)
    assert result.stopped and result.plan.clips_per_s is not None
    assert result.unfinished[0] == "both sides" and "stopped by Ctrl-C; unfinished: both sides" in str(result)


@pytest.mark.parametrize("after", [0, 30])
def test_the_end_of_the_time_keeps_what_was_measured(
    digits: Digits, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    steps = iter(range(1000))  # one second each
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: float(next(steps))))
    options = {"rounds": 9, "minutes": (after + 5) / 60, "loader": True}
    if after == 0:
        with pytest.raises(InvalidArgumentError, match=r"minutes = 0\.0833333 are over before"):
            benchmarked(digits, **options)
        return
    result = benchmarked(digits, **options)
    assert not result.stopped and result.unfinished == ("both sides", "loading data", "single changes")
    assert 1 <= len(result.plan.rounds) < 9 and result.too_few_rounds
    assert "ended after 35 s (--minutes); unfinished: both sides, loading data" in str(result)
    assert result.to_json()["unfinished"] == list(result.unfinished)


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # of the older name of checkpointing
def test_originals_of_every_kind(plan: ac.TrainingConfig, tmp_path: Path) -> None:
    plan.save(tmp_path / "training_config.json")
    (tmp_path / "arguments.json").write_text('{"per_device_train_batch_size": 2, "output_dir": "elsewhere"}')
    arguments = TrainingArguments(str(tmp_path), per_device_train_batch_size=2, gradient_accumulation_steps=2)
    assert set(original_side(arguments).settings) == {"per_device_train_batch_size", "gradient_accumulation_steps"}
    checkpointing = TrainingArguments(str(tmp_path), gradient_checkpointing=True, bf16=True, use_cpu=True, seed=3)
    side = original_side(checkpointing)
    again = side.arguments(str(tmp_path), 5, 1, None)
    assert (again.gradient_checkpointing, again.bf16, again.max_steps, again.seed) == (True, True, 5, 1)
    assert original_side(tmp_path / "training_config.json").plan == plan
    assert original_side({"per_gpu_train_batch_size": 4}).effective_batch == 4
    several: tuple[Any, ...] = (arguments, plan, tmp_path / "arguments.json", {})
    batches = [original_side(original).effective_batch for original in several]
    assert batches == [4, BATCH, 2, 8]
    made = TrainingArguments(str(tmp_path), per_device_train_batch_size=2, bf16=True, use_cpu=True, report_to="none")
    torch.save(made, tmp_path / "training_args.bin")
    (tmp_path / "made.json").write_text(made.to_json_string())
    for name in ("training_args.bin", "made.json"):  # as the Trainer and transformers write them
        side = original_side(tmp_path / name)
        assert (side.name, side.batch) == ("your settings", (2, 1))
        assert side.arguments(str(tmp_path), 5, 1, None).bf16
    with pytest.raises(InvalidArgumentError, match="has no setting 'batch'"):
        original_side({"batch": 3})
    with pytest.raises(NotFoundError, match="cannot read the settings"):
        original_side(tmp_path / "none.json")
    for original in (3, object()):
        with pytest.raises(InvalidArgumentError, match="holds no training settings"):
            original_side(original)


class Harm:
    """A pickle that would run something."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm"),)


def test_files_that_are_no_settings_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(Harm(), "harm.bin")
    torch.save({"weights": torch.ones(2)}, "weights.bin")
    Path("text.bin").write_text("no pickle")
    for name in ("harm.bin", "weights.bin", "text.bin"):
        with pytest.raises(CorruptFileError, match=f"{name} holds no TrainingArguments"):
            original_side(name)
    assert not Path("harm").exists()
    with pytest.raises(NotFoundError, match=r"cannot read the settings 'none\.bin'"):
        original_side("none.bin")


def test_bad_input_is_refused_before_anything_is_measured(digits: Digits, plan: ac.TrainingConfig) -> None:
    model, clips = digits.model(), digits.clips
    frozen = digits.model().requires_grad_(False)
    refused: tuple[tuple[Any, dict[str, Any], type[Exception], str], ...] = (
        (("tiny", clips), {}, InvalidArgumentError, "is not a torch module"),
        ((frozen, clips), {}, InvalidArgumentError, "no trainable weights"),
        ((model, "clips/"), {}, InvalidArgumentError, "cannot draw clips from a str"),
        ((model, iter([])), {}, InvalidArgumentError, "cannot draw clips"),
        ((model, []), {}, EmptyDatasetError, "no clips"),
        ((model, clips), {"steps": 0}, InvalidArgumentError, "steps = 0"),
        ((model, clips), {"rounds": "3"}, InvalidArgumentError, "rounds"),
        ((model, clips), {"rounds": 0}, InvalidArgumentError, "rounds = 0"),
        ((model, clips), {"minutes": math.nan}, InvalidArgumentError, "minutes = nan is not finite"),
        ((model, clips), {"target_batch_size": 13}, InvalidArgumentError, "makes no steps of 13 clips"),
        ((model, clips), {"sweep": "speed"}, InvalidArgumentError, "no option 'speed'"),
        ((model, clips), {"plan": plan, "original": {"per_device_train_batch_size": 3}}, InvalidArgumentError,
         "has 3 clips, one of the plan 4"),
        ((model, clips), {"plan": plan, "compare": False, "target_batch_size": 5}, InvalidArgumentError,
         "target_batch_size = 5, and a step has 4 clips"),
        ((model, clips), {"original": {"learning_rat": 1}}, InvalidArgumentError, "learning_rat"),
        ((model, clips), {"original": {"per_device_train_batch_size": 0}}, InvalidArgumentError, "= 0 is less than 1"),
        ((model, clips), {"original": {"gradient_accumulation_steps": math.nan}}, InvalidArgumentError, "= nan is not"),
        ((model, clips), {"plan": {"fp16": True}}, InvalidArgumentError, "is not a TrainingConfig"),
        ((model, clips), {"profile": "/proc/none"}, NotFoundError, "cannot write to /proc/none"),
        ((model, clips), {"settings": {"fp17": True}}, InvalidArgumentError, "fp17"),
    )  # fmt: skip
    for arguments, options, error, text in refused:
        with pytest.raises(error, match=text):
            benchmark_training(*arguments, **{"progress": False, **options})


def test_rows_of_inputs_without_audio() -> None:
    clips = Clips("ctc mean")
    result = benchmark_training(wav2vec2("mean"), clips, **{**QUICK, "compare": False})
    assert result.plan.audio_s == pytest.approx(2 * BATCH * 800 / 16_000) and result.plan.padding == 0
    with pytest.raises(InvalidArgumentError, match="no plan can be made of this data") as caught:
        benchmark_training(wav2vec2("mean"), [{"text": "one"}], **QUICK)
    assert "pass plan=" in str(caught.value)


def test_a_collator_that_fails_is_told(digits: Digits, plan: ac.TrainingConfig) -> None:
    def collate(rows: Any) -> Any:
        raise KeyError("speech")

    with pytest.raises(InvalidArgumentError, match="KeyError: 'speech'"):
        benchmark_training(digits.model(), digits.clips, collator=collate, plan=plan, **QUICK)
