"""Plans as files for torchrun, accelerate, DeepSpeed and FSDP, read by the libraries that they are for."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from asrconfig_go import TrainingConfig
from asrconfig_go._core import native
from asrconfig_go._core.declared import LIVE_PARAMETERS, PREFETCH_BUCKET
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.plan import (
    STRATEGIES,
    PlannedDevice,
    for_strategy,
    launch_arguments,
    launch_files,
    layer_classes,
    trainer_arguments,
)
from training_fixtures import UNGUARDED, make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.utils import FullyShardedDataParallelPlugin
from transformers import TrainingArguments, Wav2Vec2Config, Wav2Vec2ForCTC

from speech_models import MODELS

GPUS: dict[str, Any] = {
    "gpu_name": "Tesla T4",
    "gpu_memory_bytes": 15 << 30,
    "device_count": 2,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "fp16": True,
}
LAYERS = ["Wav2Vec2EncoderLayer"]


def gpus(**changes: Any) -> TrainingConfig:
    """A plan for two T4, 32 samples a step."""
    plan = make_plan(**{**GPUS, **changes})
    plan.alloc_conf = "expandable_segments:True"
    return plan


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """TrainingArguments of older versions set FSDP's options as variables."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [("ddp", "MULTI_GPU"), ("zero1", "DEEPSPEED"), ("zero2", "DEEPSPEED"), ("zero3", "DEEPSPEED"), ("fsdp", "FSDP")],
)
def test_accelerate_reads_its_file(tmp_path: Path, strategy: str, kind: str) -> None:
    written = gpus().launch_files(tmp_path, strategy=strategy, layers=LAYERS)  # type: ignore[arg-type]
    read = load_config_from_file(str(tmp_path / "accelerate.yaml"))
    assert isinstance(read, ClusterConfig)
    assert (read.distributed_type.value, read.num_processes, read.num_machines) == (kind, 2, 1)
    if kind == "DEEPSPEED":  # whose own file has the precision: accelerate refuses both
        assert read.mixed_precision is None
        settings = json.loads(Path(read.deepspeed_config["deepspeed_config_file"]).read_text())
        assert settings["zero_optimization"]["stage"] == int(strategy[-1])
        assert read.deepspeed_config["zero3_init_flag"] is (strategy == "zero3")
    else:
        assert read.mixed_precision == "fp16"
        assert read.deepspeed_config == {}
    if kind == "FSDP":
        assert read.fsdp_config["fsdp_transformer_layer_cls_to_wrap"] == "Wav2Vec2EncoderLayer"
    assert str(tmp_path / "accelerate.yaml") in written.accelerate


def test_commands_and_scripts(tmp_path: Path) -> None:
    written = launch_files(gpus(), tmp_path, script="my train.py", arguments=["--size", "a b"])
    assert written.torchrun == "torchrun --standalone --nproc-per-node 2 --max-restarts 3 'my train.py' --size 'a b'"
    assert written.strategy == "ddp"
    assert [f.name for f in written.files] == [
        "plan.json",
        "accelerate.yaml",
        "torchrun.sh",
        "accelerate.sh",
        "slurm.sbatch",
        "ray_train.py",
    ]
    for script in ("torchrun.sh", "accelerate.sh"):
        text = (tmp_path / script).read_text()
        assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n" in text
        assert "export PYTORCH_ALLOC_CONF=expandable_segments:True\n" in text
        subprocess.run(["sh", "-n", str(tmp_path / script)], check=True, timeout=10)
    assert written.torchrun in repr(written)
    assert "expandable_segments:True" in repr(written)
    assert dataclasses.is_dataclass(written)
    with pytest.raises(dataclasses.FrozenInstanceError):
        written.strategy = "fsdp"  # type: ignore[misc]


def test_several_machines(tmp_path: Path) -> None:
    written = gpus(device_count=8).launch_files(tmp_path, machines=2, max_restarts=1)
    assert "--nnodes 2 --rdzv-id asrconfig --rdzv-backend c10d --nproc-per-node 4 --max-restarts 1" in written.torchrun
    assert '--rdzv-endpoint "$FIRST_MACHINE:29500"' in written.torchrun
    assert '--machine_rank "$MACHINE_RANK" --main_process_ip "$FIRST_MACHINE"' in written.accelerate
    read = load_config_from_file(str(tmp_path / "accelerate.yaml"))
    assert (read.num_processes, read.num_machines) == (8, 2)
    assert any("FIRST_MACHINE" in note for note in written.notes)
    unset = subprocess.run(
        ["sh", str(tmp_path / "torchrun.sh")], capture_output=True, text=True, timeout=10, check=False
    )
    assert unset.returncode != 0
    assert "FIRST_MACHINE: set it: name or address" in unset.stderr


def test_the_written_plan_is_the_strategy_s(tmp_path: Path) -> None:
    gpus().launch_files(tmp_path, strategy="zero2")
    plan = TrainingConfig.load(tmp_path / "plan.json")
    assert plan.distributed == "zero2"
    assert plan.decisions[-1].setting == "distributed"
    assert "predicted for ddp, not for zero2" in plan.warnings[-1]
    assert trainer_arguments(plan)["deepspeed"]["zero_optimization"]["stage"] == 2
    again = for_strategy(plan)
    assert again is plan


def test_sharded_processes_get_equal_batches_that_all_can_compute() -> None:
    plan = gpus(per_device_train_batch_size=12, gradient_accumulation_steps=1)
    plan.micro_batching, plan.micro_batch_size = "memory", 5
    plan.devices = tuple(PlannedDevice(i, "", "T4", 12, size, 1, 2) for i, size in enumerate((5, 4)))
    assert for_strategy(plan) is plan, "each process of DDP cuts by itself"
    for strategy in ("zero1", "zero2", "zero3", "fsdp"):
        settled = for_strategy(plan, strategy)
        assert settled.micro_batching == "fixed"
        assert (settled.per_device_train_batch_size, settled.gradient_accumulation_steps) == (4, 3)
        assert settled.effective_batch_size == plan.effective_batch_size == 24
        assert [(d.samples, d.micro_batch_size) for d in settled.devices] == [(12, 4), (12, 4)]
        chosen = trainer_arguments(plan, strategy, layers=LAYERS)
        assert (chosen["per_device_train_batch_size"], chosen["gradient_accumulation_steps"]) == (4, 3)


def test_shares_by_speed_become_even_ones_where_processes_are_sharded() -> None:
    plan = gpus(per_device_train_batch_size=12, gradient_accumulation_steps=1)
    plan.micro_batching, plan.micro_batch_size = "memory", 6
    plan.devices = tuple(
        PlannedDevice(i, "", name, n, min(n, 6), 1, 2) for i, (name, n) in enumerate((("T4", 4), ("A100", 20)))
    )
    settled = for_strategy(plan, "zero2")
    assert (settled.per_device_train_batch_size, settled.gradient_accumulation_steps) == (6, 2), "six fit the T4, too"
    assert [(d.samples, d.micro_batch_size) for d in settled.devices] == [(12, 6), (12, 6)]


def test_sharded_processes_get_what_is_fastest_without_the_guard() -> None:
    plan = gpus(
        micro_batching="memory", per_device_train_batch_size=1, gradient_accumulation_steps=8, unguarded=UNGUARDED
    )
    for strategy in ("zero2", "fsdp"):
        settled = for_strategy(plan, strategy)
        assert (settled.per_device_train_batch_size, settled.gradient_accumulation_steps) == (4, 2)
        assert settled.gradient_checkpointing and settled.unguarded is None
    assert for_strategy(plan) is plan


def test_notes(tmp_path: Path) -> None:
    plan = gpus()
    plan.devices = tuple(PlannedDevice(i, "", "T4", 16, size, 1, 2) for i, size in enumerate((4, 2)))
    assert "the limits of its own" in launch_files(plan, tmp_path).notes[1]
    assert "4 × 4 became 2 × 8" in launch_files(plan, tmp_path, strategy="zero3").notes[0]
    (guard,) = launch_files(gpus(), tmp_path).notes
    assert "call manager.train(trainer), not trainer.train()" in guard and "up to 8 times" in guard
    assert guard in (tmp_path / "torchrun.sh").read_text()


def test_ddp_arguments(tmp_path: Path) -> None:
    arguments = gpus(device_count=1).to_training_arguments(tmp_path, **trainer_arguments(gpus()), fp16=False)
    assert arguments.ddp_find_unused_parameters is True
    plan = make_plan(device_count=2)
    assert plan.distributed == "ddp"
    chosen = trainer_arguments(plan)
    assert (chosen["use_cpu"], chosen["ddp_backend"]) == (True, "gloo")
    assert trainer_arguments(make_plan()) == {}


def test_fsdp_checkpoints_each_layer() -> None:
    plan = gpus(gradient_checkpointing=True, every_n_layers=3)
    assert [for_strategy(plan, s).every_n_layers for s in ("ddp", "zero3", "fsdp")] == [3, 3, 1]
    plan = gpus(gradient_checkpointing=True, offload_checkpoints=True)
    assert [for_strategy(plan, s).offload_checkpoints for s in ("ddp", "zero3", "fsdp")] == [True, True, False]


@pytest.mark.filterwarnings("ignore::asrconfig_go.plan.UnsupportedSettingWarning")
def test_fsdp_arguments_are_understood(tmp_path: Path) -> None:
    plan = gpus(gradient_checkpointing=True)
    chosen = trainer_arguments(plan, "fsdp", layers=LAYERS)
    arguments = plan.to_training_arguments(tmp_path, **chosen, fp16=False)
    assert not getattr(arguments, "activation_checkpointing", arguments.gradient_checkpointing)
    assert arguments.accelerator_config.gradient_accumulation_kwargs == {"sync_each_batch": True}
    direct = TrainingArguments(str(tmp_path), report_to="none", **chosen)
    without_gpu = {"sync_module_states": False}
    if getattr(direct, "fsdp_plugin_args", None):
        plugin = FullyShardedDataParallelPlugin(**{**direct.fsdp_plugin_args, **without_gpu})
        assert plugin.activation_checkpointing
    else:
        assert os.environ["FSDP_SHARDING_STRATEGY"] == "1"
        plugin = FullyShardedDataParallelPlugin(**without_gpu)
        assert direct.fsdp_config["activation_checkpointing"]  # which the Trainer of that age reads by itself
    assert (plugin.fsdp_version, plugin.sharding_strategy.name) == (1, "FULL_SHARD")
    plugin.set_auto_wrap_policy(MODELS["ctc mean"]())  # finds the layers
    assert "accelerator_config" not in trainer_arguments(gpus(gradient_accumulation_steps=1), "fsdp", layers=LAYERS)


def test_fsdp_2_where_accelerate_can_shard_the_model(tmp_path: Path) -> None:
    """It asks for embeddings, and those of wav2vec2 raise an error."""
    versions = {"whisper": 2, "ctc mean": 1, "w2v-bert": 1}
    for kind, version in versions.items():
        chosen = trainer_arguments(gpus(), "fsdp", model=MODELS[kind]())["fsdp_config"]
        with contextlib.suppress(NotImplementedError):
            MODELS[kind]().get_input_embeddings()
            version = 2  # a version of transformers in which they do not
        assert chosen["version"] == version, kind
        assert chosen["reshard_after_forward"] == (True if version == 2 else "full_shard")
    gpus().launch_files(tmp_path, strategy="fsdp", layers=["WhisperEncoderLayer", "WhisperDecoderLayer"])
    assert load_config_from_file(str(tmp_path / "accelerate.yaml")).fsdp_config["fsdp_version"] == 2
    if hasattr(TrainingArguments, "_apply_legacy_fsdp_to_config"):
        chosen = trainer_arguments(gpus(), "fsdp", model=MODELS["whisper"]())
        direct = TrainingArguments(str(tmp_path), report_to="none", **chosen)
        plugin = FullyShardedDataParallelPlugin(**direct.fsdp_plugin_args)
        assert (plugin.fsdp_version, plugin.reshard_after_forward) == (2, True)


def test_layers_of_models() -> None:
    model = MODELS["ctc mean"]()  # so small that its convolutions count, too
    assert layer_classes(model) == ("Wav2Vec2EncoderLayer", "Wav2Vec2LayerNormConvLayer")
    assert layer_classes(MODELS["whisper"]()) == ("WhisperDecoderLayer", "WhisperEncoderLayer")
    assert layer_classes(MODELS["w2v-bert"]()) == ("Wav2Vec2BertEncoderLayer",)
    with torch.device("meta"):
        base = Wav2Vec2ForCTC(Wav2Vec2Config(do_stable_layer_norm=True))
    assert layer_classes(base) == ("Wav2Vec2EncoderLayerStableLayerNorm",)
    chosen = trainer_arguments(gpus(), "fsdp", model=model)
    assert chosen["fsdp_config"]["transformer_layer_cls_to_wrap"] == [*LAYERS, "Wav2Vec2LayerNormConvLayer"]


def test_buckets_are_those_that_the_core_counts() -> None:
    sizes = {"parameters": 10**9, "parameter_bytes": 4 * 10**9, "gradient_bytes": 4 * 10**9, "optimizer_bytes": 0}
    question = {"devices": 2, "precision": "fp32", "trainable": 10**9, "largest_block": 1_000_000, **sizes}

    def buffers(strategy: str) -> int:
        answer = native.call("memory.sharding", {"strategy": strategy, **question})
        return int(answer["buffers"]) // 4

    reduce = launch_arguments.deepspeed_config(3)["zero_optimization"]["reduce_bucket_size"]
    assert buffers("zero1") == reduce
    assert buffers("zero2") == 2 * reduce
    live = LIVE_PARAMETERS + 1_000_000 + PREFETCH_BUCKET
    assert buffers("zero3") == 2 * reduce + live


PARSE = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
import torch
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
from asrconfig_go import TrainingConfig
found = {}
for folder in map(Path, sys.argv[1:]):
    plan = TrainingConfig.load(folder / "plan.json")
    arguments = plan.to_training_arguments("out", report_to="none")
    arguments.fp16 = plan.fp16  # there is no GPU here, for which it would be kept
    parsed = HfTrainerDeepSpeedConfig(str(folder / "deepspeed.json"))
    parsed.trainer_config_process(arguments)
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=16))
    parsed.trainer_config_finalize(arguments, model, 100)
    found[folder.name] = {"config": parsed.config, "dtype": str(parsed.dtype()), "stage": parsed._stage}
print(json.dumps(found))
"""
STAGES: tuple[Literal["zero1", "zero2", "zero3"], ...] = ("zero1", "zero2", "zero3")


@pytest.fixture(scope="module")
def parsed_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the Trainer's parser, in a process of its own, makes of the file of each strategy."""
    tmp_path, path = tmp_path_factory.mktemp("deepspeed"), [p for p in sys.path if p]
    for strategy in STAGES:
        gpus().launch_files(tmp_path / strategy, strategy=strategy)
    if importlib.util.find_spec("deepspeed") is None:  # transformers asks for its version, and parses by itself
        (tmp_path / "deepspeed").mkdir()
        (tmp_path / "deepspeed" / "__init__.py").write_text("")
        about = tmp_path / "deepspeed-0.19.8.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.19.8\n")
        path.insert(0, str(tmp_path))
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE, *(str(tmp_path / strategy) for strategy in STAGES)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    parsed: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return parsed


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STAGES)
def test_the_trainer_s_parser_reads_deepspeed_s_file(parsed_files: dict[str, Any], strategy: str) -> None:
    parsed = parsed_files[strategy]
    assert "auto" not in json.dumps(parsed["config"])
    config = parsed["config"]
    assert (parsed["stage"], parsed["dtype"]) == (int(strategy[-1]), "torch.float16")
    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (4, 4)
    assert (config["train_batch_size"], config["gradient_clipping"]) == (16, 1.0)
    assert (config["fp16"]["enabled"], config["bf16"]["enabled"]) == (True, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "zero4"}, "'zero4'"),
        ({"strategy": "none"}, "'none' for 2 GPUs"),
        ({"strategy": "fsdp"}, "class names of the model's layers"),
        ({"strategy": "fsdp", "layers": "Layer"}, "is a str"),
        ({"strategy": "fsdp", "layers": ["no name"]}, "class names"),
        ({"strategy": "fsdp", "model": "xls-r"}, "str is not a torch module"),
        ({"machines": 3}, "2 GPUs cannot be shared equally by 3 machines"),
        ({"machines": 0}, "machines = 0"),
        ({"machines": True}, "machines = True"),
        ({"max_restarts": -1}, "max_restarts = -1"),
        ({"max_restarts": None}, "max_restarts = None"),
        ({"script": ""}, "script = ''"),
        ({"script": None}, "script = None"),
    ],
)
def test_it_refuses(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        gpus().launch_files(tmp_path / "out", **options)
    assert message in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


def test_sharding_needs_gpus(tmp_path: Path) -> None:
    for strategy in set(STRATEGIES) - {"none", "ddp"}:
        with pytest.raises(InvalidArgumentError, match="plan without a GPU"):
            make_plan(device_count=2).launch_files(tmp_path, strategy=strategy, layers=LAYERS)


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    gpus().launch_files(folder, script=os.fsdecode(b"go\xe9.py"))
    assert b"go\xe9.py" in (folder / "torchrun.sh").read_bytes()


def test_without_transformers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    gpus().launch_files(tmp_path, strategy="fsdp", layers=LAYERS)
    assert trainer_arguments(gpus(), "zero2")["deepspeed"]
    with pytest.raises(UnsupportedError, match="needs transformers"):
        trainer_arguments(gpus(), "fsdp", layers=LAYERS)
