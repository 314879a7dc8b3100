"""What warnings about the host and its data advise: it is done, and the warning is gone."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import asrconfig_go as ac
from hint_names import CLIPS

GIB = 1 << 30


def test_offloaded_checkpoints_that_pin_too_much_host_memory() -> None:
    hint = "leave offload_checkpoints out, or lower target_batch_size."

    def warned(**options: Any) -> str:
        manager = ac.ASRConfigManager(gpu="L4")
        memory = dataclasses.replace(manager.hardware.memory, total_bytes=64 * GIB, available_bytes=3 * GIB // 8)
        manager.hardware = dataclasses.replace(manager.hardware, memory=memory)
        manager.profile_dataset([np.zeros(20 * 16000, dtype="float32")] * 40, progress=False)
        manager.profile_model("wav2vec2-large")
        given = ac.PlanOptions(gradient_checkpointing=True, every_n_layers=1, **options)
        return " ".join(manager.plan(given, progress=False).warnings)

    assert hint in warned(offload_checkpoints=True)
    assert hint not in warned()
    assert hint not in warned(offload_checkpoints=True, target_batch_size=1)


def test_a_disk_that_is_almost_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan looks at the disk of the working folder."""
    full, other = tmp_path / "full", tmp_path / "other"
    for folder in (full, other):
        folder.mkdir()
    free = {full: GIB, other: 900 * GIB}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(Path(path), 900 * GIB)))

    def warned(folder: Path) -> str:
        monkeypatch.chdir(folder)
        config, _ = ac.create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
        return " ".join(config.warnings)

    assert "free on the disk" in warned(full)
    assert "free on the disk" not in warned(other)


def test_checkpoints_take_less_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """what a training with the setting has on the disk, at most."""
    import transformers

    from tiny_training import tiny_trainer

    kept = transformers.trainer.rotate_checkpoints

    def most(name: str, **more: Any) -> int:
        seen: list[int] = []

        def rotate(*args: Any, **kwargs: Any) -> Any:
            seen.append(sum(file.stat().st_size for file in (tmp_path / name).rglob("*") if file.suffix != ".json"))
            return kept(*args, **kwargs)

        monkeypatch.setattr(transformers.trainer, "rotate_checkpoints", rotate)
        tiny_trainer(tmp_path / name, max_steps=4, save_strategy="steps", save_steps=1, **more).train()
        assert len(seen) == 4
        return max(seen)

    assert most("changed", save_only_model=True) <= 0.6 * most("plain")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("mean", ["GPU memory is not the cause; look at the error itself"]),
        (None, ["this often hides a lack of GPU memory", 'pass rule="mean"']),
    ],
)
def test_an_error_that_a_smaller_micro_batch_does_not_mend(tmp_path: Path, rule: Any, said: list[str]) -> None:
    """the error itself is what comes up, with the advice as its note."""
    pytest.importorskip("torch")
    from asrconfig_go.guard import attach
    from tiny_training import Regression, tiny_trainer

    error = RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR, in a layer of one's own")

    def broken(model: Any, samples: int) -> None:
        raise error

    model = Regression()
    model.fail = broken
    trainer = tiny_trainer(tmp_path, model=model)
    attach(trainer, rule=rule)
    with pytest.raises(RuntimeError) as caught:
        trainer.train()
    assert caught.value is error and any(entry.name == "broken" for entry in caught.traceback)
    if sys.version_info >= (3, 11):  # older ones have no notes
        notes = [note for note in error.__notes__ if not note.startswith("it ran out of memory in\n")]
        assert len(notes) == len(said)
        assert all(words in note for note, words in zip(notes, said, strict=True))
    model = Regression()  # without what the traceback names
    trainer = tiny_trainer(tmp_path, model=model)
    guard = attach(trainer)
    trainer.train()
    assert trainer.state.global_step == 4 and not guard.events


@pytest.mark.parametrize("done", [{"rate": 16_000}, {"cores": 16.0}], ids=["stored decoded at 16 kHz", "more cores"])
def test_a_loader_that_holds_the_gpu_back(done: dict[str, Any]) -> None:
    hint = "store the audio decoded and at the model's sampling rate, or take a machine with more cores."

    def warned(rate: int = 48_000, cores: float = 2.0) -> bool:
        manager = ac.ASRConfigManager(gpu="L40S")
        clip = {"array": np.zeros(10 * rate, dtype="float32"), "sampling_rate": rate}
        manager.profile_dataset([clip] * 40, progress=False)
        manager.profile_model("wav2vec2-base")
        cpu = dataclasses.replace(manager.hardware.cpu, usable_cores=cores)
        manager.hardware = dataclasses.replace(manager.hardware, cpu=cpu)
        return any(hint in text for text in manager.plan(trace=False).warnings)

    assert warned()
    assert not warned(**done)


def test_a_card_whose_times_are_not_known() -> None:
    def warned(manager: Any) -> bool:
        manager.profile_dataset([np.zeros(160_000, dtype="float32")] * 40, progress=False)
        manager.profile_model("wav2vec2-base")
        return any("no published figures for" in text for text in manager.plan(trace=False).warnings)

    other = ac.ASRConfigManager(gpu="T4")
    other.hardware = dataclasses.replace(
        other.hardware, gpus=tuple(dataclasses.replace(g, name="NVIDIA X") for g in other.hardware.gpus)
    )
    assert warned(other)
    assert not warned(ac.ASRConfigManager(gpu="T4"))


def test_a_smaller_micro_batch_with_more_accumulation(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from asrconfig_go._base.out_of_memory import classify
    from tiny_training import OUT_OF_MEMORY, tiny_trainer

    hint = "GPU memory ran out; a smaller micro-batch with more accumulation keeps the effective batch"

    def trained(batch: int, accumulation: int, most: int) -> Any:
        """The weights after steps of a plain Trainer, with memory for micro-batches of ``most``."""

        def fail(_: Any, size: int) -> None:
            if size > most:
                raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

        t = tiny_trainer(tmp_path, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation)
        t.model.fail = fail
        t.train()
        assert t.state.global_step == 4
        return torch.cat([p.detach().flatten() for p in t.model.parameters()])

    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        trained(4, 1, most=2)
    assert classify(caught.value)["advice"] == hint
    torch.testing.assert_close(trained(2, 2, most=2), trained(4, 1, most=4))


@pytest.mark.filterwarnings("ignore")
def test_a_stream_is_trained_on_for_as_many_steps_as_its_warning_says(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")
    from recipe_data import digits
    from tiny_training import Regression

    stream = digits(12)["train"].cast_column("audio", datasets.Audio(decode=False)).to_iterable_dataset()
    # As of a dataset that the Hub describes.
    stream.info.splits = datasets.SplitDict({"train": datasets.SplitInfo("train", num_examples=12)})
    stream._split = datasets.Split.TRAIN
    config, _ = ac.create_optimal_config(
        stream, "wav2vec2-base", target_batch_size=4, num_train_epochs=2.0, gpu="T4", trace=False, verbose=False
    )
    (said,) = [text for text in config.warnings if "the Trainer needs max_steps" in text]
    steps = int(re.search(r"max_steps: about (\d+) for 2 epochs \(12 clips × 2 / 4\)", said)[1])  # type: ignore[index]

    def trained(**more: Any) -> list[list[int]]:
        arguments = transformers.TrainingArguments(
            str(tmp_path), per_device_train_batch_size=4, use_cpu=True, report_to="none", save_strategy="no",
            remove_unused_columns=False, disable_tqdm=True, **more,
        )  # fmt: skip
        model = Regression()
        transformers.Trainer(model, arguments, data_collator=collate, train_dataset=stream).train()
        return model.seen

    def collate(rows: list[Any]) -> dict[str, Any]:
        return {"x": torch.ones(len(rows), 6), "labels": torch.ones(len(rows), 1), "index": torch.arange(len(rows))}

    with pytest.raises(ValueError, match="max_steps"):
        trained(num_train_epochs=2)
    assert sum(map(len, trained(max_steps=steps))) == 2 * 12
