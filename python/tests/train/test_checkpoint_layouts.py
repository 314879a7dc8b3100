"""Checkpoints in each layout that transformers and PEFT save weights in: whole, damaged, and resumed from."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import peft
import pytest
import safetensors.torch as safetensors
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.trainer_callback import TrainerState

from asrconfig_go.train.checkpoints import incomplete, weight_files, write_checksums
from disturbed_runs import SAVING, interrupted, trained, weights
from tiny_training import Regression, tiny_trainer

SHARD_BYTES = 200  # at most: the weights of Regression are in two shards then
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
BIN_SHARDS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
ADAPTER = "adapter_model.safetensors"


class Pretrained(PreTrainedModel):  # type: ignore[misc]
    """A ``Regression`` that ``save_pretrained`` saves, in shards where ``max_shard_size`` says so."""

    config_class = PretrainedConfig

    def __init__(self) -> None:
        super().__init__(PretrainedConfig())
        self.inner = Regression()
        self.seen = self.inner.seen
        self.post_init()

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        return self.inner(x, labels, index)


def sharded() -> Any:
    torch.manual_seed(0)
    model = Pretrained()
    model.save_pretrained = functools.partial(model.save_pretrained, max_shard_size=SHARD_BYTES)
    return model


def adapted(*names: str, **options: Any) -> Any:
    """A ``Regression`` with adapters of these names, of which the first is trained."""
    torch.manual_seed(0)
    model = Regression()
    config = functools.partial(peft.LoraConfig, r=2, target_modules=["first"], init_lora_weights=False, **options)
    model = peft.get_peft_model(model, config(), names[0])
    for name in names[1:]:
        model.add_adapter(name, config())
    return model


def save_state_dict(folder: Path) -> None:
    safetensors.save_file(Regression().state_dict(), folder / "model.safetensors", metadata={"format": "pt"})


def save_bin(folder: Path) -> None:
    torch.save(Regression().state_dict(), folder / "pytorch_model.bin")


def save_bin_shards(folder: Path) -> None:
    """As ``save_pretrained(safe_serialization=False)`` of transformers 4 did."""
    tensors = Regression().state_dict()
    files = {name: BIN_SHARDS[name.startswith("last")] for name in tensors}
    for file in BIN_SHARDS:
        torch.save({name: tensor for name, tensor in tensors.items() if files[name] == file}, folder / file)
    index = {"metadata": {"total_size": 300}, "weight_map": files}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def save_beside_the_base_model(folder: Path) -> None:
    adapted("default").save_pretrained(folder)
    (folder / "base").mkdir()
    save_state_dict(folder / "base")


def save_over_shards(folder: Path) -> None:
    """A checkpoint saved again, in a single file: ``save_pretrained`` removes the shards, not their index."""
    sharded().save_pretrained(folder)
    for shard in SHARDS:
        (folder / shard).unlink()
    save_state_dict(folder)


def save_by_fsdp(folder: Path) -> None:
    """With ``FULL_STATE_DICT``, as ``Trainer._save`` and accelerate do."""
    save_state_dict(folder)
    torch.save(Regression().state_dict(), folder / "pytorch_model_fsdp.bin")
    (folder / "optimizer.pt").rename(folder / "optimizer.bin")


class Layout(NamedTuple):
    """What saves weights, the files that the Trainer reads them from, and a model that takes them."""

    save: Callable[[Path], object]
    files: tuple[str, ...]
    model: Callable[[], Any] | None = Regression


LAYOUTS = {
    "single": Layout(lambda folder: Pretrained().save_pretrained(folder), ("model.safetensors",), Pretrained),
    "state dict": Layout(save_state_dict, ("model.safetensors",)),
    "bin": Layout(save_bin, ("pytorch_model.bin",)),
    "shards": Layout(
        lambda folder: sharded().save_pretrained(folder), ("model.safetensors.index.json", *SHARDS), Pretrained
    ),
    "bin shards": Layout(save_bin_shards, ("pytorch_model.bin.index.json", *BIN_SHARDS)),
    "adapter": Layout(
        lambda folder: adapted("default").save_pretrained(folder), (ADAPTER,), lambda: adapted("default")
    ),
    "adapter, bin": Layout(
        lambda folder: adapted("default").save_pretrained(folder, safe_serialization=False),
        ("adapter_model.bin",),
        lambda: adapted("default"),
    ),
    "adapter with a trained module": Layout(
        lambda folder: adapted("default", modules_to_save=["last"]).save_pretrained(folder),
        (ADAPTER,),
        lambda: adapted("default", modules_to_save=["last"]),
    ),
    "adapter beside its base model": Layout(save_beside_the_base_model, (ADAPTER,), lambda: adapted("default")),
    "named adapter": Layout(
        lambda folder: adapted("speech").save_pretrained(folder), (f"speech/{ADAPTER}",), lambda: adapted("speech")
    ),
    "named adapters": Layout(
        lambda folder: adapted("one", "two").save_pretrained(folder),
        (f"one/{ADAPTER}", f"two/{ADAPTER}"),
        lambda: adapted("one", "two"),
    ),
    "named adapters, bin": Layout(
        lambda folder: adapted("one", "two").save_pretrained(folder, safe_serialization=False),
        ("one/adapter_model.bin", "two/adapter_model.bin"),
        lambda: adapted("one", "two"),
    ),
    "default and a named adapter": Layout(
        lambda folder: adapted("default", "two").save_pretrained(folder),
        (ADAPTER, f"two/{ADAPTER}"),
        lambda: adapted("default", "two"),
    ),
    "single over shards": Layout(save_over_shards, ("model.safetensors",)),
    "fsdp": Layout(save_by_fsdp, ("pytorch_model_fsdp.bin",), None),
}
DAMAGES = [(name, file) for name, layout in LAYOUTS.items() for file in layout.files]


def saved(checkpoint: Path, save: Callable[[Path], object]) -> Path:
    """A checkpoint with all that the Trainer writes beside the weights."""
    checkpoint.mkdir()
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({}, checkpoint / name)
    save(checkpoint)
    TrainerState(global_step=4, max_steps=8).save_to_json(str(checkpoint / "trainer_state.json"))
    return checkpoint


def tensors(file: Path) -> dict[str, Any]:
    """Those of a file of weights; none of an index."""
    if file.suffix == ".json":
        return {}
    loaded: dict[str, Any] = safetensors.load_file(file) if file.suffix == ".safetensors" else torch.load(file)
    return loaded


@pytest.mark.parametrize("name", LAYOUTS)
def test_whole(tmp_path: Path, name: str) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS[name].save)
    assert [file.relative_to(checkpoint).as_posix() for file in weight_files(checkpoint)] == [*LAYOUTS[name].files]
    assert incomplete(checkpoint, 1) == ""
    write_checksums(checkpoint)
    assert incomplete(checkpoint, 1) == ""
    (checkpoint / "trainer_state.json").unlink()
    assert incomplete(checkpoint, 1) == "it has no trainer_state.json", "as after a kill while it was saved"


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.model])
def test_the_trainer_reads_those_files(tmp_path: Path, name: str) -> None:
    layout = LAYOUTS[name]
    checkpoint = saved(tmp_path / "checkpoint-4", layout.save)
    assert layout.model
    model = layout.model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    tiny_trainer(tmp_path / "run", model=model)._load_from_checkpoint(str(checkpoint))
    written = [tensor for file in weight_files(checkpoint) for tensor in tensors(file).values() if tensor.any()]
    assert sum(bool(parameter.any()) for parameter in model.parameters()) == len(written) > 0


@pytest.mark.parametrize(("name", "file"), DAMAGES)
def test_missing_weights(tmp_path: Path, name: str, file: str) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS[name].save)
    write_checksums(checkpoint)
    (checkpoint / file).unlink()
    assert incomplete(checkpoint, 1)
    (checkpoint / "asrconfig_checksums.json").unlink()
    assert incomplete(checkpoint, 1).startswith("it has no ")


@pytest.mark.parametrize(
    ("name", "file", "reason"),
    [
        ("single", "model.safetensors", "weights"),
        ("bin", "pytorch_model.bin", "weights"),
        ("shards", "model.safetensors.index.json", "weights"),
        ("shards", SHARDS[1], SHARDS[1]),
        ("bin shards", BIN_SHARDS[0], BIN_SHARDS[0]),
        ("adapter", ADAPTER, ADAPTER),
        ("named adapters", f"two/{ADAPTER}", f"two/{ADAPTER}"),
        ("default and a named adapter", ADAPTER, ADAPTER),
        ("single over shards", "model.safetensors", SHARDS[0]),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, name: str, file: str, reason: str) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS[name].save)
    (checkpoint / file).unlink()
    assert incomplete(checkpoint, 1) == f"it has no {reason}"


@pytest.mark.parametrize(("name", "file"), DAMAGES)
@pytest.mark.parametrize("size", [0, 7, -1])
def test_truncated_weights(tmp_path: Path, name: str, file: str, size: int) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS[name].save)
    path = checkpoint / file
    data = path.read_bytes().rstrip()
    path.write_bytes(data[:size])
    assert incomplete(checkpoint, 1) == f"{file} cannot be read"


@pytest.mark.parametrize(("name", "file"), [damage for damage in DAMAGES if not damage[1].endswith(".json")])
def test_weights_that_changed(tmp_path: Path, name: str, file: str) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS[name].save)
    write_checksums(checkpoint)
    path = checkpoint / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert incomplete(checkpoint, 1) in (f"{file} changed since it was written", f"{file} cannot be read")


@pytest.mark.parametrize(("before", "after"), [("single", "shards"), ("shards", "state dict"), ("single", "bin")])
def test_weights_saved_anew_in_other_files(tmp_path: Path, before: str, after: str) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS[before].save)
    write_checksums(checkpoint)
    for file in LAYOUTS[before].files:
        (checkpoint / file).unlink()
    assert incomplete(checkpoint, 1) == "it has no weights"
    LAYOUTS[after].save(checkpoint)
    assert not incomplete(checkpoint, 1)
    (checkpoint / "optimizer.pt").write_bytes((checkpoint / "scheduler.pt").read_bytes() + b"more")
    assert incomplete(checkpoint, 1), "the other files are compared as before"


def test_an_adapter_s_folder_that_is_gone(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS["named adapters"].save)
    write_checksums(checkpoint)
    for file in (checkpoint / "two").iterdir():
        file.unlink()
    assert incomplete(checkpoint, 1).startswith(f"two/{ADAPTER} cannot be read: ")


@pytest.mark.parametrize("index", ['{"weight_map": {}}', '{"weight_map": ["a"]}', '{"weight_map": {"a": 1}}', "[]"])
def test_an_index_that_lists_no_shards(tmp_path: Path, index: str) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", LAYOUTS["shards"].save)
    (checkpoint / "model.safetensors.index.json").write_text(index)
    assert incomplete(checkpoint, 1) == "model.safetensors.index.json cannot be read"


@pytest.mark.parametrize("folder", ["global_step4", "pytorch_model_fsdp_0"])
def test_what_deepspeed_and_fsdp_save_in_folders(tmp_path: Path, folder: str) -> None:
    checkpoint = saved(tmp_path / "checkpoint-4", lambda path: (path / folder).mkdir())
    (checkpoint / "optimizer.pt").unlink()
    assert incomplete(checkpoint, 1) == ""


@pytest.mark.parametrize(
    "model",
    [lambda: adapted("one", "two"), lambda: adapted("speech"), sharded],
    ids=["named adapters", "named adapter", "shards"],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, model: Callable[[], Any]) -> None:
    undisturbed = trained(tmp_path / "undisturbed", model=model(), **SAVING)
    interrupted(tmp_path / "run", 8, model=model())
    assert not (tmp_path / "run" / "checkpoint-6" / "model.safetensors").exists()
    resumed = trained(tmp_path / "run", resume=True, model=model(), **SAVING)
    assert resumed.report.resumed_from == str(tmp_path / "run" / "checkpoint-6")
    assert min(resumed.seen.samples) == 7
    assert torch.equal(weights(resumed), weights(undisturbed))
