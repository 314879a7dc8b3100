"""What the table has of each loss, compared with gradients in float64."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from asrconfig_go.guard.loss_table import (
    TABLE,
    TRIMMED,
    UNTIL_PROBLEM_TYPE,
    Loss,
    known_architecture,
    label_smoother_loss,
    loss_of,
)
from tiny_models import example, frames, waves

MODELS = sorted(frozenset[str]().union(*(row.models for row in TABLE)))
INSTALLED = [name for name in MODELS if hasattr(transformers, name)]
CTC = [name for name in INSTALLED if name.endswith("ForCTC")]
CLASSIFIERS = [name for row in TABLE if row.rule == "problem_type" and row.function for name in sorted(row.models)]
SPEECH = [
    name for name in sorted(TRIMMED) if name in CTC or name.removesuffix("ForSequenceClassification") + "ForCTC" in CTC
]
SPLIT = (slice(0, 1), slice(1, 5))
EXACT, WRONG = 1e-9, 1e-4


@pytest.fixture(autouse=True)
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Computes in float64, also what models and losses do in float32 whatever their weights are."""
    default = torch.get_default_dtype()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for name in ("float", "float32"):
        monkeypatch.setattr(torch, name, torch.float64)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(default)


@pytest.fixture
def rnnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for torchaudio, whose binaries do not load beside every torch: the losses of clips, not reduced."""

    def losses(logits: Any, targets: Any, logit_lengths: Any, target_lengths: Any, blank: int, reduction: str) -> Any:
        assert reduction == "none"
        scores = logits.log_softmax(-1)
        return torch.stack([clip(*row) for row in zip(scores, targets, logit_lengths, target_lengths, strict=True)])

    def clip(scores: Any, words: Any, frames: Any, count: Any) -> Any:
        blanks = scores[..., -1]
        steps = scores[:, :-1].gather(-1, words.long()[None, :, None].expand(len(scores), -1, 1))
        reached: dict[tuple[int, int], Any] = {(0, 0): torch.zeros(())}
        for t in range(int(frames)):
            for u in range(int(count) + 1):
                ways = [reached[t - 1, u] + blanks[t - 1, u]] if t else []
                ways += [reached[t, u - 1] + steps[t, u - 1, 0]] if u else []
                if ways:
                    reached[t, u] = torch.logsumexp(torch.stack(ways), 0)
        return -(reached[int(frames) - 1, int(count)] + blanks[int(frames) - 1, int(count)])

    functional = SimpleNamespace(rnnt_loss=losses)
    monkeypatch.setitem(sys.modules, "torchaudio", SimpleNamespace(functional=functional))
    module = sys.modules.get("transformers.loss.loss_rnnt")
    if module:
        monkeypatch.setattr(module, "rnnt_loss", inspect.unwrap(module.rnnt_loss))
        monkeypatch.setattr(module, "is_torchaudio_available", lambda: True, raising=False)


def loss_in_table(model: Any) -> Loss:
    loss = loss_of(model)
    if loss is None and INSTALLED != MODELS:
        pytest.skip(f"{type(model).__name__} computes its loss by other statements in this transformers")
    assert loss is not None, type(model)
    return loss


def gradient(model: Any, batch: dict[str, Any], **entries: Any) -> Any:
    """That of all parameters, in training mode but without dropout and statistics of batches."""
    model.train()
    for module in model.modules():
        if "BatchNorm" in type(module).__name__ or isinstance(module, torch.nn.Dropout):
            module.eval()
    model.zero_grad()
    model(**batch, **entries).loss.backward()
    return torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.parameters()])


def part(batch: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: value[rows].contiguous() for name, value in batch.items()}


def off(measured: Any, wanted: Any) -> float:
    return float((measured - wanted).norm() / wanted.norm())


def divisors(loss: Loss, batch: dict[str, Any]) -> dict[str, int]:
    """What each rule counts in a batch."""
    labels = batch.get("labels", batch.get("start_positions"))
    assert labels is not None
    counted = labels != loss.padding
    if loss.masked:
        counted &= batch["attention_mask"] != 0
    shifted = counted[:, 1:] if labels.dim() > 1 else counted
    return {"mean": len(labels), "token_mean": int(counted.sum()), "shifted_token_mean": int(shifted.sum())}


def assert_rule(loss: Loss, batch: dict[str, Any], measure: Callable[[dict[str, Any]], Any]) -> None:
    """The gradients of one clip and of the other four add up to that of all by the loss's rule, and by no other one."""
    parts, totals = [part(batch, rows) for rows in SPLIT], divisors(loss, batch)
    weights = {rule: [divisors(loss, clips)[rule] / total for clips in parts] for rule, total in totals.items()}
    weights["sum"] = [1.0, 1.0]
    gradients, wanted = [measure(clips) for clips in parts], measure(batch)
    misses = {rule: off(sum(w * g for w, g in zip(ws, gradients, strict=True)), wanted) for rule, ws in weights.items()}
    assert misses[loss.rule] < EXACT, misses
    others = [rule for rule, ws in weights.items() if abs(ws[0] - weights[loss.rule][0]) > WRONG]
    assert others, "every rule fits this batch"
    assert min(misses[rule] for rule in others) > WRONG, misses


def test_every_model_is_built_here() -> None:
    assert len(INSTALLED) > 100
    if hasattr(transformers, "GraniteSpeech5ForCTC"):  # as new as any
        assert INSTALLED == MODELS


@pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces a better way to train encoder-decoder:FutureWarning")
@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.usefixtures("rnnt")
def test_parts_of_a_batch_add_up(name: str) -> None:
    model, batch = example(name)
    loss = loss_in_table(model)
    if loss.masked:  # as of collators that leave padding its labels
        batch["labels"] = batch["labels"].masked_fill(batch["attention_mask"] == 0, 7)
    assert_rule(loss, batch, functools.partial(gradient, model))
    items = {"num_items_in_batch": torch.tensor(37)}
    if loss.takes_num_items:
        assert_rule(dataclasses.replace(loss, rule="sum"), batch, functools.partial(gradient, model, **items))
        twice = gradient(model, batch, num_items_in_batch=torch.tensor(74))
        assert off(2 * twice, gradient(model, batch, **items)) < EXACT
        return
    with contextlib.suppress(TypeError, ValueError):  # of forwards without such an argument
        assert off(gradient(model, batch, **items), gradient(model, batch)) < EXACT


@pytest.mark.skipif("ParakeetForRNNT" not in INSTALLED, reason="this transformers has no loss of it")
@pytest.mark.usefixtures("rnnt")
def test_padding_with_the_blank_is_not_counted() -> None:
    model, batch = example("ParakeetForRNNT", padding=63)
    loss = loss_in_table(model)
    assert divisors(loss, batch) == {"mean": 5, "token_mean": 15, "shifted_token_mean": 10}
    assert_rule(loss, batch, functools.partial(gradient, model))


def without_padding(batch: dict[str, Any]) -> dict[str, Any]:
    """Without the columns behind the longest clip, and the columns of labels that no clip has."""
    mask = batch["attention_mask"]
    length = int(mask.sum(1).max())
    short = {name: v[:, :length] if v.dim() > 1 and v.shape[1] == mask.shape[1] else v for name, v in batch.items()}
    if short["labels"].dim() == 2 and short["labels"].shape[1] != length:
        short["labels"] = short["labels"][:, : int((short["labels"] != -100).sum(1).max())]
    return {name: value.contiguous() for name, value in short.items()}


def padding_matters(model: Any, batch: dict[str, Any]) -> float:
    """By how much gradients of some of a batch's clips are others without their padding."""
    parts = [part(batch, rows) for rows in ([1, 3], [0], [1], [3], [4])]
    return max(off(gradient(model, without_padding(clips)), gradient(model, clips)) for clips in parts)


def of_lengths(name: str, batch: dict[str, Any], seed: int) -> dict[str, Any]:
    """The batch with clips of other lengths."""
    draw = random.Random(seed)
    if "input_values" in batch:
        return waves(batch["labels"], [draw.randint(420, 900) for _ in range(5)])
    return frames(batch["labels"], 8, [draw.randint(24, 90) for _ in range(5)], torch.long)


@pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces a better way to train encoder-decoder:FutureWarning")
@pytest.mark.parametrize("name", [name for name in INSTALLED if name in TRIMMED])
def test_padding_is_removed_where_it_changes_nothing(name: str) -> None:
    model, batch = example(name)
    assert loss_in_table(model).trims
    batches = [of_lengths(name, batch, seed) for seed in range(4)] if name in SPEECH else [batch]
    assert max(padding_matters(model, clips) for clips in batches) < EXACT


PADDED: dict[str, dict[str, Any]] = {
    "Wav2Vec2ForCTC": {"feat_extract_norm": "group", "do_stable_layer_norm": False},
    "HubertForCTC": {"conv_pos_batch_norm": True},
    "Wav2Vec2BertForCTC": {"add_adapter": True, "output_hidden_size": 16, "num_adapter_layers": 1},
    "Data2VecAudioForCTC": {},
    "SEWForCTC": {},
    "SEWDForCTC": {},
    "Wav2Vec2ConformerForCTC": {},
    "Speech2TextForConditionalGeneration": {},
    "SeamlessM4Tv2ForSpeechToText": {},
    "SpeechT5ForSpeechToText": {},
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_stays_where_it_matters(name: str) -> None:
    model, batch = example(name, **PADDED[name])
    if any(entry not in vars(type(model.config)()) for entry in PADDED[name]):
        pytest.skip("this transformers has no such option")
    assert not loss_in_table(model).trims
    others = [batch, *(of_lengths(name, batch, seed) for seed in range(2) if name in CTC)]
    assert max(padding_matters(model, clips) for clips in others) > WRONG


def test_padding_stays_where_sizes_may_depend_on_it() -> None:
    rotary = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    entry = "rope_parameters" if hasattr(transformers.LlamaConfig(), "rope_parameters") else "rope_scaling"
    assert not loss_in_table(example("LlamaForCausalLM", **{entry: rotary}).model).trims
    assert not loss_in_table(example("DebertaV2ForMaskedLM", conv_kernel_size=3, conv_act="gelu").model).trims
    assert not loss_in_table(example("BertForQuestionAnswering").model).trims, "padding is among the answers"
    assert not loss_in_table(example("LlamaForSequenceClassification").model).trims, "padding by token, not by mask"


@pytest.mark.parametrize("name", CTC)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_divides_by_its_reduction(name: str, reduction: str) -> None:
    model, batch = example(name, ctc_loss_reduction=reduction)
    if reduction == "none":
        assert loss_of(model) is None
    else:
        assert loss_in_table(model).rule == reduction
        assert_rule(loss_in_table(model), batch, functools.partial(gradient, model))


SCORES = torch.tensor([0.3, -1.2, 0.7, 2.0, -0.4])
SEVERAL = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]])
ONE = torch.tensor([1, 0, -100, 2, 1])
PROBLEMS: dict[str, tuple[str | None, int, Any, str]] = {
    "one value": (None, 1, SCORES, "mean"),
    "values": ("regression", 3, SCORES[:, None] * SEVERAL, "mean"),
    "several labels": ("multi_label_classification", 3, SEVERAL, "mean"),
    "several labels by the batch": (None, 3, SEVERAL, "token_mean"),
    "one label": ("single_label_classification", 3, ONE, "token_mean"),
    "one label by the batch": (None, 3, ONE, "token_mean"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_classifiers_divide_by_their_problem(problem: str) -> None:
    kind, count, labels, rule = PROBLEMS[problem]
    for name in CLASSIFIERS:
        if name not in INSTALLED:
            continue
        model, batch = example(name, num_labels=count, problem_type=kind)
        loss = loss_of(model)
        if loss is None and name in UNTIL_PROBLEM_TYPE and kind is None and count > 1:
            continue
        assert loss is not None
        assert loss.rule == rule
        batch["labels"] = labels if labels is ONE else labels.double()
        assert_rule(loss, batch, functools.partial(gradient, model))


def test_only_models_of_the_table_are_known() -> None:
    assert all(known_architecture(name) for name in MODELS if name not in UNTIL_PROBLEM_TYPE)
    absent = ("SpeechT5ForTextToSpeech", "Wav2Vec2ForPreTraining", "NemotronAsrStreamingForRNNT", "Wav2Vec2Model", "")
    assert not any(known_architecture(name) for name in absent)
    assert not known_architecture("ASTForAudioClassification"), "without its problem type"
    assert loss_of(example("DebertaV2ForSequenceClassification").model) is None, "negative labels do not count"
    assert loss_of(torch.nn.Linear(2, 2)) is None
    assert loss_of(SimpleNamespace()) is None


def test_a_users_class_is_unknown() -> None:
    class Own(transformers.LlamaForCausalLM):  # type: ignore[misc]
        pass

    class LlamaForCausalLM(transformers.LlamaForCausalLM):  # type: ignore[misc]
        pass

    model = example("LlamaForCausalLM").model
    assert loss_of(model) is not None
    for kind in (Own, LlamaForCausalLM):
        assert loss_of(kind(model.config)) is None


def test_a_patched_forward_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    model = example("LlamaForCausalLM").model
    kind, layer = type(model), type(model.model.layers[0])
    for owner in (kind, layer):
        original = owner.forward

        @functools.wraps(original)
        def forward(self: Any, *args: Any, original: Any = original, **kwargs: Any) -> Any:
            return original(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(owner, "forward", forward)
            assert loss_of(model) is None
    for module in (model, model.model.layers[0].mlp):
        module.forward = lambda *args, **kwargs: None
        assert loss_of(model) is None
        del module.forward
    with monkeypatch.context() as patch:
        patch.setattr(kind, "forward", transformers.LlamaForSequenceClassification.forward)
        assert loss_of(model) is None, "another forward of transformers"
    assert loss_of(model) is not None


@pytest.fixture
def own_accelerator() -> Iterator[None]:
    """Its precision is that of the process, which another test may have chosen."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    yield
    AcceleratorState._reset_state()


@pytest.mark.usefixtures("own_accelerator")
def test_forwards_that_accelerate_wraps_are_known() -> None:
    from accelerate import Accelerator
    from accelerate.hooks import ModelHook, add_hook_to_module

    expected = loss_of(example("LlamaForCausalLM").model)
    mixed = Accelerator(mixed_precision="bf16", cpu=True).prepare_model(example("LlamaForCausalLM").model)
    assert "forward" in vars(mixed)
    assert loss_of(mixed) == expected
    placed = example("LlamaForCausalLM").model
    add_hook_to_module(placed, ModelHook())
    add_hook_to_module(placed.lm_head, ModelHook())
    assert "forward" in vars(placed)
    assert loss_of(placed) == expected


def test_another_loss_function_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.loss import loss_utils

    def own(*args: Any, **kwargs: Any) -> Any:
        return None

    def unknown(name: str, patch: Callable[[pytest.MonkeyPatch], None]) -> bool:
        with monkeypatch.context() as context:
            patch(context)
            loss = loss_of(example(name).model)  # a new one, as some versions remember the function of a model
        return loss is None and loss_of(example(name).model) is not None

    llama, whisper = "LlamaForCausalLM", "WhisperForConditionalGeneration"
    mapping = loss_utils.LOSS_MAPPING
    assert unknown(llama, lambda c: c.setitem(mapping, "ForCausalLM", own))
    assert unknown(llama, lambda c: c.setitem(mapping, "ForCausalLM", loss_utils.ForTokenClassification))
    assert unknown(llama, lambda c: c.setattr(loss_utils, "fixed_cross_entropy", own))
    assert unknown(llama, lambda c: c.setattr(torch.nn.functional, "cross_entropy", own))
    module = sys.modules[transformers.WhisperForConditionalGeneration.__module__]
    assert unknown(whisper, lambda c: c.setattr(module, "CrossEntropyLoss", own))
    model = example(llama).model
    if type(model).loss_function.fset is not None:
        model.loss_function = own
        assert loss_of(model) is None


def test_a_users_module_inside_is_unknown() -> None:
    class Head(torch.nn.Linear):  # type: ignore[misc]
        pass

    model = example("LlamaForCausalLM").model
    for head in (Head(16, 64), torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(16, 64)))):
        changed = copy.deepcopy(model)
        changed.lm_head = head
        assert loss_of(changed) is None


def test_a_loss_module_that_is_no_plain_mean_is_unknown() -> None:
    for loss in ({"reduction": "sum"}, {"ignore_index": 0}, {"weight": torch.ones(64)}):
        model = example("DistilBertForMaskedLM").model
        assert loss_of(model) is not None
        model.mlm_loss_fct = torch.nn.CrossEntropyLoss(**loss)
        assert loss_of(model) is None, loss


def test_router_losses_are_unknown() -> None:
    for name in ("MixtralForCausalLM", "Qwen3OmniMoeThinkerForConditionalGeneration"):
        if name in INSTALLED:
            model = example(name).model
            assert loss_of(model) is not None
            model.config.get_text_config().output_router_logits = True
            assert loss_of(model) is None


@pytest.mark.skipif("ModernBertForMaskedLM" not in INSTALLED, reason="this transformers has no ModernBERT")
def test_another_ignored_label_is_unknown() -> None:
    assert loss_of(example("ModernBertForMaskedLM", sparse_prediction=True, sparse_pred_ignore_index=-1).model) is None
    model, batch = example("ModernBertForMaskedLM", sparse_prediction=True)
    assert_rule(loss_in_table(model), batch, functools.partial(gradient, model))


def test_losses_inside_wrappers_are_known(tmp_path: Path) -> None:
    from torch.distributed import destroy_process_group, init_process_group

    model = example("LlamaForCausalLM").model
    assert loss_of(torch.compile(model)) == loss_of(model)
    regions = example("LlamaForCausalLM").model
    regions.model.layers[0] = torch.compile(regions.model.layers[0])
    assert loss_of(regions) == loss_of(model)
    init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert loss_of(torch.nn.parallel.DistributedDataParallel(model)) == loss_of(model)
    finally:
        destroy_process_group()
    assert loss_of(torch.nn.DataParallel(model)) is None


def test_adapters_that_keep_the_loss_are_known() -> None:
    peft = pytest.importorskip("peft")
    model = example("LlamaForCausalLM").model
    expected = loss_of(model)
    lora = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    assert loss_of(lora) == expected
    assert loss_of(torch.compile(lora)) == expected
    adalora = peft.AdaLoraConfig(target_modules=["q_proj"], total_step=10, task_type="CAUSAL_LM")
    assert loss_of(peft.get_peft_model(copy.deepcopy(model), adalora)) is None, "it adds a term"
    prompts = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    assert loss_of(peft.get_peft_model(copy.deepcopy(model), prompts)) is None, "it lengthens the labels"


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *(("LlamaForCausalLM", "shifted_token_mean"), ("GPT2LMHeadModel", "shifted_token_mean")),
        *(("T5ForConditionalGeneration", "token_mean"), ("BertForTokenClassification", "token_mean")),
    ],
)
def test_a_label_smoother_divides_by_tokens(name: str, rule: str, tmp_path: Path) -> None:
    model, batch = example(name)
    arguments = transformers.TrainingArguments(
        str(tmp_path), label_smoothing_factor=0.1, use_cpu=True, report_to="none"
    )
    trainer = transformers.Trainer(model, arguments)
    loss = label_smoother_loss(model, trainer.label_smoother)
    assert loss is not None
    assert loss.rule == rule
    assert loss.trims
    if model.config.is_encoder_decoder:
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])

    def measure(piece: dict[str, Any], items: Any = None) -> Any:
        gradient(model, piece)
        model.zero_grad()
        trainer.compute_loss(model, dict(piece), num_items_in_batch=items).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    assert_rule(loss, batch, measure)
    items = torch.tensor(37)
    if loss.takes_num_items:
        assert_rule(dataclasses.replace(loss, rule="sum"), batch, functools.partial(measure, items=items))
    else:
        assert off(measure(batch, items), measure(batch)) < EXACT


def test_other_label_smoothers_are_unknown() -> None:
    from transformers.trainer_pt_utils import LabelSmoother

    class Own(LabelSmoother):  # type: ignore[misc]
        pass

    model = example("LlamaForCausalLM").model
    assert label_smoother_loss(model, Own(0.1)) is None
    assert label_smoother_loss(model, None) is None
    assert label_smoother_loss(torch.compile(model), LabelSmoother(0.1)) is None
    loss = label_smoother_loss(torch.nn.Linear(2, 2), LabelSmoother(0.1, ignore_index=7))
    assert loss is not None
    assert (loss.rule, loss.padding, loss.trims) == ("token_mean", 7, False)
