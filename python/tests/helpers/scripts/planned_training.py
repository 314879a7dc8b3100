"""A speech model trained by a plan that ``launch_files`` wrote, in the processes that its commands start.

``planned_training.py PLAN OUTPUT [way]``: each process writes what has become of it to ``OUTPUT/rank<n>.pt``. The way
``guard`` (default) trains by ``manager.train``, ``plain`` by the Trainer alone. With ``OUTPUT/fail`` there, the second
process ends before its third step, once: by an exception, or by the signal whose number the file has.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager, TrainingConfig
from asrconfig_go.plan import trainer_arguments
from speech_models import Clips, wav2vec2
from tiny_training import leave


class FailsOnce(TrainerCallback):  # type: ignore[misc]
    """Ends a process before its third step, when a file asks for it."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 2 and self.flag.exists() and os.environ.get("RANK") == "1":
            number = self.flag.read_text()
            self.flag.unlink()
            if number:
                os.kill(os.getpid(), int(number))
            raise RuntimeError("asked to end")


def main() -> None:
    plan, output, way = Path(sys.argv[1]), Path(sys.argv[2]), (sys.argv[3:] or ["guard"])[0]
    config = TrainingConfig.load(plan)
    torch.manual_seed(0)
    model = wav2vec2("mean")
    batches: list[int] = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: batches.append(len(kwargs["labels"])) if torch.is_grad_enabled() else None,
        with_kwargs=True,
    )
    arguments = config.to_training_arguments(
        output / "trainer",
        **trainer_arguments(config, model=model),
        optim="sgd",  # AdamW hides gradients of the wrong size
        learning_rate=1e-2,
        max_grad_norm=0.0,
        warmup_steps=0,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=1,
        report_to="none",
        disable_tqdm=True,
    )
    clips = Clips("ctc mean", unequal=True)
    trainer = Trainer(model, arguments, train_dataset=clips, callbacks=[FailsOnce(output / "fail")])
    if way == "guard":
        ASRConfigManager().train(trainer, resume=True)
    else:
        trainer.train()
    found = {
        "weights": torch.cat([p.detach().flatten() for p in model.parameters()]),
        "steps": trainer.state.global_step,
        "batches": batches,
        "rank": int(os.environ.get("RANK", "0")),
        "world": arguments.world_size,
        "distributed": str(trainer.accelerator.distributed_type),
        "environment": {
            name: os.environ.get(name) for name in ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "PYTORCH_ALLOC_CONF")
        },
    }
    torch.save(found, output / f"rank{found['rank']}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    if "TORCHELASTIC_RUN_ID" in os.environ:  # a process of its own, not a worker of Ray
        leave()


if __name__ == "__main__":
    main()
