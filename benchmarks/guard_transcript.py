"""A training that meets three out-of-memory errors and goes on; its output is ``guard_transcript.md``.

    python benchmarks/guard_transcript.py > benchmarks/guard_transcript.md

The demo's model on the bundled clips, on the CPU. There is no GPU, so the limit is faked: a hook raises what CUDA would
when a micro-batch holds more than so many samples of audio, padding included. Another process takes half of it away
later on. It is trained twice, the second time with all the memory it wants, and the weights are compared.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

import asrconfig_go as ac
from asrconfig_go.audio import CTCCollator
from asrconfig_go.data.splits import demo_rows
from asrconfig_go.recipe import build_processor
from asrconfig_go.recipe.model_building import small_model

BATCH, STEPS, RATE = 16, 12, 16_000
MESSAGE = "CUDA out of memory. Tried to allocate {} MiB. GPU 0 has a total capacity of 14.74 GiB"


class FakeMemory(TrainerCallback):  # type: ignore[misc]
    """Room for so many seconds of padded audio at once: in the forward, in the backward, in evaluation."""

    def __init__(self, model: Any) -> None:
        self.room = {"forward": 20.0, "backward": 1e9, "evaluation": 1e9}
        self.seconds = 0.0
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        model.register_forward_hook(lambda *_: self._check("forward" if torch.is_grad_enabled() else "evaluation", 512))
        parameters = [p for p in model.parameters() if p.requires_grad]
        weight = parameters[len(parameters) // 2]
        # Where its gradient arrives: the guard would look at hooks of weights, which may change gradients.
        self.arrival = weight.expand_as(weight).grad_fn.next_functions[0][0]
        self.arrival.register_prehook(lambda _: self._check("backward", 256))

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        self.seconds = kwargs["input_values"].numel() / RATE

    def _check(self, place: str, mib: int) -> None:
        if self.seconds > self.room[place]:
            raise torch.cuda.OutOfMemoryError(MESSAGE.format(mib))

    def on_step_end(self, args: Any, state: Any, *others: Any, **kwargs: Any) -> None:
        if state.global_step == 7:
            print("another process takes memory: 8 s fit a training step now, 13 s evaluation")
            self.room.update(backward=8.0, evaluation=13.0)


class Print(PrinterCallback):  # type: ignore[misc]
    """Prints the log as lines."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        values = {name: logs[name] for name in ("loss", "learning_rate", "eval_loss") if name in logs}
        text = "  ".join(f"{name} {float(v):.4g}" for name, v in values.items())
        if text:
            print(f"step {state.global_step:2}  {text}")


def train(folder: str, short_of_memory: bool) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """The guard, and the weights before and after."""
    rows = [{"audio": {"path": row["audio_filepath"]}, **row} for row in demo_rows()]
    processor = build_processor((row["text"] for row in rows), "tiny-wav2vec2")
    torch.manual_seed(0)
    model = small_model(len(processor.tokenizer), seed=0)
    model.config.apply_spec_augment = False  # what is random differs between micro-batches of other sizes
    start = _flat(model)
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=BATCH,
            max_steps=STEPS,
            learning_rate=2e-2,
            optim="sgd",
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=STEPS,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=[row for row in rows if row["split"] == "train"],  # type: ignore[arg-type]
        eval_dataset=[row for row in rows if row["split"] == "test"][:32],  # type: ignore[arg-type]
        data_collator=CTCCollator(processor),
        callbacks=[FakeMemory(model)] if short_of_memory else [],
    )
    trainer.remove_callback(PrinterCallback)
    if short_of_memory:
        trainer.add_callback(Print())
    guard = ac.ASRConfigManager().attach(trainer)
    trainer.train()
    return guard, start, _flat(model)


def _flat(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def main() -> None:
    """Print the transcript."""
    hf_logging.set_verbosity_error()
    torch.set_num_threads(1)
    log = logging.getLogger("asrconfig_go")
    log.addHandler(logging.StreamHandler(sys.stdout))
    print("# A training that runs out of memory three times\n")
    print(
        "Printed by `python benchmarks/guard_transcript.py`, unedited. The memory is faked by a hook: this is a CPU.\n"
    )
    print("```")
    with tempfile.TemporaryDirectory() as folder:
        guard, start, got = train(folder, short_of_memory=True)
        print(f"\n{guard!r}\n")
        log.setLevel(logging.ERROR)
        _, _, calm = train(str(Path(folder) / "calm"), short_of_memory=False)
    apart = float((got - calm).norm() / (calm - start).norm())
    print(f"trained again with enough memory: final weights {apart:.1e} apart, relative to how far training moved them")
    print("```")


if __name__ == "__main__":
    main()
