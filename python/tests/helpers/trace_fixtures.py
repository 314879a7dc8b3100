"""Small speech models, and a plain recorder of what a real run on the CPU allocates, to compare traces with."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from asrconfig_go.trace import Trace, _kernels
from asrconfig_go.trace._autograd import ADD, Accumulation, DirectMode
from asrconfig_go.trace._calls import in_backward
from asrconfig_go.trace._mode import IN_PLACE_IN_BACKWARD, in_allocation_order
from asrconfig_go.trace.event_log import EventLog
from asrconfig_go.trace.recorder import _foreach_as_on_cuda

Birth = tuple[str, int]  # operation, bytes

ENCODER = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 40,
    "layerdrop": 0.0,
    "ctc_loss_reduction": "mean",
    "attn_implementation": "eager",
    "mask_time_prob": 0.0,  # SpecAugment's masks count as full in a trace: test_trace_kernels
}
WAVEFORM = {
    **ENCODER,
    "conv_dim": (32,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def wav2vec2(**changes: Any) -> Any:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    settings = {**WAVEFORM, "feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True, **changes}
    return Wav2Vec2ForCTC(Wav2Vec2Config(**settings))


def wavlm() -> Any:
    from transformers import WavLMConfig, WavLMForCTC

    return WavLMForCTC(WavLMConfig(**WAVEFORM))


def data2vec() -> Any:
    from transformers import Data2VecAudioConfig, Data2VecAudioForCTC

    return Data2VecAudioForCTC(Data2VecAudioConfig(**{**WAVEFORM, "num_conv_pos_embeddings": 5}))


def w2v_bert() -> Any:
    from transformers import Wav2Vec2BertConfig, Wav2Vec2BertForCTC

    return Wav2Vec2BertForCTC(Wav2Vec2BertConfig(**ENCODER, conv_depthwise_kernel_size=7))


def whisper(**changes: Any) -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    shape = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in _WHISPER.items()}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    settings = {
        "d_model": 64,
        "max_source_positions": 100,
        "vocab_size": 200,
        "attn_implementation": "eager",
        **changes,
    }
    return WhisperForConditionalGeneration(WhisperConfig(**shape, **tokens, **settings))


_WHISPER = {"layers": 2, "attention_heads": 4, "ffn_dim": 128}


def checkpointed(make: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        model = make()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.config.use_cache = False
        return model

    return made


def trace_births(trace: Trace, kind: str) -> list[list[Birth]]:
    """Births of each segment of a kind, without inputs and workspaces."""
    found = []
    for segment in trace.segments:
        if segment["kind"] == kind:
            sizes = [e for e in segment["events"] if e >= 0]
            named = zip(segment["op"], sizes, segment["tag"], strict=True)
            births = [(trace.ops[op], size, trace.tags[tag]) for op, size, tag in named]
            found.append([(op, size) for op, size, tag in births if tag != "workspace" and op != "to"])
    return found


class RealRun(DirectMode):
    """Writes down each new storage of a computation that really happens."""

    def __init__(self) -> None:
        super().__init__()
        self.births: list[list[Birth]] = [[]]
        self.watching = False
        self._living: dict[int, weakref.ref[Any]] = {}
        self._sums = Accumulation()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op is ADD and self._sums.in_place(args, kwargs or {}):
            return args[0].add_(args[1])
        out = (IN_PLACE_IN_BACKWARD.get(op, op) if in_backward() else op)(*args, **(kwargs or {}))
        if self.watching:
            given = {t.untyped_storage()._cdata for t in _tensors((args, kwargs))}
            made = _tensors(out)
            for tensor in in_allocation_order(op, args, made):
                if tensor.untyped_storage()._cdata not in given:
                    self._add(tensor.untyped_storage(), str(op))
        return out

    def _add(self, storage: Any, op: str) -> None:
        key = storage._cdata
        if key not in self._living and storage.nbytes():
            self.births[-1].append((op, storage.nbytes()))
            self._living[key] = weakref.ref(storage, lambda _: self._living.pop(key))


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def real_births(
    make: Callable[[], Any], batch: dict[str, torch.Tensor], dtype: torch.dtype | None
) -> list[list[Birth]]:
    """Births of two micro-batches of a run that computes every value, with the kernels that the recorder has."""
    model = make().train()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    library = _kernels.register((8, 0), EventLog(lambda: ("", "")))
    try:
        with _foreach_as_on_cuda(), RealRun() as run:
            for _ in range(2):
                run.watching = True
                with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                    loss = model(**batch).loss
                loss.backward()
                run.watching = False
                optimizer.step()
                optimizer.zero_grad()
                run.births.append([])
    finally:
        library._destroy()
    births: list[list[Birth]] = run.births[:2]
    return births


def as_recorded(trace: Any) -> list[Any]:
    """The segments without the order of frees between two allocations, which says nothing."""
    found = []
    for segment in trace.segments:
        gaps: list[list[int]] = [[]]
        for event in segment["events"]:
            gaps[-1].append(event) if event < 0 else gaps.append([event])
        found.append({**segment, "events": [gap[:1] + sorted(gap[1:]) for gap in gaps]})
    return found
