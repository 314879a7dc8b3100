"""Predicted against measured GPU memory of real Trainer runs of speech models.

    python benchmarks/gpu/speech_memory.py                 # with a CUDA GPU: measures, prints, writes the results
    python benchmarks/gpu/speech_memory.py --predict L4    # anywhere: the predictions only

Each run is a process of its own, so that no run inherits another's cache. Models are built from their configs with
random weights; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STEPS = 4
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Run:
    """One training to predict and to measure."""

    model: str
    precision: str
    checkpointing: bool
    optimizer: str
    batch: int
    seconds: float

    def __str__(self) -> str:
        checkpointing = " checkpointing" if self.checkpointing else ""
        return f"{self.model} {self.precision}{checkpointing} {self.optimizer} {self.batch} x {self.seconds:g} s"


def runs() -> list[Run]:
    """48 runs: each model in each precision, with the other settings taking turns."""
    models = [
        "facebook/wav2vec2-base",
        "facebook/wav2vec2-xls-r-300m",
        "facebook/hubert-large-ll60k",
        "microsoft/wavlm-base-plus",
        "facebook/w2v-bert-2.0",
        "openai/whisper-tiny",
        "openai/whisper-small",
        "openai/whisper-medium",
    ]
    turns = itertools.cycle(
        [
            ("adamw_torch", 8, 10.0),
            ("adamw_torch_fused", 2, 27.5),
            ("adafactor", 16, 6.3),
            ("sgd", 5, 15.0),
            ("adamw_torch", 1, 20.0),
        ]
    )
    made = []
    for model, precision, checkpointing in itertools.product(models, ("fp32", "fp16", "bf16"), (False, True)):
        optimizer, batch, seconds = next(turns)
        made.append(Run(model, precision, checkpointing, optimizer, batch, seconds))
    return made


def predict(run: Run, gpu: str | None) -> dict[str, int]:
    """Peaks by the traced, the analytic and accelerate's estimate, in bytes."""
    import asrconfig_go as ac

    settings: dict[str, Any] = {
        "batch": run.batch,
        "seconds": run.seconds,
        "precision": run.precision,
        "gradient_checkpointing": run.checkpointing,
        "optimizer": run.optimizer,
        "gpu": gpu,
        "progress": False,
    }
    traced = ac.estimate_memory(run.model, estimator="trace", **settings)
    analytic = ac.estimate_memory(run.model, estimator="analytic", **settings)
    return {
        "allocated": traced.peak_allocated,
        "reserved": traced.peak_reserved,
        "analytic": analytic.peak_reserved,
        # accelerate estimate-memory: four times the float32 weights for training with Adam, and no activations.
        "accelerate": 4 * (ac.profile_model(run.model).parameter_bytes or 0),
    }


def measure(run: Run) -> dict[str, int]:
    """Peaks of a real Trainer run in this process, in bytes."""
    import torch
    from transformers import Trainer, TrainingArguments

    from asrconfig_go.memory.model_source import model_source
    from asrconfig_go.trace import speech_batches

    model = model_source(run.model).model()
    if hasattr(model.config, "layerdrop"):
        model.config.layerdrop = (
            0.0  # the prediction is for the step that drops no layer; four steps might all drop one
        )
    speech = speech_batches(model)
    length = speech.length(run.seconds)
    batch = speech.batch(run.batch, length, speech.labels(run.seconds))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=run.batch,
            max_steps=STEPS,
            fp16=run.precision == "fp16",
            bf16=run.precision == "bf16",
            gradient_checkpointing=run.checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False} if run.checkpointing else None,
            optim=run.optimizer,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        items = [{"index": i} for i in range(run.batch * STEPS)]
        trainer = Trainer(model, arguments, train_dataset=items, data_collator=lambda _: dict(batch))  # type: ignore[arg-type]
        torch.cuda.reset_peak_memory_stats()
        trainer.train()
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def in_a_process(run: Run) -> dict[str, int]:
    """``measure`` in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(dataclasses.asdict(run))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{run}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median and worst error of each estimate, as shares of the measured peak."""
    pairs = {
        "allocated": ("allocated", "allocated"),
        "reserved": ("reserved", "reserved"),
        "analytic": ("analytic", "reserved"),
        "accelerate": ("accelerate", "reserved"),
    }
    found = {}
    for name, (predicted, measured) in pairs.items():
        errors = [abs(r["predicted"][predicted] / r["measured"][measured] - 1) for r in rows]
        found[name] = {"median": statistics.median(errors), "worst": max(errors)}
    return found


def measured_rows() -> list[dict[str, Any]]:
    """Every run, predicted and measured, printed as it comes."""
    rows = []
    for run in runs():
        predicted, measured = predict(run, None), in_a_process(run)
        rows.append({"run": dataclasses.asdict(run), "predicted": predicted, "measured": measured})
        found = "   ".join(
            f"{name} {measured[name] / GIB:7.2f} GiB, predicted {predicted[name] / measured[name]:.4f} of it"
            for name in measured
        )
        print(f"{run!s:74} {found}", flush=True)
    return rows


def machine() -> dict[str, str]:
    """What the figures depend on."""
    import torch
    import transformers

    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.date.today().isoformat(),
    }


def main() -> int:
    """Measure, or predict only, or measure one run for the parent process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", metavar="GPU", help="print predictions for a GPU of the catalogue")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE / "speech_memory.json")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Run(**json.loads(options.one)))))
        return 0
    if options.predict:
        for run in runs():
            peaks = "  ".join(f"{name} {size / GIB:.2f}" for name, size in predict(run, options.predict).items())
            print(f"{run!s:74} {peaks} GiB", flush=True)
        return 0
    import torch

    if not torch.cuda.is_available():
        print("no CUDA GPU here: run this on a machine with one, or see --predict", file=sys.stderr)
        return 1
    rows = measured_rows()
    result = {"machine": machine(), "summary": summary(rows), "runs": rows}
    options.out.write_text(json.dumps(result, indent=1))
    print(json.dumps({"machine": result["machine"], "summary": result["summary"]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
