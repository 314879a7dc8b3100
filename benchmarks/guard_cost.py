"""What the guard costs: of a step's time, of its memory, and when memory runs out.

    python benchmarks/guard_cost.py [--rounds 100]

A wav2vec2 with 4 layers of 256, batches of 8 clips of 2 s, AdamW, on one thread of the CPU.

- Step time with the guard against without it: steps of the same Trainer by turns, attached and detached; the ratios of
  neighbours, their median and quartiles. The guard's own time is measured alone, too, with the Trainer's work left out:
  two noisy steps cannot resolve it.
- Memory: the bytes of tensors that live at the end of the last forward of a window of 4 batches and do not without the
  guard, against those of the step (weights, gradients, inputs, what autograd keeps).
- Recovery: the time of an optimizer step that meets one error, in the forward or in the backward, against the median
  step: what failed, freeing it, and computing again in halves.

Machines are noisy: repeat, look at quartiles. Exit status 1 when an aim is missed: 1 % of the time by the guard's own
time, 0.1 % of the memory, 3 step times.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from guard_runs import OOM
from transformers import Trainer, TrainingArguments, Wav2Vec2Config, Wav2Vec2ForCTC
from transformers.utils import logging as hf_logging

from asrconfig_go._core.training_session import override
from asrconfig_go.guard import Guard, attach

BATCH, SECONDS = 8, 2
WINDOW = 4  # batches, where memory is measured


class Loop:
    """The Trainer's steps one by one, as its loop takes them."""

    def __init__(self, folder: str) -> None:
        torch.manual_seed(0)
        config = Wav2Vec2Config(
            vocab_size=32,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            conv_dim=(32,) * 7,
            feat_extract_norm="layer",
            do_stable_layer_norm=True,
            layerdrop=0.0,
            apply_spec_augment=False,
            ctc_loss_reduction="mean",
        )
        arguments = TrainingArguments(folder, report_to="none", use_cpu=True, per_device_train_batch_size=BATCH)
        self.trainer = Trainer(Wav2Vec2ForCTC(config), arguments, train_dataset=[{}] * BATCH)  # type: ignore[arg-type]
        self.trainer.create_optimizer_and_scheduler(num_training_steps=10_000)

    def batches(self, count: int) -> list[dict[str, torch.Tensor]]:
        """Random ones."""
        length = SECONDS * 16_000
        return [
            {
                "input_values": torch.randn(BATCH, length),
                "attention_mask": torch.ones(BATCH, length, dtype=torch.long),
                "labels": torch.randint(1, 32, (BATCH, 12)),
            }
            for _ in range(count)
        ]

    def step(self, count: int = 1) -> float:
        """One optimizer step over so many batches; its seconds."""
        trainer, source = self.trainer, iter(self.batches(count))
        trainer.current_gradient_accumulation_steps = count
        begin = time.perf_counter()
        batches, items = trainer.get_batch_samples(source, count, trainer.args.device)
        for batch in batches:
            trainer.training_step(trainer.model, batch, items)
        trainer.optimizer.step()
        trainer.model.zero_grad()
        return time.perf_counter() - begin


def by_turns(loop: Loop, guard: Guard, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of steps without and with the guard."""
    plain, guarded = [], []
    for number in range(rounds):
        for attached in (number % 2 == 0, number % 2 == 1):
            (guard.attach if attached else guard.detach)()
            (guarded if attached else plain).append(loop.step())
    guard.attach()
    return plain, guarded


def own_time(loop: Loop, guard: Guard) -> float:
    """Seconds that the guard itself takes of a step of one batch: what it wraps does nothing."""
    trainer, batches, raw = loop.trainer, loop.batches(1), torch.tensor(1.0)
    guard.detach()
    undo = [
        override(trainer, "get_batch_samples", lambda *_: (batches, None)),
        override(trainer, "compute_loss", lambda *_, **__: raw),
        override(trainer, "training_step", lambda model, inputs, *_: trainer.compute_loss(model, inputs)),
        override(trainer.optimizer, "step", lambda: None),
    ]
    guard.attach()
    took = [loop.step() for _ in range(500)]
    guard.detach()
    for one in reversed(undo):
        one()
    nothing = [_loop_alone(loop) for _ in range(500)]
    guard.attach()
    return statistics.median(took) - statistics.median(nothing)


def _loop_alone(loop: Loop) -> float:
    begin = time.perf_counter()
    loop.trainer.model.zero_grad()
    return time.perf_counter() - begin


class Alive:
    """Bytes of all tensors' storages that live at the end of the last forward."""

    def __init__(self, model: Any) -> None:
        self.on = False
        self.storages: dict[int, int] = {}
        model.register_forward_hook(self._count)

    def _count(self, *_: Any) -> None:
        if self.on:
            gc.collect()
            counts = {}
            for thing in gc.get_objects():
                if type(thing) in (torch.Tensor, torch.nn.Parameter):
                    storage = thing.untyped_storage()
                    counts[storage.data_ptr()] = storage.nbytes()
            self.storages = counts


def memory(loop: Loop, guard: Guard, alive: Alive) -> tuple[int, int]:
    """Bytes that live because of the guard, and those of a step."""
    peaks = []
    for act in (guard.detach, guard.attach):
        act()
        saved: dict[int, int] = {}

        def pack(tensor: torch.Tensor, saved: dict[int, int] = saved) -> torch.Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        loop.step(WINDOW)
        alive.on = True
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loop.step(WINDOW)
        alive.on = False
        peaks.append((sum(alive.storages.values()), sum({**alive.storages, **saved}.values())))
    gradients = sum(p.numel() * p.element_size() for p in loop.trainer.model.parameters() if p.requires_grad)
    return peaks[1][0] - peaks[0][0], peaks[0][1] + gradients


def recovery(loop: Loop, guard: Guard, place: str, rounds: int) -> list[float]:
    """Seconds of steps that meet one error."""
    model = loop.trainer.model
    armed = False

    def fail(*_: Any) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise torch.cuda.OutOfMemoryError(OOM)

    middle = [p for p in model.parameters() if p.requires_grad][50]
    arrival = middle.expand_as(middle).grad_fn.next_functions[0][0]  # the guard would look at hooks of weights
    handle = model.register_forward_hook(fail) if place == "forward" else arrival.register_prehook(fail)
    took = []
    for _ in range(rounds):
        guard.detach()
        guard.budgets["training"].values = None
        guard.attach()
        loop.step()
        armed = True
        took.append(loop.step())
    handle.remove()
    guard.budgets["training"].values = None
    return took


def main() -> int:
    """Print all, with the aims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="steps of each kind")
    options = parser.parse_args()
    hf_logging.set_verbosity_error()
    logging.getLogger("asrconfig_go").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(folder)
        alive = Alive(loop.trainer.model)
        guard = attach(loop.trainer)
        loop.step()
        plain, guarded = by_turns(loop, guard, options.rounds)
        step = statistics.median(plain)
        quartiles = statistics.quantiles([b / a - 1 for a, b in zip(plain, guarded, strict=True)], n=4)
        own = own_time(loop, guard)
        more, full_step = memory(loop, guard, alive)
        lost = {place: recovery(loop, guard, place, max(4, options.rounds // 10)) for place in ("forward", "backward")}
    print(f"a step: {step * 1e3:.0f} ms without the guard")
    print("with it: " + ", ".join(f"{q:+.2%}" for q in quartiles) + " (quartiles and median of neighbours)")
    print(f"the guard's own time: {own * 1e6:.0f} µs a step, {own / step:.3%} of this one, aim 1 %")
    share = f"{more / full_step:.4%} of a step's {full_step / 2**20:.0f} MiB"
    print(f"memory kept by the guard: {more} bytes, {share}, aim 0.1 %")
    good = own / step <= 0.01 and more / full_step <= 0.001
    for place, took in lost.items():
        median = statistics.median(took)
        good &= median <= 3 * step
        print(f"a step with one error in the {place}: {median * 1e3:.0f} ms, {median / step:.2f} step times, aim 3")
    print("aims reached" if good else "MISSED")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
