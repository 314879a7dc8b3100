"""What the losses of transformers' own models divide by: they are in a table or unknown.

A row of the table lists the statements with which forwards compute their loss, and the models for which they were
read and measured. ``loss_of`` reads the forward of the installed version again: where its statements are others, the
loss is unknown.

The models of each row are measured by ``test_loss_table``. Statements are written as ``loss_code`` reads them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .._core.declared import WeightRule
from ..errors import AsrConfigError
from ..trace.model import Model
from .loss_code import LossCode, forward_is_own, is_own, loss_code, losses_are_own, package_of

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig
    from transformers.trainer_pt_utils import LabelSmoother

_PADDING_FREE = "Wav2Vec2 Wav2Vec2Bert Hubert WavLM UniSpeech UniSpeechSat"
_ENCODERS = f"{_PADDING_FREE} Data2VecAudio SEW SEWD Wav2Vec2Conformer"
_FRAME_ENCODERS = "Wav2Vec2 Wav2Vec2Bert WavLM UniSpeechSat Data2VecAudio Wav2Vec2Conformer"
_BERTS = "Bert Roberta XLMRoberta Camembert DistilBert Electra Albert MPNet ModernBert"
_DEBERTAS = "Deberta DebertaV2"
_LLAMAS = "Llama Mistral Qwen2 Qwen3 Gemma Gemma2 Phi3 GPTNeoX"
_GPTS = "GPTJ OPT Bloom Falcon"
_MIXTURES = "Mixtral Qwen2Moe Qwen3Moe Olmoe Phimoe GptOss"
UNTIL_PROBLEM_TYPE = frozenset({"ASTForAudioClassification"})
"""Those that divide by ``num_items_in_batch`` for one kind of labels: unknown until ``config.problem_type`` is set."""
REDUCTIONS = {"ParakeetForTDTLoss": "mean", "ParakeetForRNNTLoss": "mean_volume"}
"""Defaults of loss functions that their rows rely on."""
IGNORE_NUM_ITEMS = frozenset({"ForCTCLoss", *REDUCTIONS})
"""Functions that are passed ``num_items_in_batch`` and do not use it."""
_PADDING = -100
_PASSES_NUM_ITEMS = re.compile(r"label_smoother\([^()]*num_items_in_batch")
_NORMS_OVER_TIME = re.compile("GroupNorm|InstanceNorm|BatchNorm")
_ROTARY_BY_LENGTH = re.compile("dynamic|longrope")


class Row(NamedTuple):
    """One way to compute a loss."""

    rule: Literal[WeightRule, "ctc_loss_reduction", "problem_type"]
    """What it divides by, or the entry of the config that decides it."""
    function: str
    """The name of ``model.loss_function``; empty where the forward computes the loss itself."""
    statements: frozenset[str]
    models: frozenset[str]
    padding: str = ""
    """The entry of the config that is the label of padding; empty for -100."""
    masked: bool = False
    """Whether labels are counted only where the attention mask is not 0."""


def _models(suffix: str, stems: str) -> frozenset[str]:
    return frozenset(stem + suffix for stem in stems.split())


def _code(*statements: str) -> frozenset[str]:
    return frozenset(statements)


# Speech.
_CTC = _models("ForCTC", f"{_ENCODERS} OmniASR")
_PADDED_CTC = _models("ForCTC", "Parakeet Lasr GraniteSpeech5")
_TDT, _RNNT = _models("ForTDT", "Parakeet"), _models("ForRNNT", "Parakeet")
_SPEECH_SEQ2SEQ = (
    _models("ForConditionalGeneration", "Whisper Speech2Text Moonshine MoonshineStreaming Canary CohereAsr Pop2Piano")
    | _models("ForSpeechToText", "SeamlessM4T SeamlessM4Tv2 SpeechT5")
    | _models("ForTextToText", "SeamlessM4T SeamlessM4Tv2")
    | {"SpeechEncoderDecoderModel"}
)
_SPEECH_CLASSIFIERS = _models("ForSequenceClassification", _ENCODERS) | {
    "WhisperForAudioClassification",
    "Qwen3ASRForTokenClassification",
}
_FRAMES = _models("ForAudioFrameClassification", _FRAME_ENCODERS)
_X_VECTORS = _models("ForXVector", _FRAME_ENCODERS)
_AUDIO_LLMS = _models(
    "ForConditionalGeneration",
    "Qwen3ASR Qwen2_5OmniThinker Qwen3OmniMoeThinker Voxtral VoxtralRealtime GlmAsr AudioFlamingo3 MusicFlamingo "
    "FunAsrNano OmniASR VibeVoiceAsr MossTranscribeDiarize Nemotron3_5Transcribe KyutaiSpeechToText Gemma4 "
    "Gemma4Unified",
) | {"Phi4MultimodalForCausalLM"}
_MASKED_AUDIO_LLMS = _models("ForConditionalGeneration", "Qwen2Audio GraniteSpeech GraniteSpeechPlus")
_SHIFTED_TWICE = _models("ForConditionalGeneration", "Moonshine MoonshineStreaming CohereAsr")  # up to 5.9

# Text.
_DECODERS = _models(
    "ForCausalLM",
    f"{_LLAMAS} {_GPTS} {_MIXTURES} Ministral Gemma3 Gemma3n Gemma4 Gemma4Unified Phi GPTNeo GPTBigCode CodeGen Mpt "
    "BioGpt StableLm Starcoder2 SmolLM3 Olmo Olmo2 Granite Cohere Cohere2 Glm Glm4",
) | {"GPT2LMHeadModel"}
_SEQ2SEQ = _models(
    "ForConditionalGeneration", "T5 MT5 UMT5 LongT5 T5Gemma Bart MBart Pegasus PLBart Blenderbot BlenderbotSmall M2M100"
) | {"MarianMTModel", "EncoderDecoderModel"}
_MASKED_LMS = _models("ForMaskedLM", f"{_BERTS} {_DEBERTAS}")
_TAGGERS = _models("ForTokenClassification", f"{_BERTS} {_DEBERTAS} {_LLAMAS} T5 GPT2 Bloom Falcon")
_CLASSIFIERS = _models("ForSequenceClassification", f"{_BERTS} {_LLAMAS} {_GPTS} GPT2 T5 Bart MBart")
_ANSWERERS = _models(
    "ForQuestionAnswering", f"{_BERTS} {_DEBERTAS} {_GPTS} Llama Mistral Qwen2 Qwen3 GPTNeoX GPT2 T5 Bart MBart"
)

TRIMMED = frozenset[str]().union(
    *(_models(suffix, _PADDING_FREE) for suffix in ("ForCTC", "ForSequenceClassification")),
    *(_DECODERS, _SEQ2SEQ, _MASKED_LMS, _TAGGERS, _models("ForSequenceClassification", _BERTS)),
) - _models("ForConditionalGeneration", "UMT5 LongT5")  # UMT5 attends to padding in 5.15; LongT5 joins tokens in blocks
"""Those that compute the same without padding, unless their config adds norms or convolutions.

Classifiers that look for the last token that is no padding are none of them: what is padding for them is not what the
attention mask says.
"""

_ONE_TOKEN_EACH = _SPEECH_SEQ2SEQ | _SPEECH_CLASSIFIERS | _SEQ2SEQ | _MASKED_LMS | _TAGGERS
_NEXT_TOKEN = _DECODERS | _AUDIO_LLMS
_BY_PROBLEM = _CLASSIFIERS | UNTIL_PROBLEM_TYPE
_FUNCTION = _code("loss = self.loss_function(labels)")
_CROSS_ENTROPY = _code("loss_fct = CrossEntropyLoss()", "loss = loss_fct(labels)")
_SHIFTED = _CROSS_ENTROPY | {"labels = labels[..., 1:]"}
_MASKED = _SHIFTED | {"labels = labels[..., 1:][shift_attention_mask != 0]"}
_MASKED_BY_LENGTH = _MASKED | {"shift_attention_mask = attention_mask[..., -(logits.shape[1] - 1):]"}
_MASKED_AS_MERGED = _MASKED | {
    "shift_attention_mask = attention_mask[..., 1:]",
    "labels = outputs.labels if outputs.labels is not None else labels",
}
_UNSHIFTED = _code(
    "labels = kwargs.pop('shift_labels', labels)", "loss = self.loss_function(labels, shift_labels=labels)"
)
_UNSHIFTED_BY_NONE = _code(
    "labels = kwargs.pop('shift_labels', None)",
    "loss = self.loss_function(shift_labels=labels if labels is not None else labels)",
)
_CTC_FUNCTION = _code("loss = self.loss_function(labels, reduction=self.config.ctc_loss_reduction)")
_CTC_LOSS = _code("loss = functional.ctc_loss(reduction=self.config.ctc_loss_reduction)")
_TDT_FUNCTION, _RNNT_FUNCTION = (
    _code(f"loss = self.loss_function(labels, label_lengths=(labels != self.config.{name}).sum(-1))")
    for name in ("pad_token_id", "blank_token_id")
)
_PROBLEM = _CROSS_ENTROPY | {
    "loss_fct = MSELoss()",
    "loss = loss_fct(labels.squeeze())",
    "loss_fct = BCEWithLogitsLoss()",
}
_ANSWER = _code(
    "loss_fct = CrossEntropyLoss(ignore_index=ignored_index)",
    "start_loss = loss_fct(start_positions)",
    "end_loss = loss_fct(end_positions)",
    "loss = (start_loss + end_loss) / 2",
)
_ANSWER_FUNCTION = _code("loss = self.loss_function(start_positions, end_positions)")
_FRAME = _code("loss_fct = CrossEntropyLoss()", "loss = loss_fct(torch.argmax(labels, axis=1))")

TABLE = (
    Row("ctc_loss_reduction", "ForCTCLoss", _CTC_FUNCTION, _CTC),
    Row("ctc_loss_reduction", "ForCTCLoss", _CTC_FUNCTION, _PADDED_CTC, "pad_token_id"),
    Row("ctc_loss_reduction", "", _CTC_LOSS, _CTC),
    Row("ctc_loss_reduction", "", _CTC_LOSS, _PADDED_CTC, "pad_token_id"),
    # The loss of each clip is divided by the number of its labels before the mean over clips.
    Row("mean", "ParakeetForTDTLoss", _TDT_FUNCTION, _TDT, "pad_token_id"),
    # Padding counts where it is another label than the blank.
    Row("token_mean", "ParakeetForRNNTLoss", _RNNT_FUNCTION, _RNNT, "blank_token_id"),
    Row("token_mean", "", _CROSS_ENTROPY, _ONE_TOKEN_EACH),
    Row("token_mean", "", _code("loss = self.mlm_loss_fct(labels)"), _MASKED_LMS),
    Row("token_mean", "ForMaskedLMLoss", _FUNCTION, _ONE_TOKEN_EACH),
    Row("token_mean", "ForMaskedLMLoss", _FUNCTION | {"labels = labels[mask_tokens]"}, _MASKED_LMS),
    Row("token_mean", "ForTokenClassification", _FUNCTION, _ONE_TOKEN_EACH),
    Row("token_mean", "ForCausalLMLoss", _UNSHIFTED, _SPEECH_SEQ2SEQ),
    Row("token_mean", "ForCausalLMLoss", _UNSHIFTED_BY_NONE, _SPEECH_SEQ2SEQ),
    Row("shifted_token_mean", "ForCausalLMLoss", _FUNCTION, _NEXT_TOKEN | _SHIFTED_TWICE),
    Row("shifted_token_mean", "", _SHIFTED, _NEXT_TOKEN),
    Row("shifted_token_mean", "", _MASKED_BY_LENGTH, _MASKED_AUDIO_LLMS, masked=True),
    Row("shifted_token_mean", "", _MASKED_AS_MERGED, _MASKED_AUDIO_LLMS, masked=True),
    Row("problem_type", "", _PROBLEM, _BY_PROBLEM),
    Row("problem_type", "ForSequenceClassificationLoss", _FUNCTION, _BY_PROBLEM),
    Row("mean", "", _ANSWER, _ANSWERERS),
    Row("mean", "ForQuestionAnsweringLoss", _ANSWER_FUNCTION, _ANSWERERS),
    Row("mean", "", _FRAME, _FRAMES),
    Row("mean", "", _code("loss = self.objective(labels)"), _X_VECTORS),
)


@dataclass(frozen=True)
class Loss:
    """What a loss divides by."""

    rule: WeightRule
    """The divisor without ``num_items_in_batch``: clips (``mean``), labels other than ``padding`` (``token_mean``),
    those of ``labels[:, 1:]`` (``shifted_token_mean``), or none (``sum``)."""
    takes_num_items: bool
    """Whether it is a sum divided by ``num_items_in_batch`` where that is passed; the rule is then ``sum``."""
    padding: int
    """The label that is not counted."""
    masked: bool
    """Whether labels are counted only where the attention mask, in the same columns, is not 0."""
    trims: bool
    """Whether each clip's loss and gradient stay the same without the padding behind a micro-batch's longest clip:
    columns of inputs, attention mask and labels. The batch needs an attention mask. Where SpecAugment masks time,
    inputs shorter than ``config.mask_time_length`` frames raise ``ValueError``."""


def loss_of(model: torch.nn.Module) -> Loss | None:
    """What the loss in a model's output divides by; the model may be inside PEFT's, torch.compile's or DDP's wrappers.

    None unless the model is in the table, computes its loss as there, and all of it is transformers' own, its class,
    submodules, forwards, ``loss_function`` and the functions that they call. A batch with ``shift_labels`` has another
    divisor. For answers to questions, positions after the input are not counted.
    """
    *wrappers, base = _chain(model)
    kind = type(base)
    if package_of(kind) != "transformers" or not all(_keeps_loss(wrapper) for wrapper in wrappers):
        return None
    code = loss_code(kind)
    row = _row(base, code) if code else None
    if code is None or row is None or not is_own(base) or not losses_are_own(kind.forward):
        return None
    rule, takes = _rule(base.config, row, code)
    if rule is None:
        return None
    padding = getattr(base.config, row.padding) if row.padding else _PADDING
    return Loss(rule, takes, padding, row.masked, _trims(base))


def known_architecture(name: str) -> bool:
    """Whether ``loss_of`` knows a plain model of a class of transformers, by the name of the class."""
    return any(name in row.models for row in TABLE) and name not in UNTIL_PROBLEM_TYPE


def label_smoother_loss(model: torch.nn.Module, smoother: LabelSmoother) -> Loss | None:
    """What ``trainer.label_smoother`` divides by; ``model`` decides whether labels are shifted.

    None of a smoother that is not transformers' own, and of a compiled causal model, of which versions of accelerate
    differ in whether the Trainer sees its name.
    """
    from transformers import Trainer
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.trainer_pt_utils import LabelSmoother

    *wrappers, base = _chain(model)
    shifts = type(base).__name__ in CAUSAL.values()
    if type(smoother) is not LabelSmoother or package_of(LabelSmoother.__call__) != "transformers":
        return None
    if shifts and any(type(wrapper).__name__ == "OptimizedModule" for wrapper in wrappers):
        return None
    loss = loss_of(model)
    return Loss(
        rule="shifted_token_mean" if shifts else "token_mean",
        takes_num_items=bool(_PASSES_NUM_ITEMS.search(inspect.getsource(Trainer.compute_loss))),
        padding=smoother.ignore_index,
        masked=False,
        trims=loss is not None and loss.trims,
    )


def _chain(model: torch.nn.Module) -> Iterator[Any]:
    """A model and those inside it, through DDP's, torch.compile's and PEFT's wrappers."""
    while True:
        yield model
        kind = type(model)
        if package_of(kind) == "torch" and kind.__name__ == "DistributedDataParallel":
            model = model.module
        elif package_of(kind) == "torch" and kind.__name__ == "OptimizedModule":
            model = model._orig_mod
        elif package_of(kind) == "peft" and hasattr(model, "get_base_model"):
            model = model.get_base_model()
        else:
            return


def _keeps_loss(wrapper: torch.nn.Module) -> bool:
    """Whether a wrapper returns its model's loss: AdaLoRA adds to it, and prompt tuning changes the labels."""
    if package_of(type(wrapper)) != "peft":
        return True
    tuner = type(wrapper.base_model).forward
    return forward_is_own(wrapper) and tuner.__globals__["__name__"] == "peft.tuners.tuners_utils"


def _row(model: torch.nn.Module, code: LossCode) -> Row | None:
    rows = (row for row in TABLE if type(model).__name__ in row.models and code.statements == row.statements)
    return next((row for row in rows if not row.function or _is_function(model.loss_function, row.function)), None)


def _is_function(function: Callable[..., object], name: str) -> bool:
    if getattr(function, "__name__", "") != name or package_of(function) != "transformers":
        return False
    parameters = inspect.signature(function).parameters
    return losses_are_own(function) and (name not in REDUCTIONS or parameters["reduction"].default == REDUCTIONS[name])


def _rule(config: PretrainedConfig, row: Row, code: LossCode) -> tuple[WeightRule | None, bool]:
    """The rule, None where the config leaves it open, and whether the loss uses ``num_items_in_batch``."""
    parts = config, config.get_text_config()
    if code.adds_router_loss and any(getattr(part, "output_router_logits", False) for part in parts):
        return None, False
    if getattr(config, "sparse_pred_ignore_index", _PADDING) != _PADDING:
        return None, False
    takes = code.passes_num_items and row.function not in IGNORE_NUM_ITEMS
    if row.rule == "ctc_loss_reduction":
        reduction = config.ctc_loss_reduction
        return (reduction if reduction in ("mean", "sum") else None), takes
    if row.rule != "problem_type":
        return row.rule, takes
    problem = config.problem_type or ("regression" if config.num_labels == 1 else "")
    if problem in ("regression", "multi_label_classification"):
        return "mean", False
    # The first batch decides whether a clip has one label or several, which are as many of each clip: all count alike.
    return (None if takes and not problem else "token_mean"), takes


def _trims(model: torch.nn.Module) -> bool:
    if type(model).__name__ not in TRIMMED:
        return False
    config = model.config  # convolutions behind the encoder; and in DeBERTa
    if getattr(config, "add_adapter", False) or getattr(config, "conv_kernel_size", 0):
        return False
    return not any(
        _NORMS_OVER_TIME.search(type(module).__name__)
        or _ROTARY_BY_LENGTH.search(str(getattr(module, "rope_type", "")))
        for module in model.modules()
    )


def knows_loss(model: object) -> bool:
    """Whether the table of losses has the loss of ``model``, which is whatever ``profile_model`` takes.

    Modules are inspected, as a user's class may compute another loss; anything else is known by the class that
    fine-tuning uses.
    """
    try:
        recognised = Model.of(model)
        if recognised.is_module:
            return loss_of(model) is not None
        return known_architecture(recognised.class_name)
    except AsrConfigError:
        return False
