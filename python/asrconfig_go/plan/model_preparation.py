"""A model as planned: checkpointing, attention, frozen parts, logits of the text alone. Weights stay as they are.

``apply`` sets the other settings that the Trainer does not set, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core.modules import (
    bare,
    checkpoint_options,
    checkpointing_depth,
    checkpointing_method,
    lora_rank,
    offloads_checkpoints,
)
from .._core.output import kind_of
from ..errors import InvalidArgumentError, UnsupportedError
from .environment import DONE, KEPT, NOT_DONE, Applied, AppliedSetting, report, set_backends, set_environment
from .plan_record import PlanRecord
from .training_arguments import LACKING, UnsupportedSettingWarning

if TYPE_CHECKING:
    import torch

# What transformers 5.23 calls settings of checkpointing: the plan's name, and its value without them.
_LACKING = {"every_n_layers": ("every_n_layers", "1"), "offload": ("offload_checkpoints", "False")}
ARGUMENT = "logits_to_keep"  # of forward, in transformers
_IGNORED = -100


def prepare_model(model: torch.nn.Module, config: PlanRecord) -> Applied:
    """Change a model in place as a plan has it; a second call changes nothing.

    Set are gradient checkpointing, of the non-reentrant kind, which works behind a frozen feature encoder: on, of each
    n-th layer or off, what it saves on the GPU or the host, and no key-value cache with it; ``attn_implementation``;
    ``freeze_feature_encoder``. Weights, their training state (but for what is frozen) and random numbers stay. What the
    model's class does not support is left unchanged and reported by an ``UnsupportedSettingWarning``.

    Call it before the model is wrapped for several processes.

    Args:
        model: The module, also in the wrappers of torch.compile and PEFT.
        config: The plan.

    Returns:
        What was applied, and what was not and why.

    Raises:
        InvalidArgumentError: ``model`` is no torch module, or is wrapped in ``DistributedDataParallel``.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
        >>> config.freeze_feature_encoder = True
        >>> model = small_model(tokens=12, seed=0)
        >>> applied = prepare_model(model, config)
        >>> any(p.requires_grad for p in model.wav2vec2.feature_extractor.parameters())
        False
    """
    return report(settings_of_model(model, config), stacklevel=2)


def apply(config: PlanRecord, model: torch.nn.Module, environment: bool, backends: bool, stacklevel: int) -> Applied:
    """See ``TrainingConfig.apply``. The environment first: it counts only before CUDA starts."""
    settings: list[AppliedSetting] = []
    if environment:
        settings += set_environment(config)
    if backends:
        settings += set_backends(config)
    if model is not None:
        settings += settings_of_model(model, config)
    return report(settings, stacklevel + 1)


def settings_of_model(model: torch.nn.Module, config: PlanRecord) -> list[AppliedSetting]:
    """``prepare_model`` without its warnings."""
    import torch

    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise InvalidArgumentError(
            f"cannot prepare {kind_of(model)}", "pass the torch module, before DistributedDataParallel"
        )
    inside = bare(model)
    return [
        *_adapters(model, config), *_checkpointing(inside, config), *_attention(inside, config),
        *_feature_encoder(inside, config),
    ]  # fmt: skip


def _adapters(model: torch.nn.Module, config: PlanRecord) -> Iterator[AppliedSetting]:
    # Adapters wrap the model, so they cannot be added in place.
    if config.lora_rank:
        rank = lora_rank(getattr(model, "_orig_mod", model))
        reason = f"make them first: model = add_lora(model, {config.lora_rank})"
        setting = AppliedSetting("model", "lora_rank", str(rank), KEPT, "the model has adapters")
        yield setting if rank else _refused("lora_rank", "no adapters", reason)


def _checkpointing(model: torch.nn.Module, config: PlanRecord) -> Iterator[AppliedSetting]:
    wanted, name = config.gradient_checkpointing, "gradient_checkpointing"
    enable, disable = checkpointing_method(model, "enable"), checkpointing_method(model, "disable")
    now, kind = _checkpointing_now(model), type(model).__name__
    depth, offload = config.every_n_layers, config.offload_checkpoints
    planned = _words(depth, offload)
    if not wanted:
        if now != "off" and disable is not None:
            disable()
            yield AppliedSetting("model", name, "off", DONE, f"was {now}")
    elif now == planned:
        yield AppliedSetting("model", name, now, KEPT, "already set")
        yield from _no_cache(model)
    elif enable is None or not getattr(model, "supports_gradient_checkpointing", True):
        yield _refused(name, now, f"{kind} does not support it; a step takes more memory than planned")
    else:
        wished, parameters = checkpoint_options(depth, offload), inspect.signature(enable).parameters
        enable({"use_reentrant": False}, **{option: value for option, value in wished.items() if option in parameters})
        if wished.keys() <= parameters.keys():
            yield AppliedSetting("model", name, planned, DONE, f"was {now}")
        lacking = [_LACKING[option] for option in wished if option not in parameters]
        yield from (_refused(setting, value, LACKING[setting]) for setting, value in lacking)
        yield from _no_cache(model)


def _checkpointing_now(model: torch.nn.Module) -> str:
    on = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False) is True]
    functions = [getattr(module, "_gradient_checkpointing_func", None) for module in on]
    if not on:
        return "off"
    not_reentrant = all(getattr(f, "keywords", {}).get("use_reentrant") is False for f in functions)
    return _words(checkpointing_depth(model) or 1, offloads_checkpoints(model)) if not_reentrant else "reentrant"


def _words(depth: int, offload: bool) -> str:
    layers = "on" if depth == 1 else f"one of {depth} layers"
    return f"{layers}, {'offloaded, ' if offload else ''}not reentrant"


def _no_cache(model: torch.nn.Module) -> Iterator[AppliedSetting]:
    # A key-value cache is useless in training, and checkpointing would compute it twice.
    configs = [c for c in _configs(model) if getattr(c, "use_cache", None) is True]
    for config in configs:
        config.use_cache = False
    if configs:
        reason = "set it to True again for generation without generation_config"
        yield AppliedSetting("model", "config.use_cache", "False", DONE, reason)


def _configs(model: torch.nn.Module) -> list[Any]:
    configs = (getattr(module, "config", None) for module in model.modules())
    return list({id(config): config for config in configs if config is not None}.values())


def _attention(model: torch.nn.Module, config: PlanRecord) -> Iterator[AppliedSetting]:
    wanted, name = config.attn_implementation, "attn_implementation"
    now = getattr(getattr(model, "config", None), "_attn_implementation", None)
    change = getattr(model, "set_attn_implementation", None)
    if not wanted:
        return
    if now == wanted:
        yield AppliedSetting("model", name, wanted, KEPT, "already set")
    elif change is None:  # the layers' classes were chosen when they were built: changing the config has no effect
        load = f"load the model with from_pretrained(…, attn_implementation={wanted!r})"
        yield _refused(name, str(now), f"this transformers cannot change it in a model that is built: {load}")
    elif problem := _changed(model, change, wanted):
        yield _refused(name, str(now), f"{type(model).__name__} stays with {now}: {problem}")
    else:
        yield AppliedSetting("model", name, wanted, DONE)


def _changed(model: torch.nn.Module, change: Callable[[str], object], wanted: str) -> str:
    """Change the attention; returns why that failed, after undoing it."""
    before = [(c, c._attn_implementation) for c in _configs(model) if hasattr(c, "_attn_implementation")]
    problem = ""
    try:
        change(wanted)
    except (ValueError, ImportError, NotImplementedError) as error:
        problem = str(error).splitlines()[0]
    if model.config._attn_implementation != wanted:
        problem = problem or f"it has no {wanted!r} attention"
    if problem:
        for config, value in before:
            if config._attn_implementation != value:
                config._attn_implementation = value
    return problem


def _feature_encoder(model: torch.nn.Module, config: PlanRecord) -> Iterator[AppliedSetting]:
    if not config.freeze_feature_encoder:
        return
    name = "freeze_feature_encoder"
    freeze = getattr(model, name, None) or getattr(model, "freeze_feature_extractor", None)
    if freeze is None:
        yield _refused(name, "not frozen", f"{type(model).__name__} has no convolutional feature encoder to freeze")
        return
    before = sum(p.requires_grad for p in model.parameters())
    freeze()
    frozen = before - sum(p.requires_grad for p in model.parameters())
    yield AppliedSetting(
        "model", name, "frozen", DONE if frozen else KEPT, f"{frozen} tensors" if frozen else "already set"
    )


def _refused(name: str, value: str, reason: str) -> AppliedSetting:
    return AppliedSetting("model", name, value, NOT_DONE, reason, UnsupportedSettingWarning)


def freeze(part: torch.nn.Module) -> torch.nn.Module:
    """Keep a part of a model as it is for the whole training, as in ``freeze(model.encoder)``.

    Its parameters get no gradient, and it stays in evaluation mode when the Trainer puts the model into training mode:
    no dropout, no masks, no dropped layers, and batch normalisation by its running statistics instead of those of the
    clips of a batch. So a step that ran out of memory can be computed again in smaller micro-batches, which the guard
    refuses while batch normalisation is in training mode. Call it before the plan, which then counts what is left.

    Args:
        part: A module of the model, or all of it before adapters are added.

    Returns:
        ``part``.

    Raises:
        InvalidArgumentError: ``part`` is no torch module.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> model = small_model(tokens=12, seed=0)
        >>> freeze(model.wav2vec2.encoder).training, model.train().wav2vec2.encoder.training, model.training
        (False, False, True)
    """
    if not callable(getattr(part, "requires_grad_", None)) or not callable(getattr(part, "eval", None)):
        raise InvalidArgumentError(
            f"cannot freeze {kind_of(part)}", "pass a module of the model, such as model.encoder"
        )
    part.requires_grad_(False)
    part.eval()
    part.train = functools.partial(_stay, part)  # what model.train() calls for each of its parts; can be pickled
    return part


def _stay(part: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
    """Replaces ``torch.nn.Module.train`` of a frozen part."""
    return part


@dataclass(frozen=True)
class TextLogitsCollator:
    """A collator for models that compute logits for the text alone, which ``text_logits_only`` returns.

    Attributes:
        collator: The collator that makes the batches.
    """

    collator: Callable[[Any], Any]

    def __call__(self, rows: Any) -> Any:
        """Return a batch as ``collator`` makes it, with the columns of ``labels`` that count and ``logits_to_keep``."""
        return cut_labels(self.collator(rows))


def text_logits_only(collator: Callable[[Any], Any], model: torch.nn.Module) -> TextLogitsCollator:
    """Wrap a collator so that an audio language model computes logits for its text alone; the loss stays the same.

    A model's logits are as wide as its vocabulary, and take several copies of that in fp32 in the loss. Of a sequence
    of prompt, audio and text, the labels of the first two are -100, and so their logits are wasted: the wrapped
    collator cuts these labels off, and passes ``logits_to_keep``. Give the result to the plan and to the Trainer.

    Args:
        collator: Makes batches with ``labels`` as wide as ``input_ids``, -100 where no label counts.
        model: The model that is trained, also in PEFT's wrapper.

    Returns:
        A collator; it can be pickled where ``collator`` can.

    Raises:
        UnsupportedError: The model's ``forward`` takes no ``logits_to_keep``.

    Example:
        >>> import torch
        >>> class Decoder(torch.nn.Module):
        ...     def forward(self, input_ids, labels, logits_to_keep=0): ...
        >>> batch = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "labels": torch.tensor([[-100, -100, -100, 8]])}
        >>> text_logits_only(lambda rows: batch, Decoder())([])["logits_to_keep"]
        2
    """
    if not keeps_logits(model):
        raise UnsupportedError(
            f"forward of {type(bare(model)).__name__} takes no {ARGUMENT}: its logits are computed for every token",
            "leave the collator as it is, or upgrade transformers",
        )
    return TextLogitsCollator(collator)


def keeps_logits(model: torch.nn.Module) -> bool:
    """Whether a model's forward computes logits for the last tokens alone, if it is asked to."""
    forward = getattr(bare(model), "forward", None)
    return callable(forward) and ARGUMENT in inspect.signature(forward).parameters


def cut_labels(batch: Any) -> Any:
    """A batch without the labels before the first that counts, and with ``logits_to_keep``; others as they are.

    Logits predict the next token, so that those of the token before count, too.
    """
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    if labels is None or ARGUMENT in batch or labels.dim() != 2:
        return batch
    counted = (labels != _IGNORED).any(0).nonzero()
    first = int(counted[0]) if len(counted) else 0
    if first < 2:  # nothing to save
        return batch
    count = labels.shape[1] - first + 1
    return {**batch, "labels": labels[:, -count:], ARGUMENT: count}
