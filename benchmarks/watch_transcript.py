"""A training that leaks, warned of long before it runs out of memory; its output is ``watch_transcript.md``.

    python benchmarks/watch_transcript.py > benchmarks/watch_transcript.md

The demo's model on the bundled clips, on the CPU, with a mistake that is often made: from some step on, the outputs of
every batch are kept. What they take is real. There is no GPU, so the card is faked: the tests' stand-in for NVIDIA's
driver and PyTorch's counters say what a T4 would hold if each byte were many, and a hook raises what CUDA would when
that is more than the card has.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from callback_cost import fake_driver
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

import asrconfig_go as ac
from asrconfig_go.audio import CTCCollator
from asrconfig_go.data.splits import demo_rows
from asrconfig_go.recipe import build_processor
from asrconfig_go.recipe.model_building import small_model
from asrconfig_go.watch.display import RUN_FILE_NAME
from asrconfig_go.watch.telemetry import Counters, RunLog

BATCH, STEPS, RATE, LEAKS_FROM = 8, 400, 16_000, 60
GIB, MIB = 1 << 30, 1 << 20
TOTAL, CONTEXT, RESIDENT = (15360 - 442) * MIB, 300 * MIB, 5 * GIB
SCALE = 1500  # bytes of the card for a byte that is kept
ACTIVATIONS = 150 * MIB  # for a second of padded audio
MESSAGE = "CUDA out of memory. Tried to allocate {:.0f} MiB. GPU 0 has a total capacity of 14.57 GiB"
_CONTROL, _CARDS = "14Q", 16  # of the stand-in: numbers a card; see fake_nvml.c


class FakeCard:
    """A T4 that holds the model, a batch's activations while it is computed, and what the training keeps."""

    def __init__(self, control: Path, buffers: list[Any]) -> None:
        self.kept, self.reserved, self.peak = buffers, 0, 0
        size = struct.calcsize(_CONTROL)
        control.write_bytes(bytes(_CARDS * size))
        with control.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _CARDS * size)
        self._hold(RESIDENT)

    @property
    def allocated(self) -> int:
        return RESIDENT + SCALE * sum(tensor.untyped_storage().nbytes() for tensor in self.kept)

    def before_forward(self, model: Any, args: Any, kwargs: Any) -> None:
        activations = int(ACTIVATIONS * kwargs["input_values"].numel() / RATE)
        if CONTEXT + self.allocated + activations > TOTAL:
            raise torch.cuda.OutOfMemoryError(MESSAGE.format(activations / MIB))
        self._hold(self.allocated + activations)

    def _hold(self, peak: int) -> None:
        """The allocator keeps what it once had; the driver sees that as used."""
        self.peak = max(self.peak, peak)
        self.reserved = max(self.reserved, self.peak)
        used = CONTEXT + self.reserved
        struct.pack_into(_CONTROL, self._shared, 0, 1, 0, used, 93, 55, 66000, 74, 1350, 0, 0, 0, 0, 0, 0)

    def read(self) -> list[Counters]:
        """PyTorch's counters after a step."""
        peak, self.peak = self.peak, self.allocated
        return [Counters(0, self.allocated, self.reserved, peak, self.reserved)]


class Leaking(Trainer):  # type: ignore[misc]
    """Keeps the outputs of every batch from some step on, for a metric that is never computed."""

    kept: list[Any]

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["return_outputs"] = True
        loss, outputs = super().compute_loss(model, inputs, *args, **kwargs)
        if self.state.global_step >= LEAKS_FROM:
            self.kept.append(outputs["logits"].detach().clone())
        return loss


class Print(TrainerCallback):  # type: ignore[misc]
    """Prints the log as lines."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "loss" in logs:
            names = ("memory_used_gib", "memory_fraction", "headroom_gib")
            text = "  ".join(f"{name} {logs[f'asrconfig/gpu0_{name}']:.2f}" for name in names)
            print(f"step {state.global_step:3}  loss {logs['loss']:.2f}  {text}", flush=True)
        if state.global_step == LEAKS_FROM:
            print("from here on every batch's outputs are kept")


class Said(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints what is logged, and keeps what is said of the steps that are left."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(sys.stdout)
        self._trainer = trainer
        self.told: list[tuple[int, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        match = re.search(r"in about (\d+) step", record.getMessage())
        if match:
            self.told.append((self._trainer.state.global_step, int(match[1])))


def trainer_of(folder: Path) -> Leaking:
    rows = [{"audio": {"path": row["audio_filepath"]}, **row} for row in demo_rows()]
    processor = build_processor((row["text"] for row in rows), "tiny-wav2vec2")
    trainer = Leaking(
        small_model(len(processor.tokenizer), seed=0),
        TrainingArguments(
            str(folder),
            per_device_train_batch_size=BATCH,
            max_steps=STEPS,
            learning_rate=1e-3,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=[row for row in rows if row["split"] == "train"],  # type: ignore[arg-type]
        data_collator=CTCCollator(processor),
    )
    trainer.kept = []
    trainer.remove_callback(PrinterCallback)
    return trainer


def main() -> None:
    """Print the transcript."""
    hf_logging.set_verbosity_error()
    torch.set_num_threads(1)
    print("# A training that leaks, and what is said about it before it runs out of memory\n")
    print("Printed by `python benchmarks/watch_transcript.py`, unedited. The GPU is faked: this is a CPU.\n\n```")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FAKE_NVML_CONTROL"] = str(folder / "card")
        trainer = trainer_of(folder / "out")
        forecasts = Said(trainer)
        logging.getLogger("asrconfig_go").addHandler(forecasts)
        card = FakeCard(folder / "card", trainer.kept)
        trainer.model.register_forward_pre_hook(card.before_forward, with_kwargs=True)
        monitor = ac.MemoryMonitor(library_path=fake_driver(folder, "T4"))
        monitor._torch = card  # type: ignore[assignment]
        trainer.add_callback(ac.AdaptiveMemoryCallback(monitor=lambda: monitor))
        trainer.add_callback(Print())
        try:
            trainer.train()
        except torch.cuda.OutOfMemoryError as error:
            print(f"step {trainer.state.global_step}: {error}")
        monitor.stop()
        monitor.save(folder / RUN_FILE_NAME)
        run_log = RunLog.load(folder / RUN_FILE_NAME)
        print(f"\n{run_log!r}")
        for event in run_log.events:
            print(f"{event.at_s:6.1f} s  {event.kind}: {event.text}")
        for alert in run_log.alerts:
            print(f"{alert.at_s:6.1f} s  {alert.kind} ({alert.severity}) since step {alert.since_step}: {alert.text}")
        ended = trainer.state.global_step
        print(f"\nit ran out of memory in step {ended + 1}; what had been said:")
        for step, remaining in forecasts.told:
            print(f"  after step {step:3}: in about {remaining} steps, that is in step {step + remaining}")
    print("```")


if __name__ == "__main__":
    main()
