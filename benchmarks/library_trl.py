"""Trainers of TRL."""

from __future__ import annotations

import atexit
import functools
import importlib
import random
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from library_adapters import VOCABULARY, language_model
from library_memory import ROWS, Kind, Shape
from library_optimizers import (
    _class,
)
from library_trainers import (
    arguments,
)


@functools.cache
def tokenizer() -> Any:
    """A word for each number below ``VOCABULARY``."""
    words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, VOCABULARY))]
    tokenizers = importlib.import_module("tokenizers")
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w3")
    base = tokenizers.Tokenizer(model)
    base.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = importlib.import_module("transformers").PreTrainedTokenizerFast
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "w3"}
    return fast(tokenizer_object=base, chat_template=template, **names)


@functools.cache
def _saved(kind: str) -> str:
    """A folder with a tiny Llama, from which TRL loads references."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with torch.random.fork_rng():  # the first run draws what later ones draw
        torch.manual_seed(0)
        language_model(kind).save_pretrained(folder)
    return folder


def texts(count: int, seed: int, longest: int = 8, shortest: int = 2) -> list[str]:
    """Sentences of unequal length."""
    source = random.Random(seed)
    lengths = [source.randint(shortest, longest) for _ in range(count)]
    return [" ".join(f"w{source.randrange(3, VOCABULARY)}" for _ in range(length)) for length in lengths]


def table(**columns: Any) -> Any:
    return importlib.import_module("datasets").Dataset.from_dict(columns)


def distinct_tokens(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """A reward: how many different tokens there are, and something that does not tie."""
    return [len(set(ids)) + sum(ids) / 1000 for ids in completion_ids]


def trl(
    trainer: str,
    rows: Callable[[], Any],
    *,
    config: str = "",
    model: str = "LlamaForCausalLM",
    extras: Callable[[], dict[str, Any]] = dict,
    callbacks: Callable[[], list[Any]] = list,
    rate: float = 0.05,
    draws: bool = False,
    **settings: Any,
) -> Kind:
    """A trainer of TRL and its config, by the beginning of their names, on the tiny Llama."""
    trainer_class, config_class = _class(f"trl.{trainer}Trainer"), _class(f"trl.{config or trainer}Config")

    def build(shape: Shape, folder: str) -> Any:
        llama = language_model(model, **({"num_labels": 1} if "Classification" in model else {}))
        llama.config._name_or_path = _saved(model)
        torch.manual_seed(0)
        return trainer_class(
            model=llama,
            args=arguments(shape, folder, config_class, learning_rate=rate, **settings),
            train_dataset=rows(),
            processing_class=tokenizer(),
            callbacks=callbacks(),
            **extras(),
        )

    metrics = {"*": ("_metrics", "_stored_metrics", "stats"), "num_tokens": ("_total_train_tokens",)}
    return Kind(build, metrics=metrics, draws=draws)


def prompts() -> Any:
    return table(prompt=texts(ROWS, 1, 4))


def completions() -> Any:
    return table(prompt=texts(ROWS, 1, 4), completion=[f" {text}" for text in texts(ROWS, 2)])


def preferences() -> Any:
    return table(
        prompt=texts(ROWS, 1, 4),
        chosen=[f" {text}" for text in texts(ROWS, 2)],
        rejected=[f" {text}" for text in texts(ROWS, 3)],
    )


def liked() -> Any:
    return table(
        prompt=texts(ROWS, 1, 4),
        completion=[f" {text}" for text in texts(ROWS, 2)],
        label=[i % 3 != 0 for i in range(ROWS)],
    )


def conversations() -> Any:
    turns = zip(texts(ROWS, 1, 4), texts(ROWS, 2), strict=True)
    return table(
        messages=[[{"role": "user", "content": one}, {"role": "assistant", "content": two}] for one, two in turns]
    )


def _reward() -> dict[str, Any]:
    return {"reward_funcs": distinct_tokens}


def _reference() -> dict[str, Any]:
    torch.manual_seed(1)
    return {"ref_model": language_model()}


def _lora() -> dict[str, Any]:
    peft = importlib.import_module("peft")
    return {"peft_config": peft.LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])}


def _bema() -> list[Any]:
    bema = _class("trl.experimental.bema_for_ref_model.BEMACallback")
    return [bema(update_freq=2, update_ref_model=True, ref_model_update_freq=2)]


def grpo(rate: float = 0.05, **settings: Any) -> Kind:
    """Four completions of at most five tokens for each prompt."""
    return trl("GRPO", prompts, extras=_reward, rate=rate,
        **{"num_generations": 4, "max_completion_length": 5, **settings},
    )  # fmt: skip


TRL: dict[str, Callable[[], Kind]] = {
    "SFT": lambda: trl("SFT", completions),
    "SFT, texts": lambda: trl("SFT", lambda: table(text=texts(ROWS, 2))),
    "SFT, packed": lambda: trl(
        "SFT",
        lambda: table(text=texts(4 * ROWS, 2)),
        packing=True,
        packing_strategy="wrapped",
        max_length=16,
    ),
    "SFT, DFT": lambda: trl("SFT", completions, loss_type="dft", rate=0.5),
    "SFT, LoRA": lambda: trl("SFT", completions, extras=_lora),
    "DPO": lambda: trl("DPO", preferences, extras=_reference),
    "DPO, precomputed reference": lambda: trl("DPO", preferences, extras=_reference, precompute_ref_log_probs=True),
    "DPO, synchronised reference": lambda: trl("DPO", preferences, sync_ref_model=True, ref_model_sync_steps=2),
    "DPO, LoRA": lambda: trl("DPO", preferences, extras=_lora, rate=0.5),
    "DPO, IPO and SFT": lambda: trl("DPO", preferences, loss_type=["ipo", "sft"], rate=0.01),
    "DPO, BCO": lambda: trl("DPO", preferences, extras=_reference, loss_type=["bco_pair"]),
    "Reward": lambda: trl("Reward", preferences, model="LlamaForSequenceClassification"),
    "KTO": lambda: trl("KTO", liked, extras=_reference),
    "KTO, APO zero": lambda: trl("KTO", liked, extras=_reference, loss_type="apo_zero_unpaired"),
    "GRPO": grpo,
    "GRPO, beta": lambda: grpo(beta=0.1),
    "GRPO, two iterations": lambda: grpo(num_iterations=2),
    "GRPO, one generation of two steps": lambda: grpo(generation_batch_size=16),
    "GRPO, loss of GRPO": lambda: grpo(loss_type="grpo"),
    "RLOO": lambda: trl("RLOO", prompts, extras=_reward, num_generations=4, max_completion_length=5),
    "CPO": lambda: trl("experimental.cpo.CPO", preferences, rate=0.01),
    "ORPO": lambda: trl("experimental.orpo.ORPO", preferences, rate=0.01),
    "OnlineDPO": lambda: trl(
        "experimental.online_dpo.OnlineDPO",
        prompts,
        extras=lambda: {**_reward(), **_reference()},
        max_new_tokens=5,
        max_length=16,
        draws=True,
    ),
    "GKD": lambda: trl(
        "experimental.gkd.GKD",
        conversations,
        extras=lambda: {"teacher_model": _reference()["ref_model"]},
        max_new_tokens=5,
        max_length=16,
        lmbda=0.5,
        draws=True,
    ),
    "BEMA of the reference": lambda: trl(
        "experimental.bema_for_ref_model.DPO",
        preferences,
        config="DPO",
        extras=_reference,
        callbacks=_bema,
    ),
}
