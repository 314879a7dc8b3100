"""Models of torch and transformers: what lies inside wrappers, precision of weights, adapters, unused parameters.

Their configs, too: the kind of speech recognition; and what the installed transformers can do with models.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ..errors import InvalidArgumentError, UnsupportedError
from .checks import check_seed, in_range
from .requirements import need

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import Tensor
    from torch.nn import Module
    from transformers import PretrainedConfig


SpeechKind = Literal["ctc", "transducer", "seq2seq", "audio-llm"]
LAYER_DROPS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")  # of configs, and of modules
VERSIONED: Final = ("torch", "transformers", "accelerate", "peft")
"""Packages whose version identifies their code, and with it what a training step allocates."""
_TABLES = {"CTC": "ctc", "TDT": "transducer", "RNNT": "transducer"}
_LANGUAGE_MODELS = ("MULTIMODAL_LM", "IMAGE_TEXT_TO_TEXT")  # the second where a version has no first
# Families of which tests know that a training step with neither of the two causes below reaches every parameter.
_WHOLE = ("wav2vec2", "wav2vec2-bert", "hubert", "wavlm", "whisper")
_HEADS = ("ForCTC", "ForConditionalGeneration")


def bare(model: Module) -> Module:
    """The module inside torch.compile's and PEFT's wrappers, whichever is around the other."""
    while True:
        inside = getattr(model, "get_base_model", None)
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif callable(inside) and (base := inside()) is not model:
            model = base
        else:
            return model


def lora_rank(model: Module) -> int:
    """The largest rank of a model's LoRA adapters; 0 without any."""
    adapters = getattr(model, "peft_config", None) or {}
    return max((int(getattr(adapter, "r", 0)) for adapter in adapters.values()), default=0)


def checkpointing_depth(model: Module) -> int | None:
    """One layer out of how many, as transformers counts them, is checkpointed; None without checkpointing."""
    layers = [m.gradient_checkpointing for m in model.modules() if _is_layer(m)]
    if not any(layers):
        return None
    return next((i for i, on in enumerate(layers) if i and on), max(1, len(layers)))


def offloads_checkpoints(model: Module) -> bool:
    """Whether what checkpoints save is kept in host memory, by the function that transformers wraps them in then."""
    functions = (getattr(m, "_gradient_checkpointing_func", None) for m in model.modules() if _checkpoints(m))
    return any(getattr(getattr(f, "func", f), "__name__", "") == "checkpoint_func" for f in functions)


def checkpoints(model: Module) -> bool:
    """Whether some layers of a model are set to compute again."""
    return any(_checkpoints(module) for module in model.modules())


def _checkpoints(module: Module) -> bool:
    return getattr(module, "gradient_checkpointing", False) is True


def checkpointing_method(model: Module, verb: str) -> Callable[..., None] | None:
    """The method of a model that enables or disables checkpointing; None of a model without one."""
    # transformers 5 calls it activation checkpointing, and warns at the older name.
    names = (f"{kind}_checkpointing_{verb}" for kind in ("activation", "gradient"))
    return next((getattr(model, name) for name in names if hasattr(model, name)), None)


def switch_off_checkpointing(model: Module) -> None:
    """Let a model's layers keep what they compute."""
    disable = checkpointing_method(model, "disable")
    if disable is not None and checkpoints(model):
        disable()


def _is_layer(module: Module) -> bool:
    return any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(module).__mro__)


def all_tensors(model: Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers with their names."""
    return [*model.named_parameters(), *model.named_buffers()]


def changing_tensors(model: Module) -> dict[str, Tensor]:
    """Buffers and trained parameters, detached."""
    buffers = {name for name, _ in model.named_buffers()}
    return {name: t.detach() for name, t in all_tensors(model) if name in buffers or t.requires_grad}


IN_32_BIT = "call model.float() before the Trainer is made, or load it by from_pretrained(…, dtype=torch.float32)"


def half_weights(model: Module) -> str:
    """``"float16"`` or ``"bfloat16"`` where trained weights of a module are stored so; "" elsewhere."""
    parameters = getattr(model, "parameters", None)
    if isinstance(model, type) or not callable(parameters):
        return ""
    stored = {str(p.dtype).removeprefix("torch.") for p in parameters() if p.requires_grad}
    return next((name for name in ("float16", "bfloat16") if name in stored), "")


def half_words(model: Module, stored: str) -> str:
    """What becomes of training weights that are stored in ``stored``."""
    lost = {
        "float16": "squares of gradients underflow in Adam's state, and there is no copy in float32",
        "bfloat16": "they are updated without a copy in float32, which loses changes of less than 1/256 of a weight",
    }
    return f"the trained weights of {type(model).__name__} are stored in {stored}: {lost[stored]}"


_QUERIES_AND_VALUES = (("q_proj", "v_proj"), ("linear_q", "linear_v"), ("query_proj", "value_proj"))
_PROJECTORS = ("multi_modal_projector", "projector")  # between an audio LLM's encoder and its language model
_NEW_HEADS = ("lm_head", "ctc_head")  # of CTC: a fine-tuning gives them the rows of its own vocabulary
_OWN_TARGETS = (
    "give peft.get_peft_model(model, LoraConfig(target_modules=[…])) layers of it, and pass that without lora_rank"
)
_MAX_RANK = 4096  # as MAX_RANK of memory_settings


def add_lora(model: Module, rank: int, *, seed: int = 0) -> PeftModel:
    """Add LoRA adapters to the query and value projections of a model, which train in its place.

    A CTC head trains, too, as does an audio LLM's projector between the encoder and the language model. Everything else
    is frozen. The layers are changed in place, so use the returned model. The adapters change no output before the
    first step. Models that bitsandbytes loaded in 8 or 4 bits are prepared by ``peft.prepare_model_for_kbit_training``.
    Plan with the same rank (``lora_rank``) or with the returned model, and call this before ``config.apply(model)``.

    Args:
        model: A transformers model without adapters.
        rank: The rank of the adapters, 1 to 4096.
        seed: The seed of the adapters' initial weights, which depend on nothing else.

    Returns:
        The model as a ``peft.PeftModel``.

    Raises:
        UnsupportedError: PEFT is not installed, or the model's attention would not run the adapters.
        InvalidArgumentError: The rank is out of range, or the model has adapters.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> model = add_lora(small_model(tokens=12, seed=0), rank=4)
        >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
        7692
    """
    check_seed(seed)
    _check(model, rank)
    import peft
    import torch

    if getattr(model, "is_quantized", False):
        # Checkpointing is the plan's choice, and not of the kind that this would ask for.
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=list(_targets(model)),
        modules_to_save=[*_new_heads(model), *_projectors(model)] or None,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # PEFT reads is_gradient_checkpointing, which transformers 5.24 has another name for.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        torch.manual_seed(seed)
        return peft.get_peft_model(model, config)


def check_task_type(model: Module) -> None:
    """Raise ``InvalidArgumentError`` where PEFT would add ``input_ids`` to batches of audio."""
    for adapter in (getattr(model, "peft_config", None) or {}).values():
        takes = getattr(bare(model), "main_input_name", "input_ids")
        if getattr(adapter, "task_type", None) == "SEQ_2_SEQ_LM" and takes != "input_ids":
            raise InvalidArgumentError(
                f"the adapters' task_type is SEQ_2_SEQ_LM, which adds input_ids to batches of {takes}",
                "leave task_type out of the LoraConfig",
            )


def adapter_options(model: Module, new_rank: int, policy: str) -> dict[str, int | bool]:
    """The planner's options for a model that already has adapters; raises for ``new_rank`` of further ones."""
    check_task_type(model)
    rank = lora_rank(model)
    if rank and new_rank:
        raise InvalidArgumentError(f"the model has adapters of rank {rank} already", "leave lora_rank out")
    return {"lora_rank": rank, "adapted": True} if rank and policy == "fastest" else {}  # "published" knows none


def check_planned_adapters(model: Module, rank: int) -> None:
    """Raise ``InvalidArgumentError`` for adapters that cannot train, and where a plan's of ``rank`` are missing."""
    check_task_type(model)
    if rank and not lora_rank(model):
        raise InvalidArgumentError(
            f"the plan trains adapters of rank {rank}, and the Trainer's {type(model).__name__} has none",
            f"make them before the Trainer: model = asrconfig_go.plan.add_lora(model, {rank})",
        )


def _check(model: Module, rank: int) -> None:
    in_range("lora_rank", rank, 1, _MAX_RANK, "pass 8 to 64", int)
    if lora_rank(model):
        raise InvalidArgumentError(
            f"the {type(bare(model)).__name__} has adapters of rank {lora_rank(model)}", "pass it without lora_rank"
        )
    need("LoRA", "peft")


def _targets(model: Module) -> tuple[str, str]:
    kind = type(model).__name__
    linear = {name.rpartition(".")[2] for name, m in model.named_modules() if hasattr(m, "in_features")}
    chosen = next((pair for pair in _QUERIES_AND_VALUES if linear.issuperset(pair)), None)
    if chosen is None:
        raise UnsupportedError(f"{kind} has no query and value projections with a known name", _OWN_TARGETS)
    if kind.startswith("WavLM"):  # it hands their weights to one function of PyTorch's
        raise UnsupportedError(
            f"{kind} does not call its projections, so that adapters beside them never run", _OWN_TARGETS
        )
    return chosen


def _projectors(model: Module) -> list[str]:
    # Weights of 8 or 4 bits do not train.
    if not hasattr(model.config, "text_config"):
        return []
    parts = {name.rpartition(".")[2]: m for name, m in model.named_modules() if name.endswith(_PROJECTORS)}
    return [
        name for name in _PROJECTORS if name in parts and all(p.is_floating_point() for p in parts[name].parameters())
    ]


def _new_heads(model: Module) -> list[str]:
    heads = [name for name in _NEW_HEADS if "CTC" in type(model).__name__ and hasattr(model, name)]
    for name in heads:
        if not all(p.is_floating_point() for p in getattr(model, name).parameters()):
            raise InvalidArgumentError(
                f"{name} is quantized, and it is to train",
                f'load the model with BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["{name}"])',
            )
    return heads


def find_unused_parameters(model: Module | None = None) -> bool:
    """``ddp_find_unused_parameters``: False where it is certain that there are none, and True without a model.

    Looking for them walks the graph again in every step. Not looking ends a training with layer drop by an error in its
    second step, and that is the Trainer's own choice with gradient checkpointing (made for the reentrant kind).
    """
    return model is None or leaves_parameters_unused(model) is not False


def leaves_parameters_unused(model: Module) -> bool | None:
    """Whether steps of ``model`` leave trained parameters without a gradient; None where that is not certain.

    So does layer drop, which skips whole layers, and SpecAugment's ``masked_spec_embed`` where nothing is masked over
    time.
    """
    inside = bare(model)
    if _drops_layers(inside) or _has_idle_mask(inside):
        return True
    cls, kind = type(inside), getattr(getattr(inside, "config", None), "model_type", None)
    tested = cls.__module__.startswith("transformers.") and kind in _WHOLE and cls.__name__.endswith(_HEADS)
    return False if tested else None


def _drops_layers(model: Module) -> bool:
    config = getattr(model, "config", None)
    rates = [getattr(config, name, None) for name in LAYER_DROPS]
    rates += [getattr(module, "layerdrop", None) for module in model.modules()]
    return any(isinstance(value, int | float) and value > 0 for value in rates)


def _has_idle_mask(model: Module) -> bool:
    config = getattr(model, "config", None)
    masks = getattr(config, "apply_spec_augment", True) and getattr(config, "mask_time_prob", 0) > 0
    return not masks and any(
        p.requires_grad for name, p in model.named_parameters() if name.endswith("masked_spec_embed")
    )


def has_any_depth() -> bool:
    """Whether it checkpoints each n-th layer alone, ``every_n_layers``: from 5.23 on."""
    return _says("modeling_utils.py", "every_n_layers:")


def can_offload_checkpoints() -> bool:
    """Whether it keeps what checkpoints save in pinned host memory, ``offload``: from 5.23 on."""
    return _says("modeling_utils.py", " offload: bool = False")


def checkpoint_options(every_n_layers: int, offload_checkpoints: bool) -> dict[str, int | bool]:
    """Transformers' keywords for checkpointing that differs from every layer on the device."""
    depth = {"every_n_layers": every_n_layers} if every_n_layers > 1 else {}
    return {**depth, **({"offload": True} if offload_checkpoints else {})}


def trainer_stops_caching() -> bool:
    """Whether the Trainer writes its own ``use_cache``, False unless asked for, into the config: from 5 on."""
    return _says("training_args.py", "use_cache:")


@functools.cache
def _says(module: str, text: str) -> bool:
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin).with_name(module)
    return source.exists() and text in source.read_text(encoding="utf-8")


def installed_version(package: str) -> str:
    """The installed version, "" where it is not installed; the package is not imported for the answer."""
    try:
        return _read_version(package)
    except ModuleNotFoundError:  # not cached: a notebook may install it
        return ""


@functools.cache
def _read_version(package: str) -> str:
    from importlib import metadata  # costs more than the rest of this package's import

    return metadata.version(package)


def versions(packages: Iterable[str] = VERSIONED) -> dict[str, str]:
    """Versions of the installed ones of the packages: when not given, of those whose code determines a trace."""
    return {name: version for name in packages if (version := installed_version(name))}


def speech_kind(config: PretrainedConfig) -> SpeechKind | None:
    """The kind of speech recognition of a transformers config; None for other models.

    An audio LLM is a decoder without cross-attention, into whose prompt the audio's features go.
    """
    kind = next((kind for table, kind in _TABLES.items() if config.model_type in task_classes(table)), None)
    if kind is not None:
        return kind  # type: ignore[return-value]
    if config.model_type in task_classes("SPEECH_SEQ_2_SEQ"):
        return "seq2seq" if getattr(config, "is_encoder_decoder", False) else "audio-llm"
    hears = any(hasattr(config, name) for name in ("audio_config", "encoder_config")) and hasattr(config, "text_config")
    return "audio-llm" if hears and any(config.model_type in task_classes(name) for name in _LANGUAGE_MODELS) else None


def ends_with_frames(config: PretrainedConfig) -> bool:
    """Whether a transcript ends with the clip's frames, in CTC and in transducers, and not with a token."""
    return speech_kind(config) in ("ctc", "transducer")


def class_for(config: PretrainedConfig) -> str:
    """The class that recognises speech with ``config``: the one it names, where that is for it, else its kind's."""
    tables = [*_TABLES, "SPEECH_SEQ_2_SEQ", *_LANGUAGE_MODELS]
    classes = [task_classes(name)[config.model_type] for name in tables if config.model_type in task_classes(name)]
    named = (getattr(config, "architectures", None) or [None])[0]
    return str(named if named in classes else classes[0])


def task_classes(task: str) -> Mapping[str, str | tuple[str, ...]]:
    """The classes of transformers for a task, such as ``"CTC"``, by the ``model_type`` of their configs."""
    from transformers.models.auto import modeling_auto

    return getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {})
