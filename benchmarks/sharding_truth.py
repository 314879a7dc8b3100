"""What two real processes keep of a model under DDP, ZeRO and FSDP, beside what core/memory/sharding says.

    python benchmarks/sharding_truth.py [--only ddp,zero2] [--precision fp32,bf16] [--processes 2]

A small wav2vec2 with AdamW on the CPU (gloo). Each process steps three times through the engine as it is set up under
the Trainer: DDP as transformers makes it, FSDP2 by accelerate's own ``fsdp2_prepare_model``, DeepSpeed by what
``launch_files`` writes (where it is installed; otherwise left out). The profiler records every allocation of PyTorch's
CPU allocator, C++ included. The third step is compared with the formula in the first process:

- after its backward pass: parameters, gradients and optimizer state as Python knows them, and all that is allocated,
  for DDP its buckets, of which Python knows nothing. Buffers of the backward pass are not there any more;
- its peak, less the peak of a process alone: what ``Difference`` is for. The formula leaves out that other engines
  compute in other types, and so have other activations.

Gloo's own buffers lie outside of the allocator, as NCCL's do on a GPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

from asrconfig_go._core import native
from asrconfig_go._core.declared import REDUCE_BUCKET
from asrconfig_go.plan import launch_arguments, layer_classes

STRATEGIES = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LAYERS, HIDDEN = 6, 384


def small_model() -> Any:
    """11 M parameters, of which a layer has 1.8 M; no randomness in its steps."""
    torch.manual_seed(0)
    still = dict.fromkeys((f"{where}_dropout" for where in ("hidden", "attention", "feat_proj", "activation")), 0.0)
    return Wav2Vec2ForCTC(
        Wav2Vec2Config(
            hidden_size=HIDDEN,
            intermediate_size=4 * HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=6,
            conv_dim=(64,) * 7,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=16,
            feat_extract_norm="layer",
            do_stable_layer_norm=True,
            mask_time_prob=0.0,
            layerdrop=0.0,
            **still,
        )
    )


def batch() -> dict[str, Any]:
    """A tenth of a second: states are to be seen, not activations."""
    torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    return {"input_values": torch.randn(1, 1600), "labels": torch.tensor([[1, 2]])}


Engine = tuple[Callable[[], Any], Callable[[], None], Callable[[], dict[str, list[Any]]]]
"""Forward and backward, the optimizer's step, and the tensors kept."""


def plain(model: Any, precision: str, wrap: Callable[[Any], Any]) -> Engine:
    wrapped = wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)

    def backward() -> None:
        with torch.autocast("cpu", TYPES[precision], enabled=precision != "fp32"):
            loss = wrapped(**batch()).loss
        loss.backward()

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    def kept() -> dict[str, list[Any]]:
        parameters = list(wrapped.parameters())
        state = [v for values in optimizer.state.values() for v in values.values()]
        return {"parameters": parameters, "gradients": [p.grad for p in parameters], "optimizer": state}

    return backward, step, kept


def ddp(model: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def fsdp(precision: str) -> Callable[[Any], Any]:
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    def wrap(model: Any) -> Any:
        model.get_input_embeddings = lambda: None  # wav2vec2 raises, which accelerate 1.15 does not expect
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="TRANSFORMER_BASED_WRAP",
            transformer_cls_names_to_wrap=list(layer_classes(model)),
            reshard_after_forward=True,
        )
        mixed = "no" if precision == "fp32" else precision
        if mixed != "no":
            plugin.set_mixed_precision(mixed)
        stub = SimpleNamespace(
            state=SimpleNamespace(fsdp_plugin=plugin),
            mixed_precision=mixed,
            is_main_process=False,
            device=torch.device("cpu"),
            torch_device_mesh=None,
        )
        return fsdp2_prepare_model(stub, model)

    return wrap


def deepspeed(stage: int) -> Callable[[Any, str], Engine]:
    def build(model: Any, precision: str) -> Engine:
        import deepspeed as library

        settings = launch_arguments.deepspeed_config(stage)
        settings |= {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0}
        settings.pop("train_batch_size")
        settings["fp16"]["enabled"], settings["bf16"]["enabled"] = False, precision == "bf16"
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        engine, *_ = library.initialize(model=model, optimizer=optimizer, config=settings)

        def backward() -> None:
            inputs = batch()
            inputs["input_values"] = inputs["input_values"].to(TYPES[precision])
            engine.backward(engine(**inputs).loss)

        return backward, engine.step, lambda: held_by_deepspeed(engine, stage)

    return build


def held_by_deepspeed(engine: Any, stage: int) -> dict[str, list[Any]]:
    zero = engine.optimizer
    state = [v for values in zero.optimizer.state.values() for v in values.values()]
    if stage == 3:
        parameters = [p.ds_tensor for p in engine.module.parameters()]
        return {
            "parameters": parameters,
            "gradients": [zero.grad_partitions_flat_buffer],
            "optimizer": [*state, *zero.fp32_partitioned_groups_flat],
        }
    averaged = [g for group in zero.averaged_gradients.values() if group for g in group]
    gradients = averaged if stage == 2 else [*averaged, *(p.grad for p in engine.module.parameters())]
    return {
        "parameters": list(engine.module.parameters()),
        "gradients": gradients,
        "optimizer": [*state, *zero.single_partition_of_fp32_groups],
    }


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Of distinct storages; of a DTensor this process's own part."""
    local = [getattr(t, "_local_tensor", t) for t in tensors if isinstance(t, torch.Tensor)]
    return sum({s.data_ptr(): s.nbytes() for t in local if (s := t.untyped_storage()).nbytes()}.values())


def measured(strategy: str, precision: str) -> dict[str, Any]:
    """In this process."""
    builders: dict[str, Callable[[Any, str], Engine]] = {
        "none": lambda m, p: plain(m, p, lambda same: same),
        "ddp": lambda m, p: plain(m, p, ddp),
        "fsdp": lambda m, p: plain(m, p, fsdp(p)),
        **{f"zero{stage}": deepspeed(stage) for stage in (1, 2, 3)},
    }
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        model = small_model()
        facts = counts(model)
        backward, step, sharded = builders[strategy](model, precision)
        del model
        for _ in range(2):
            backward()
            step()
        before = alive()
        with record_function("mark:begin"):
            pass
        backward()
        with record_function("mark:backward"):
            pass
        after, parts = alive(), {name: storage_bytes(tensors) for name, tensors in sharded().items()}
        step()
    sizes = curve(recorded)
    if strategy not in ("none", "ddp"):
        # Gloo's threads free tensors, which the profiler does not see: it is believed for what is new in a step only.
        sizes = {"peak": before + sizes["peak"] - sizes["begin"], "backward": after}
    return {**facts, "parts": parts, **sizes}


def alive() -> int:
    """Bytes of all tensors that Python knows."""
    gc.collect()
    return storage_bytes(o for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter))


def counts(model: Any) -> dict[str, int]:
    layer = sum(p.numel() for p in model.wav2vec2.encoder.layers[0].parameters())
    total = sum(p.numel() for p in model.parameters())
    return {"parameters": total, "largest_block": layer, "outside": total - LAYERS * layer}


def curve(recorded: Any) -> dict[str, int]:
    """Bytes allocated at the marks, and the highest between them."""
    events = sorted(recorded.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    now = peak = 0
    sizes: dict[str, int] = {}
    for event in events:
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
        elif event.name().startswith("mark:"):
            name = event.name()[5:]
            if name == "begin":
                peak = now
            sizes |= {name: now, "peak": peak}
    return sizes


def predicted(strategy: str, precision: str, processes: int, facts: dict[str, Any]) -> dict[str, Any]:
    total = facts["parameters"]
    return native.call(
        "memory.sharding",
        {
            "strategy": strategy,
            "devices": processes,
            "precision": precision,
            "parameters": total,
            "trainable": total,
            "parameter_bytes": 4 * total,
            "gradient_bytes": 4 * total,
            "optimizer_bytes": 8 * total,
            "largest_block": facts["largest_block"],
            "outside": facts["outside"],
        },
    )


def worker(strategy: str, precision: str, file: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sizes = measured(strategy, precision)
    if dist.get_rank() == 0:
        file.write_text(json.dumps(sizes))
    dist.barrier()
    dist.destroy_process_group()


def launched(strategy: str, precision: str, processes: int, folder: Path) -> dict[str, Any] | str:
    file = folder / f"{strategy}-{precision}.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += [__file__, "--worker", strategy, precision, str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    return json.loads(file.read_text()) if file.exists() else done.stderr[-2000:]


def mb(size: float) -> str:
    return f"{size / 1e6:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(STRATEGIES[1:]))
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker[0], arguments.worker[1], Path(arguments.worker[2]))
        return
    print("MB of the first process, measured / by the formula. Peak: more than a process alone.")
    print("| strategy | precision | parameters | gradients | optimizer | all after backward | peak |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for precision in arguments.precision.split(","):
            alone = launched("none", precision, 1, Path(folder))
            assert isinstance(alone, dict), alone
            row("none", precision, 1, alone, alone)
            for strategy in arguments.only.split(","):
                if strategy.startswith("zero") and importlib.util.find_spec("deepspeed") is None:
                    print(f"| {strategy} | {precision} | deepspeed is not installed |")
                    continue
                sizes = launched(strategy, precision, arguments.processes, Path(folder))
                if isinstance(sizes, str):
                    print(f"| {strategy} | {precision} | failed |\n{sizes}")
                    continue
                row(strategy, precision, arguments.processes, sizes, alone)


def row(strategy: str, precision: str, processes: int, sizes: dict[str, Any], alone: dict[str, Any]) -> None:
    wanted = predicted(strategy, precision, processes, sizes)
    nothing = predicted("none", precision, processes, sizes)
    parts = sizes["parts"]
    cells = [f"{mb(parts[name])} / {mb(wanted[name])}" for name in ("parameters", "gradients", "optimizer")]
    # ZeRO-3's bucket stays; buckets and gathered layers of the others come and go.
    stays = {"ddp": wanted["buffers"], "zero3": REDUCE_BUCKET * TYPES[precision].itemsize}
    resident = wanted["total"] - wanted["buffers"] + stays.get(strategy, 0)
    cells.append(f"{mb(sizes['backward'])} / {mb(resident)}")
    cells.append(f"{mb(sizes['peak'] - alone['peak'])} / {mb(wanted['total'] - nothing['total'])}")
    print(f"| {strategy} | {precision} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
