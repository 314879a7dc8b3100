"""Every setting of a plan ends in its place: a new field without a row here fails, and so does one without effect."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import TrainingConfig, select_clips
from asrconfig_go._core.settings import OPTIMIZER
from asrconfig_go.predict import memory_settings
from training_fixtures import make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import TrainingArguments

from asrconfig_go.plan.environment import set_backends
from locations import REPOSITORY
from speech_models import wav2vec2
from tiny_training import tiny_trainer

DOCUMENT = REPOSITORY / "docs" / "reference" / "settings.md"
NAMES = {field.name for field in dataclasses.fields(TrainingConfig)}
ARGUMENTS = {field.name for field in dataclasses.fields(TrainingArguments)}


@pytest.fixture(autouse=True)
def put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves the environment and torch as they were."""
    before = dict(os.environ)
    for name in (*memory_settings.alloc_conf_names(), "TOKENIZERS_PARALLELISM", "CUBLAS_WORKSPACE_CONFIG"):
        os.environ.pop(name, None)
    benchmark, deterministic = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, deterministic
    torch.use_deterministic_algorithms(False)
    os.environ.clear()
    os.environ.update(before)


def arguments(output: Path, plan: TrainingConfig, **overrides: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return plan.to_training_arguments(output, **overrides)


# 1. What the Trainer gets: two values of a setting, and what TrainingArguments then hold under which name.

WORKERS = {"dataloader_num_workers": 2}
CHECKPOINTING = "activation_checkpointing" if "activation_checkpointing" in ARGUMENTS else "gradient_checkpointing"
GROUPING = "train_sampling_strategy" if "train_sampling_strategy" in ARGUMENTS else "group_by_length"


def group(on: bool) -> Any:
    return on if GROUPING == "group_by_length" else ("group_by_length" if on else "random")


TRAINER: dict[str, tuple[str, list[tuple[dict[str, Any], Any]]]] = {
    "per_device_train_batch_size": ("", [({"per_device_train_batch_size": n}, n) for n in (2, 7)]),
    "gradient_accumulation_steps": ("", [({"gradient_accumulation_steps": n}, n) for n in (1, 3)]),
    "per_device_eval_batch_size": ("", [({"per_device_eval_batch_size": n}, n) for n in (2, 7)]),
    "eval_steps": ("", [({"eval_steps": n}, n) for n in (None, 40)]),
    "save_steps": ("", [({"save_steps": n}, n if n else 500) for n in (None, 40)]),
    "eval_accumulation_steps": ("", [({"eval_accumulation_steps": n}, n) for n in (None, 4)]),
    "bf16": ("", [({"bf16": on}, on) for on in (False, True)]),
    "gradient_checkpointing": (CHECKPOINTING, [({"gradient_checkpointing": on}, on) for on in (False, True)]),
    "torch_compile": ("", [({"torch_compile": on}, on) for on in (False, True)]),
    "deterministic": ("full_determinism", [({"deterministic": on}, on) for on in (False, True)]),
    "dataloader_num_workers": ("", [({"dataloader_num_workers": n}, n) for n in (0, 2)]),
    "dataloader_prefetch_factor": ("", [({"dataloader_prefetch_factor": n, **WORKERS}, n) for n in (2, 5)]),
    "dataloader_persistent_workers": (
        "",
        [({"dataloader_persistent_workers": on, **WORKERS}, on) for on in (False, True)],
    ),
    "group_by_length": (
        GROUPING,
        [
            ({"group_by_length": on, "length_handling": "grouped" if on else "random"}, group(on))
            for on in (False, True)
        ],
    ),
    "length_handling": (
        GROUPING,
        [
            ({"length_handling": handling, "group_by_length": handling == "grouped"}, group(handling == "grouped"))
            for handling in ("random", "grouped", "bucketed", "stratified")
        ],
    ),
    "learning_rate": ("", [({"learning_rate": x}, x) for x in (1e-5, 3e-4)]),
    "num_train_epochs": ("", [({"num_train_epochs": x}, x) for x in (1.5, 3.0)]),
    "warmup_ratio": ("get_warmup_steps", [({"warmup_ratio": x}, 1000 * x) for x in (0.1, 0.25)]),
    "weight_decay": ("", [({"weight_decay": x}, x) for x in (0.0, 0.05)]),
    "max_grad_norm": ("", [({"max_grad_norm": x}, x) for x in (0.5, 2.0)]),
    "optimizer": ("optim", [({"optimizer": name}, name) for name in ("adamw_torch", "adafactor")]),
    "seed": ("", [({"seed": n}, n) for n in (1, 2)]),
    "distributed": (
        "ddp_find_unused_parameters",
        [({"distributed": strategy}, unused) for strategy, unused in (("none", None), ("ddp", True))],
    ),
}


@pytest.mark.parametrize("name", TRAINER)
def test_the_trainer_gets(name: str, tmp_path: Path) -> None:
    target, cases = TRAINER[name]
    for changes, expected in cases:
        plan = make_plan(**{"micro_batch_size": 1, **defaults(), **changes})
        built = arguments(tmp_path, plan, model=wav2vec2("mean"))
        value = getattr(built, target or name)
        assert (value(1000) if callable(value) else value) == expected, changes


def defaults() -> dict[str, Any]:
    plain = make_plan().to_dict()
    return {name: plain[name] for name in NAMES}


@pytest.mark.parametrize("name", ["fp16", "tf32", "dataloader_pin_memory"])
def test_the_trainer_gets_what_a_gpu_can_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an Ampere GPU, before TrainingArguments look at the machine themselves."""
    from transformers import utils

    from asrconfig_go.plan import training_arguments
    from asrconfig_go.plan.argument_names import ArgumentFields

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(utils, "is_torch_tf32_available", lambda: True)
    for on in (False, True):
        plan = make_plan(**{name: on})
        fields = ArgumentFields(TrainingArguments)
        planned = training_arguments._planned(plan, fields, {})
        training_arguments._leave_unsupported(plan, planned, {})
        assert planned[name] is on


# 2. What apply() does, by its effect.


def alloc_conf() -> None:
    name = memory_settings.alloc_conf_names()[0]
    assert name not in os.environ
    make_plan(alloc_conf="expandable_segments:True").apply(backends=False)
    assert os.environ[name] == "expandable_segments:True"


def cudnn_benchmark() -> None:
    for on in (True, False):
        list(set_backends(make_plan(cudnn_benchmark=on)))
        assert torch.backends.cudnn.benchmark is on


def cudnn_attention() -> None:
    for allowed in (True, False):
        list(set_backends(make_plan(cudnn_attention=allowed)))
        assert torch.backends.cuda.cudnn_sdp_enabled() is allowed, "true leaves PyTorch's default"


def deterministic() -> None:
    make_plan(deterministic=True).apply()
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def tf32() -> None:
    for on in (True, False):
        make_plan(tf32=on).apply(environment=False)
        assert torch.backends.cuda.matmul.allow_tf32 is on


APPLY: list[Callable[[], None]] = [alloc_conf, cudnn_benchmark, cudnn_attention, deterministic, tf32]
# What prepare_model does: test_model_preparation.py.
PREPARED = {
    *("gradient_checkpointing", "every_n_layers", "offload_checkpoints", "attn_implementation"),
    *("freeze_feature_encoder", "lora_rank"),
}


@pytest.mark.parametrize("effect", APPLY, ids=lambda effect: effect.__name__)
def test_apply_does(effect: Callable[[], None]) -> None:
    effect()


# 3. What the dataset, its sampler and the guard take, by their effect.


def max_length_s() -> None:
    assert [list(select_clips([5, 20], make_plan(max_length_s=s)).kept) for s in (10.0, 30.0)] == [[0], [0, 1]]


def chunk_length_s() -> None:
    assert [list(select_clips([5, 20], make_plan(chunk_length_s=s)).to_cut) for s in (4.0, 10.0)] == [[0, 1], [1]]


def device_count() -> None:
    assert [make_plan(device_count=n).effective_batch_size for n in (1, 4)] == [32, 128]
    assert [make_plan(device_count=n).max_steps(640) for n in (1, 4)] == [100, 25]


def streaming() -> None:
    from asrconfig_go.data.splits import load_split
    from asrconfig_go.errors import InvalidArgumentError

    rows = load_split("train").select(range(4))
    stream = make_plan(streaming=True).stream(rows)
    assert [len(step) for step in stream.steps(2, count=2)] == [2, 2]
    with pytest.raises(InvalidArgumentError, match="no stream of clips"):
        make_plan(streaming=False).stream(rows)


def cache_dataset() -> None:
    from asrconfig_go.audio import DecodedCache, load_audio
    from asrconfig_go.data.source import CLIPS

    clip = next(CLIPS.glob("*.mp3"))
    cache = make_plan(cache_dataset=True).clip_loader()
    assert isinstance(cache, DecodedCache)
    assert cache(clip) is cache(clip)
    caches: list[Any] = [make_plan(cache_dataset=True, dataloader_num_workers=n).clip_loader() for n in (0, 4)]
    parts = [part.max_bytes for part in caches]
    assert 3 < parts[0] / parts[1] < 5, "each worker has a cache of its own"
    assert make_plan(cache_dataset=False).clip_loader() is load_audio


DATA: list[Callable[[], None]] = [max_length_s, chunk_length_s, device_count, streaming, cache_dataset]


@pytest.mark.parametrize("effect", DATA, ids=lambda effect: effect.__name__)
def test_data_take(effect: Callable[[], None]) -> None:
    effect()


# Settings that the user hands to a named function or argument; docs/reference/settings.md says how.
HANDED_OVER = {
    "micro_batching": "`manager.train(trainer)`",
    "micro_batch_size": "`per_device_train_batch_size`",
    "micro_batch_overhead_s": "the guard",
    "unguarded": "`to_training_arguments`",
    "micro_batch_host_s": "the guard",
    "rule": "the guard",
    "length_buckets": "`manager.train`",
    "target_batch_size": "`manager.train`",
    "eval_samples": "select(range(config.eval_samples))",
}
# What tells of the plan and changes nothing by itself.
DESCRIPTION = {
    *("schema_version", "row_kind", "policy", "preset", "lr_scaling", "safety_margin", "gpu_name", "gpu_memory_bytes"),
    *("model_memory_bytes", "predicted_bytes", "predicted_high_bytes", "budget_bytes", "memory_parts"),
    *("devices", "times", "arithmetic", "alternatives", "by_hand", "micro_batches", "decisions", "warnings"),
}


def test_every_setting_has_its_place() -> None:
    applied = {effect.__name__ for effect in (*APPLY, *DATA)} | PREPARED
    trainer = {*TRAINER, "fp16", "tf32", "dataloader_pin_memory"}
    assert trainer | applied | set(HANDED_OVER) | DESCRIPTION == NAMES
    assert not (DESCRIPTION | set(HANDED_OVER)) & (trainer | applied)
    assert not DESCRIPTION & set(HANDED_OVER)


def test_the_document_tells_of_every_setting() -> None:
    text = DOCUMENT.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for name in NAMES:
        assert any(f"`{name}`" in row for row in rows), name
    for name, words in HANDED_OVER.items():
        assert any(f"`{name}`" in row and words in row for row in rows), name


def test_the_default_optimizer_trains_without_a_gpu(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, optim=OPTIMIZER, max_steps=2)
    before = trainer.model.first.weight.detach().clone()
    trainer.train()
    assert trainer.optimizer.optimizer.defaults["fused"]
    assert not torch.equal(trainer.model.first.weight, before)
