"""Small trainings in several processes: the script that each process runs, and starting it.

A run is described by a dictionary (see ``DEFAULTS``); each process writes what it has become of into a file. Several
runs may follow each other in the same processes. ``run`` does the same in this process alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments, Wav2Vec2Config, Wav2Vec2ForCTC
from transformers.trainer_callback import PrinterCallback

from asrconfig_go._core.batches import split
from asrconfig_go.guard import attach
from asrconfig_go.predict import StepSampler
from asrconfig_go.train import use_batches
from asrconfig_go.train.planned_batches import use_planned_batches
from cuda_fakes import cuda_has
from speech_models import MODELS, SHAPES, Clips, wav2vec2
from tiny_training import OUT_OF_MEMORY, Regression, leave
from training_fixtures import make_plan

DEFAULTS: dict[str, Any] = {
    "kind": "ctc mean",
    "batch": 4,
    "accumulation": 1,
    "epochs": 2,
    "samples": 16,
    "seed": 0,
    "way": "guard",  # or "plain", or "naive": halves what failed and tries it again
    "options": {},  # of the guard
    "options_of": {},  # of one process, by its number as a text
    "nan": [],  # rows whose input is not finite
    "beyond": [],  # rows with a label that is beyond the vocabulary, on which Whisper raises an IndexError
    "fails": {},  # what Failing takes, by the number of the process
    "arguments": {},  # of the Trainer, more than those below
    "predict": False,
    "shares": None,  # clips of each process in a step of a StepSampler; [] for even ones, or see share_steps
    "caught": False,  # an error of the training is part of the result, and the next run may follow
}
RATES = {"ctc sum": 1e-4}  # a sum over samples is large


class Failing:
    """Fails in a model's forward or in the middle of its backward while a batch has more than ``over`` samples.

    ``after`` batches pass first.
    """

    def __init__(self, model: Any, place: str, over: int = 2, error: str = "memory", after: int = 0) -> None:
        self.place, self.over, self.error, self.left, self.size = place, over, error, after, 0
        if place in ("forward", "backward", "evaluation"):
            model.register_forward_pre_hook(self._begin, with_kwargs=True)
        if place in ("forward", "evaluation"):
            # In a step both are true, in evaluation none.
            trains = place == "forward"
            model.register_forward_hook(lambda *_: self.fail(model.training is torch.is_grad_enabled() is trains))
        if place == "backward":
            trained = [p for p in model.parameters() if p.requires_grad]
            weight = trained[len(trained) // 2]
            # Where its gradient arrives, as DDP does it: hooks of weights would be looked at by the guard.
            self.arrival = weight.expand_as(weight).grad_fn.next_functions[0][0]
            self.arrival.register_prehook(lambda _: self.fail(model.training))

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        self.size = len(kwargs["labels"])

    def fail(self, here: bool) -> None:
        self.left -= here
        if not here or self.size <= self.over or self.left >= 0:
            return
        if self.error == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        errors = {"memory": torch.cuda.OutOfMemoryError(OUT_OF_MEMORY), "interrupt": KeyboardInterrupt()}
        raise errors.get(self.error) or KeyError(self.error)


class NaiveHalving(Trainer):  # type: ignore[misc]
    """Halves the batch that failed and tries it again, as loops found in the wild do."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        size = len(inputs["labels"])
        while True:
            try:
                return sum(
                    super(NaiveHalving, self).training_step(model, p, *args, **kwargs) for p in split(inputs, size)
                )
            except torch.cuda.OutOfMemoryError:
                size = max(1, size // 2)


class PartlyUsed(Regression):
    """The first process alone uses all weights."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = torch.nn.Linear(6, 1)

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        """Loss and predictions."""
        found = super().forward(x, labels, index)
        if os.environ.get("RANK", "0") == "0":
            found["loss"] = found["loss"] + self.spare(x).square().mean()
        return found


def larger() -> Any:
    """Enough weights for their average to take time."""
    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
    return Wav2Vec2ForCTC(Wav2Vec2Config(**{**wav2vec2("mean").config.to_dict(), **size}))


def share_steps(trainer: Any, spec: dict[str, Any]) -> None:
    """Steps of a StepSampler, by ``shares``; those of a plan for a T4 and a V100 that CUDA has as (names, UUIDs)."""
    seconds = array("d", (1.0 + (7 * i) % 11 for i in range(spec["samples"])))
    if not isinstance(spec["shares"], dict):
        steps = StepSampler(seconds, 2 * spec["batch"], seed=spec["seed"])
        use_batches(trainer, steps, spec["shares"] or None)
        return
    rest = {"index": 0, "micro_batch_size": 2, "peak_bytes": 1, "budget_bytes": 9}
    devices = [
        {"uuid": "GPU-t", "name": "Tesla T4", "samples": 2, **rest},
        {"uuid": "GPU-v", "name": "V100", "samples": 6, **rest},
    ]
    plan = make_plan(micro_batching="memory", length_handling="random", devices=devices)
    with pytest.MonkeyPatch.context() as patch:
        cuda_has(patch, *((name, uuid, 10) for name, uuid in spec["shares"].items()))
        use_planned_batches(attach(trainer), plan, seconds)


def counting(trainer: Any) -> list[int]:
    """The clips of each window that ``trainer`` will be given."""
    given: list[int] = []
    fetch = trainer.get_batch_samples

    def get_batch_samples(*args: Any, **kwargs: Any) -> Any:
        batches, items = fetch(*args, **kwargs)
        given.append(sum(len(batch["labels"]) for batch in batches))
        return batches, items

    trainer.get_batch_samples = get_batch_samples
    return given


def flat(model: Any) -> Any:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def run(described: dict[str, Any], folder: str) -> dict[str, Any]:
    """One training; what became of it."""
    spec = {**DEFAULTS, **described}
    torch.manual_seed(spec["seed"])
    kind, rank = spec["kind"], os.environ.get("RANK", "0")
    model = {**MODELS, "partly used": PartlyUsed, "larger": larger}[kind]()
    start = flat(model)
    seen: list[int] = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["labels"])) if torch.is_grad_enabled() else None,
        with_kwargs=True,
    )
    failing = Failing(model, **spec["fails"][rank]) if rank in spec["fails"] else None
    arguments = TrainingArguments(
        folder,
        **{
            "per_device_train_batch_size": spec["batch"],
            "per_device_eval_batch_size": spec["batch"],
            "gradient_accumulation_steps": spec["accumulation"],
            "num_train_epochs": spec["epochs"],
            "learning_rate": RATES.get(kind, 1e-2),
            "optim": "sgd",  # AdamW hides gradients of the wrong size
            "max_grad_norm": 0.0,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "ddp_backend": "gloo" if "RANK" in os.environ else None,
            "disable_tqdm": True,
            "seed": spec["seed"],
            **spec["arguments"],
        },
    )
    SHAPES["larger"] = ("input_values", (16, 2000))
    clips = Clips("regression" if kind == "partly used" else kind, unequal=True)
    clips.items = clips.items[: spec["samples"]]
    for row in spec["nan"]:
        clips.items[row] = {n: v if n == "labels" else v * float("nan") for n, v in clips.items[row].items()}
    for row in spec["beyond"]:
        clips.items[row]["labels"][0] = 10_000

    def collate(items: list[Any]) -> Any:
        if failing and failing.place == "collator":
            failing.size = len(items)
            failing.fail(torch.is_grad_enabled())
        return torch.utils.data.default_collate(items)

    kind_of_trainer = NaiveHalving if spec["way"] == "naive" else Trainer
    trainer = kind_of_trainer(model, arguments, train_dataset=clips, eval_dataset=clips, data_collator=collate)
    trainer.remove_callback(PrinterCallback)
    guard = None
    if spec["way"] == "guard":
        guard = attach(trainer, **spec["options"], **spec["options_of"].get(rank, {}))
    found: dict[str, Any] = {"start": start}
    if spec["shares"] is not None:
        share_steps(trainer, spec)
        found["given"] = counting(trainer)
    if spec["predict"]:
        got = trainer.predict(clips)
        found |= {"predictions": got.predictions, "labels": got.label_ids, "loss": got.metrics["test_loss"]}
    else:
        try:
            found["seconds"] = trainer.train().metrics["train_runtime"]
        except Exception as error:
            if not spec["caught"]:
                raise
            return {"error": f"{type(error).__name__}: {error}"}
    events = [(e.place, e.micro_batch_before, e.micro_batch_after) for e in guard.events] if guard else []
    rule = (guard.rule, guard.knows_rule) if guard else None
    log = [{n: e[n] for n in ("loss", "grad_norm", "train_loss") if n in e} for e in trainer.state.log_history]
    found |= {"weights": flat(model), "seen": seen, "events": events, "log": log, "rule": rule}
    named = [[clip.row for clip in batch.clips] for batch in guard.bad_batches] if guard else []
    return found | {"steps": trainer.state.global_step, "named": named, "left_out": guard.bad_clips if guard else 0}


def launch(
    runs: Sequence[dict[str, Any]], folder: Path, limit_s: float = 60, launcher: Sequence[str] = ()
) -> tuple[int | None, str, float]:
    """Train in two fresh processes: exit status (None when it took too long and was killed), output, seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "runs.json").write_text(json.dumps(list(runs)), encoding="utf-8")
    start = launcher or ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    begin = time.monotonic()
    with (folder / "output.txt").open("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *start, str(Path(__file__).resolve()), str(folder)],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status = None
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return status, (folder / "output.txt").read_text(encoding="utf-8"), time.monotonic() - begin


def results(folder: Path, count: int) -> list[list[dict[str, Any]]]:
    """What became of each run, in both processes."""
    return [[torch.load(folder / f"{i}-{rank}.pt", weights_only=False) for rank in range(2)] for i in range(count)]


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    for i, described in enumerate(json.loads((folder / "runs.json").read_text(encoding="utf-8"))):
        torch.save(run(described, str(folder / "trainer")), folder / f"{i}-{os.environ['RANK']}.pt")
    leave()


if __name__ == "__main__":
    main()
