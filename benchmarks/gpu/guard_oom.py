"""Real out-of-memory errors on a GPU under the guard: 20 trainings that must finish as if there had been none.

    python benchmarks/gpu/guard_oom.py                 # with a CUDA GPU
    python benchmarks/gpu/guard_oom.py --device cpu    # anywhere: the same with tiny models and errors from a hook

XLS-R-300M and Whisper-small from their configs with random weights, dropout off, fp16 and bf16 with gradient
checkpointing, batches of 16. Each run is a process of its own. It trains once with all the memory there is, and then
again with ``torch.cuda.set_per_process_memory_fraction``: what micro-batches of one clip take and a twentieth of it,
and a share of what the whole batch takes beyond that. fp16 begins with so small a scale that no gradient overflows: a
smaller micro-batch overflows later, so that another step would be skipped. A run is good when

- it met an error and took all its steps;
- after each error no more was allocated than when the step began, up to 64 MiB, gradients not counted;
- the GradScaler's scale and growth tracker are those of the first training.

How far the final weights are from the first training's is shown beside it; 16-bit arithmetic rounds at 1e-3. Exit
status 1 when not all runs are good.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MIB = 2**20
STEPS, BATCH, SLACK, FRAGMENTS, SCALE = 8, 16, 64 * MIB, 1.05, 16.0
SHARES = (0.9, 0.7, 0.5, 0.35, 0.25)
NAMES = {"XLS-R-300M": "facebook/wav2vec2-xls-r-300m", "Whisper-small": "openai/whisper-small"}
TINY = {"XLS-R-300M": "ctc mean", "Whisper-small": "whisper"}


@dataclasses.dataclass(frozen=True)
class Run:
    """One training. ``share``: of the memory that a batch takes beyond one clip, given to it."""

    model: str
    precision: str
    share: float
    device: str

    def __str__(self) -> str:
        return f"{self.model} {self.precision}, {self.share:.0%} of the memory"


def runs(device: str) -> list[Run]:
    """20 of them; on the CPU there is no fp16 with a scaler, and five shares of one precision are enough."""
    precisions = ("fp16", "bf16") if device == "cuda" else ("fp32",)
    return [Run(*row, device) for row in itertools.product(NAMES, precisions, SHARES)]


def build(run: Run) -> Any:
    """The model, without anything random."""
    import torch

    torch.manual_seed(0)
    if run.device == "cpu":
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "tests" / "helpers"))
        from speech_models import MODELS

        return MODELS[TINY[run.model]]()
    from asrconfig_go.trace.model import Model

    with torch.device("meta"):
        model = Model.of(NAMES[run.model]).build()
    config = model.config
    for name in list(vars(config)):
        if name.endswith(("dropout", "layerdrop")) or name in ("mask_time_prob", "mask_feature_prob"):
            setattr(config, name, 0.0)
    config.apply_spec_augment, config.ctc_loss_reduction = False, "mean"
    return type(model)(config)


def batch_of(run: Run, model: Any, number: int) -> dict[str, Any]:
    """Clips of 4 to 12 s (Whisper pads all to 30 s) with 10 to 60 labels, the same for each number."""
    import torch

    source = torch.Generator().manual_seed(number)
    scale = 16_000 if run.device == "cuda" else 100
    lengths = torch.randint(4 * scale, 12 * scale, (BATCH,), generator=source)
    most = 60 if run.device == "cuda" else 4
    labels = torch.randint(3, 8 if run.device == "cpu" else 30, (BATCH, most), generator=source)
    for row, count in zip(labels, torch.randint(most // 6 + 1, most + 1, (BATCH,), generator=source), strict=True):
        row[int(count) :] = -100
    if run.model == "Whisper-small":
        frames, bins = model.config.max_source_positions * 2, model.config.num_mel_bins
        return {"input_features": torch.randn(BATCH, bins, frames, generator=source), "labels": labels}
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return {"input_values": torch.randn(mask.shape, generator=source) * mask, "attention_mask": mask, "labels": labels}


class Watch(logging.Handler):
    """Compares what is allocated behind each error with what was when its step began."""

    def __init__(self, model: Any) -> None:
        super().__init__(logging.WARNING)
        self.model, self.before, self.most = model, 0, 0

    def allocated(self) -> int:
        """Bytes, without gradients."""
        import torch

        gradients = sum(p.grad.numel() * p.grad.element_size() for p in self.model.parameters() if p.grad is not None)
        return torch.cuda.memory_allocated() - gradients if torch.cuda.is_available() else 0

    def emit(self, record: logging.LogRecord) -> None:
        """The guard says that something did not fit, after it has freed it."""
        if "repeated" in record.getMessage():
            self.most = max(self.most, self.allocated() - self.before)


def train(run: Run, short: bool) -> dict[str, Any]:
    """One training in this process; with ``short`` on the CPU a hook raises."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from asrconfig_go.guard import attach

    model = build(run)
    start = flat(model)
    watch = Watch(model)

    class Begin(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            watch.before = watch.allocated()

    if short and run.device == "cpu":
        model.register_forward_hook(failing(run), with_kwargs=True)
    checkpointing = run.device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            max_steps=STEPS,
            learning_rate=1e-5,
            fp16=run.precision == "fp16",
            bf16=run.precision == "bf16",
            gradient_checkpointing=checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
            use_cpu=run.device == "cpu",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        items = [{"index": i} for i in range(BATCH * STEPS)]
        numbers = itertools.count()
        trainer = Trainer(
            model,
            arguments,
            train_dataset=items,  # type: ignore[arg-type]
            data_collator=lambda _: batch_of(run, model, next(numbers)),
            callbacks=[Begin()],
        )
        scaler = getattr(trainer.accelerator, "scaler", None)
        if scaler is not None:
            scaler._init_scale = SCALE
        guard = attach(trainer)
        logging.getLogger("asrconfig_go").addHandler(watch)
        trainer.train()
        logging.getLogger("asrconfig_go").removeHandler(watch)
        peak = torch.cuda.max_memory_allocated() if run.device == "cuda" else 0
        one_clip = peak if short or not peak else peak_of_one_clip(trainer, batch_of(run, model, 0))
    state = scaler.state_dict() if scaler is not None else {}
    return {
        "errors": len(guard.events),
        "steps": trainer.state.global_step,
        "kept": watch.most,
        "scaler": [state.get("scale"), state.get("_growth_tracker")],
        "start": start,
        "end": flat(model),
        "one_clip": one_clip,
        "peak": peak,
    }


def peak_of_one_clip(trainer: Any, batch: dict[str, Any]) -> int:
    """The peak of allocated memory while a second micro-batch of one clip adds to gradients."""
    import torch

    one = {name: tensor[:1] for name, tensor in batch.items()}
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        trainer.training_step(trainer.model, dict(one), torch.tensor(1, device="cuda"))
    return int(torch.cuda.max_memory_allocated())


def flat(model: Any) -> Any:
    """All weights, on the CPU."""
    import torch

    return torch.cat([p.detach().flatten().cpu() for p in model.parameters()])


def failing(run: Run) -> Any:
    """A hook that raises when a micro-batch holds more than the run's share of a whole batch."""
    import torch

    def hook(model: Any, args: Any, kwargs: Any, output: Any) -> None:
        if model.training and len(kwargs["labels"]) > run.share * BATCH:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    return hook


def measure(run: Run) -> dict[str, Any]:
    """Both trainings in this process, and what differs."""
    import torch

    calm = train(run, short=False)
    gc.collect()
    if run.device == "cuda":
        torch.cuda.empty_cache()
        least = FRAGMENTS * calm["one_clip"]
        limit = least + run.share * (calm["peak"] - least)
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    got = train(run, short=True)
    apart = float((got["end"] - calm["end"]).norm() / (calm["end"] - calm["start"]).norm())
    good = got["errors"] > 0 and got["steps"] == calm["steps"] == STEPS
    good = good and got["kept"] <= SLACK and got["scaler"] == calm["scaler"] and apart == apart
    found = {name: got[name] for name in ("errors", "steps", "kept", "scaler")}
    found |= {name: calm[name] for name in ("one_clip", "peak")}
    return {**found, "calm_scaler": calm["scaler"], "apart": apart, "good": good}


def in_a_process(run: Run, timeout: float = 900) -> dict[str, Any]:
    """``measure`` in a process of its own; one that dies is not good."""
    command = [sys.executable, __file__, "--one", json.dumps(dataclasses.asdict(run))]
    try:
        threads = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=threads)
    except subprocess.TimeoutExpired:
        return {"good": False, "died": f"no end after {timeout:.0f} s"}
    if done.returncode:
        return {"good": False, "died": (done.stderr.strip().splitlines() or ["?"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def line(run: Run, found: dict[str, Any]) -> str:
    """A row of the table."""
    verdict = "good" if found["good"] else "BAD"
    if "died" in found:
        return f"| {run} | died: {found['died']} | | | | | {verdict} |"
    scaler = f"{found['scaler']}, calm {found['calm_scaler']}" if found["scaler"][0] is not None else "none"
    kept = f"{found['kept'] / MIB:.1f} MiB"
    cells = [found["errors"], f"{found['steps']}/{STEPS}", kept, scaler, f"{found['apart']:.1e}", verdict]
    return f"| {run} | {' | '.join(map(str, cells))} |"


def main() -> int:
    """All runs, or one for the parent process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Run(**json.loads(options.one)))))
        return 0
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA GPU here: run this on a machine with one, or see --device cpu", file=sys.stderr)
        return 1
    print("| run | errors | steps | kept after an error | scale, growth tracker | weights apart | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    good = 0
    todo = runs(options.device)
    for run in todo:
        found = in_a_process(run)
        good += found["good"]
        print(line(run, found), flush=True)
    print(f"\n{good} of {len(todo)} runs are good")
    return int(good < len(todo))


if __name__ == "__main__":
    sys.exit(main())
