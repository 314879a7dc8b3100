"""Trainings whose steps a ``StepSampler`` makes, also as the script that each of several processes runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from asrconfig_go.predict import StepSampler
from asrconfig_go.train import use_batches
from tiny_training import leave, tiny_trainer

SAMPLES = 21
DURATIONS = [1.0 + (7 * i) % 11 for i in range(SAMPLES)]
TABLE = [(4.0, 3), (8.0, 2), (12.0, 1)]


def sampler(mode: str = "random", step: int = 4) -> StepSampler:
    return StepSampler(DURATIONS, step, mode=mode, memory=TABLE, seed=11, buckets=2)  # type: ignore[arg-type]


def trainer_with(output: Path, steps: StepSampler, ranks: int = 1, **settings: Any) -> Any:
    """Three epochs on the clips of ``steps``, with a checkpoint after each step."""
    trainer = tiny_trainer(
        output, samples=SAMPLES, per_device_train_batch_size=steps.step_samples // ranks,
        **{"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 1, **settings},
    )  # fmt: skip
    use_batches(trainer, steps)
    return trainer


def main() -> None:
    """Train in this process, again from the checkpoint named, and write what was seen."""
    torch.set_num_threads(1)
    # Older versions of the Trainer load checkpoints to "cpu:0", which torch does not know by itself.
    torch.serialization.register_package(0, lambda _: None, lambda held, where: held if where == "cpu:0" else None)
    output, resume = Path(sys.argv[1]), sys.argv[2]
    seen = []
    for start in (None, str(output / "run" / resume)):
        trainer = trainer_with(output / "run", sampler(sys.argv[3]), int(os.environ["WORLD_SIZE"]))
        trainer.train(resume_from_checkpoint=start)
        seen.append(trainer.model.seen)
        torch.distributed.barrier()
    (output / f"{os.environ['RANK']}.json").write_text(json.dumps(seen))
    leave()


if __name__ == "__main__":
    main()
