"""What a loss of the user's own divides by, where a batch does not tell; streams; and padding that goes or stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import ctc_loss, mse_loss
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Speech2TextConfig,
    Speech2TextForConditionalGeneration,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_callback import TrainerCallback

from asrconfig_go._core.padding import trimmed
from asrconfig_go.guard import attach
from asrconfig_go.guard.rule_measurement import trial
from tiny_training import OUT_OF_MEMORY, Regression, apart, flat, notes_of

TEXTS = [[3, 4, 5, 6], [3], [4, 5], [6, 3, 5]]


class Tagger(torch.nn.Module):  # type: ignore[misc]
    """An own model for CTC: frames of four features, six symbols; each loss is a mean of clips' or of symbols'."""

    def __init__(self, mean: str) -> None:
        super().__init__()
        self.mean, self.out = mean, torch.nn.Linear(4, 8)

    def forward(self, x: Any, labels: Any = None) -> Any:
        logits = self.out(x)
        if self.mean == "symbols":
            return {"loss": torch.nn.functional.cross_entropy(logits[:, :4].flatten(0, 1), labels.flatten())}
        counts = (labels != -100).sum(1)
        frames = torch.full((len(x),), x.shape[1])
        loss = ctc_loss(logits.log_softmax(-1).transpose(0, 1), labels.clamp(min=0), frames, counts, reduction="mean")
        return {"loss": loss}


class Texts(torch.utils.data.Dataset):  # type: ignore[misc]
    """``equal`` of them have four symbols; the others one to four."""

    def __init__(self, size: int, equal: int) -> None:
        source = torch.Generator().manual_seed(5)
        self.x = torch.randn(size, 12, 4, generator=source)
        self.labels = torch.full((size, 4), -100)
        for i in range(size):
            text = TEXTS[0] if i < equal else TEXTS[i % 4]
            self.labels[i, : len(text)] = torch.tensor(text)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return {"x": self.x[i], "labels": self.labels[i]}


class InOrder(Trainer):  # type: ignore[misc]
    def _get_train_sampler(self, *args: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def arguments(output: Path, batch: int, accumulation: int = 1, **settings: Any) -> Any:
    return TrainingArguments(
        str(output), per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, num_train_epochs=1,
        optim="sgd", learning_rate=0.1, max_grad_norm=0.0, logging_steps=1, save_strategy="no", report_to="none",
        use_cpu=True, disable_tqdm=True, **settings,
    )  # fmt: skip


def hungry(model: Any, times: int, limit: int) -> list[int]:
    """Let memory run out ``times`` times for more than ``limit`` samples; the sizes of batches from now on."""
    sizes: list[int] = []
    failures = [times]

    def begin(module: Any, args: Any, kwargs: Any) -> None:
        sizes.append(len(kwargs["labels"]))
        if failures[0] and module.training and sizes[-1] > limit:
            failures[0] -= 1
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    model.register_forward_pre_hook(begin, with_kwargs=True)  # what hooks hold is not put back
    return sizes


def tagged(
    output: Path, mean: str, data: Any, batch: int, accumulation: int = 1, *, limit: int = 0, times: int = 0,
    guarded: bool = True, **options: Any,
) -> Any:  # fmt: skip
    torch.manual_seed(0)
    model = Tagger(mean)
    trainer = InOrder(model, arguments(output, batch, accumulation), train_dataset=data)
    sizes = hungry(model, times, limit)
    trainer.start = flat(model)
    trainer.guard = attach(trainer, **options) if guarded else None
    trainer.train()
    trainer.sizes = sizes
    return trainer


@pytest.mark.parametrize(("mean", "rule"), [("clips", "mean"), ("symbols", "token_mean")])
def test_batches_of_one_sample_are_weighted_by_a_given_rule_alone(tmp_path: Path, mean: str, rule: Any) -> None:
    data = Texts(16, equal=0)
    got, bare = tagged(tmp_path, mean, data, 1, 4), tagged(tmp_path, mean, data, 1, 4, guarded=False)
    assert got.guard.rule is None
    assert torch.equal(got.model.out.weight, bare.model.out.weight)
    got = tagged(tmp_path, mean, data, 1, 4, rule=rule)
    assert apart(got, tagged(tmp_path, mean, data, 4, guarded=False)) < 1e-5


@pytest.mark.parametrize(("mean", "rule"), [("clips", "mean"), ("symbols", "token_mean")])
def test_a_rule_that_equal_labels_do_not_tell_is_measured_again(tmp_path: Path, mean: str, rule: str) -> None:
    data = Texts(32, equal=20)
    got = tagged(tmp_path, mean, data, 4, limit=2, times=2)
    assert got.guard.rule == rule
    assert [event.global_step for event in got.guard.events] == [0]
    assert apart(got, tagged(tmp_path, mean, data, 4, guarded=False)) < 1e-5


def test_micro_batches_without_labels_count_nothing(tmp_path: Path) -> None:
    """The mean over their symbols is not a number."""
    data = Texts(16, equal=0)
    data.labels[::4] = -100
    wanted = tagged(tmp_path, "symbols", data, 4, guarded=False)
    for batch, accumulation, micro_batch in ((1, 4, None), (4, 1, 1)):
        got = tagged(tmp_path, "symbols", data, batch, accumulation, rule="token_mean", micro_batch=micro_batch)
        assert apart(got, wanted) < 1e-5
        logged = [[e["loss"] for e in t.state.log_history if "loss" in e] for t in (got, wanted)]
        assert logged[0] == pytest.approx(logged[1], rel=1e-4)


def test_measurements_become_rare(tmp_path: Path) -> None:
    """With each of the first 16 batches that are split, then with the 32nd, 64th …"""
    measured, steps = [], 0
    got = tagged(tmp_path, "clips", Texts(64 * 4, equal=0), 4, limit=2, times=1)
    for size in got.sizes[1:]:
        if size == 2:
            steps += 1
        else:
            measured.append(steps // 2)
    assert steps == 2 * 64, "whole windows, in halves"
    assert set(measured) == {0, *range(1, 17), 32}
    assert len(measured) < 10 * len(set(measured))


def test_a_measurement_that_does_not_fit_is_refused_or_leaves_an_earlier_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One sample fits; two of them do at first only."""
    data = Texts(32, equal=0)
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        tagged(tmp_path, "clips", data, 4, limit=1, times=99)
    message = "not even two clips fit, so that the loss of the step of InOrder with Tagger cannot be measured"
    hint = 'pass rule="mean", "token_mean", "sum" or a function from a batch to a number: what its loss divides by'
    assert f"{message}; {hint}" in notes_of(caught.value, caplog.text)
    wanted = tagged(tmp_path, "clips", data, 4, guarded=False)
    with_rule = tagged(tmp_path, "clips", data, 4, limit=1, times=99, rule="mean")
    assert [event.micro_batch_after for event in with_rule.guard.events] == [2, 1]

    class Tight(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step == 2:
                hungry(model, 99, 1)

    torch.manual_seed(0)
    later = InOrder(Tagger("clips"), arguments(tmp_path, 4), train_dataset=data, callbacks=[Tight()])
    hungry(later.model, 1, 2)
    guard = attach(later)
    later.train()
    assert [(e.global_step, e.micro_batch_after) for e in guard.events] == [(0, 2), (2, 1)]
    assert (guard.rule, guard.unfit) == ("mean", "")
    later.start = wanted.start
    for got in (with_rule, later):
        assert apart(got, wanted) < 1e-5


def speech2text() -> Any:
    torch.manual_seed(0)
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in
             (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    config = Speech2TextConfig(
        vocab_size=12, d_model=16, input_feat_per_channel=8, conv_channels=16, max_source_positions=64,
        max_target_positions=16, dropout=0.0, activation_dropout=0.0, attention_dropout=0.0, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, **sizes,
    )  # fmt: skip
    return Speech2TextForConditionalGeneration(config)


def causal() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=12, n_positions=32, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def padded(kind: Any) -> list[dict[str, Any]]:
    source, rows = torch.Generator().manual_seed(2), []
    for i in range(16):
        length = 24 if i % 8 == 3 else 8 + i % 8
        mask = (torch.arange(24) < length).long()
        if kind is speech2text:
            labels = torch.full((6,), -100)
            labels[: 1 + i % 4] = torch.randint(3, 12, (1 + i % 4,), generator=source)
            features = torch.randn(24, 8, generator=source) * mask[:, None]
            rows.append({"input_features": features, "attention_mask": mask, "labels": labels})
        else:  # the longest rows end in labels that are ignored
            ids = torch.randint(3, 12, (24,), generator=source) * mask
            labels = torch.where((mask == 1) & (torch.arange(24) < 10), ids, -100)
            rows.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    return rows


@pytest.mark.parametrize("options", [{}, {"micro_batch": 2}])
@pytest.mark.parametrize("kind", [speech2text, causal])
def test_labels_stay_contiguous_and_as_long_as_the_inputs_of_causal_models(
    tmp_path: Path, kind: Any, options: Any
) -> None:
    ends = []
    for guarded in (False, True):
        model, rows = kind(), padded(kind)
        hungry(model, 2 if guarded and not options else 0, 2)
        trainer = InOrder(model, arguments(tmp_path, 8), train_dataset=rows)
        start = [p.detach().clone() for p in model.parameters()]
        if guarded:
            attach(trainer, **options)
        trainer.train()
        ends.append([p.detach() for p in model.parameters()])
    moved = sum(float((p - s).square().sum()) for p, s in zip(ends[0], start, strict=True)) ** 0.5
    off = sum(float((p - q).square().sum()) for p, q in zip(*ends, strict=True)) ** 0.5
    assert off / moved < 1e-5


def test_clips_of_different_classes_are_measured() -> None:
    """A loss that weights its classes is a plain mean over clips of one."""
    labels = torch.zeros(12, dtype=torch.long)
    labels[6] = 1
    for count in (4, 2):
        clips, _ = trial({"input_values": torch.zeros(12, 2), "labels": labels}, count, "labels", None)
        assert set(clips["labels"].tolist()) == {0, 1}


def test_trimmed_is_contiguous_and_leaves_what_it_does_not_understand() -> None:
    row = {n: torch.stack([v, v]) for n, v in padded(causal)[0].items()}
    short = trimmed(row, 8)
    assert {n: (tuple(v.shape), v.is_contiguous()) for n, v in short.items()} == dict.fromkeys(row, ((2, 8), True))
    frames = {**row, "mask_time_indices": torch.zeros(2, 6)}
    assert trimmed(frames, 8) is frames
    longer = {**row, "labels": torch.ones(2, 24)}
    assert trimmed(longer, 8) is longer, "labels that are as long as the input by chance"


class Grouping(Regression):
    """Sees padding where a length does not divide by four, as models that join frames in groups do."""

    def forward(self, x: Any = None, labels: Any = None, index: Any = None, **inputs: Any) -> Any:
        values, mask = inputs["input_values"], inputs["attention_mask"]
        over = values.shape[1] % 4
        clip = (values * mask).sum(1) / mask.sum(1) + (0.1 * over if over else 0.0)
        if self.training:
            self.seen.append(values.shape[1])
        return {"loss": mse_loss(self.last(torch.tanh(self.first(clip[:, None].expand(-1, 6)))), labels)}


def test_padding_stays_where_some_lengths_see_it(tmp_path: Path) -> None:
    """The shortest clip does not: its length divides by four."""
    rows = []
    for i in range(16):
        n = (4, 8, 13, 16)[i % 4]
        rows.append({
            "input_values": torch.sin(torch.arange(16.0) + i), "attention_mask": (torch.arange(16) < n).long(),
            "labels": torch.tensor([float(i % 3)]),
        })  # fmt: skip
    torch.manual_seed(0)
    trainer = InOrder(Grouping(), arguments(tmp_path, 8, remove_unused_columns=False), train_dataset=rows)
    attach(trainer, micro_batch=2, rule="mean")
    trainer.train()
    assert set(trainer.model.seen) == {16}
