"""What is read of the code of a loss: all that changes its divisor, and nothing else."""

from __future__ import annotations

import ast
import functools
import textwrap
from typing import Any

import pytest
import torch

from asrconfig_go.guard.loss_code import LossCode, code_of, forward_is_own, is_own, loss_code

PLAIN = """
def forward(self, x, labels=None, attention_mask=None, output_router_logits=None, **kwargs):
    \"\"\"Computes a loss.\"\"\"
    lm_logits = self.head(x)
    masked_lm_loss = None
    if labels is not None:
        labels = labels.to(lm_logits.device)
        loss_fct = nn.CrossEntropyLoss(ignore_index=-100)
        masked_lm_loss = loss_fct(lm_logits.view(-1, self.config.vocab_size), labels.reshape(-1))
    if not return_dict:
        output = (lm_logits,) + x[1:]
        return ((masked_lm_loss,) + output) if masked_lm_loss is not None else output
    return Output(loss=masked_lm_loss, logits=lm_logits)
"""
READ = {"loss_fct = CrossEntropyLoss()", "loss = loss_fct(labels)"}
LAST = "    return Output(loss=masked_lm_loss, logits=lm_logits)"
CALL = "masked_lm_loss = loss_fct(lm_logits.view(-1, self.config.vocab_size), labels.reshape(-1))"


def read(source: str) -> LossCode:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    return code_of(function)


def test_what_does_not_change_the_divisor_is_not_read() -> None:
    assert read(PLAIN) == LossCode(frozenset(READ), False, False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ignore_index=-100", "ignore_index=0"),
        ("ignore_index=-100", "reduction='sum'"),
        ("ignore_index=-100", "weight=self.weight"),
        ("labels.to(lm_logits.device)", "labels.masked_fill(labels == 0, -100)"),
        ("labels.to(lm_logits.device)", "labels[:, 1:]"),
        ("labels.reshape(-1)", "labels[..., 1:].reshape(-1)"),
        ("loss=masked_lm_loss", "loss=masked_lm_loss + aux"),
        ("loss=masked_lm_loss", "loss=combine(masked_lm_loss, aux)"),
        (LAST, "    masked_lm_loss += 0.1 * aux\n" + LAST),
        (LAST, "    masked_lm_loss = masked_lm_loss / 2\n" + LAST),
        (LAST, "    masked_lm_loss.mul_(2)\n" + LAST),
        (LAST, "    for each in aux:\n        masked_lm_loss = masked_lm_loss + each\n" + LAST),
        (LAST, "    (masked_lm_loss, aux) = combine(masked_lm_loss, aux)\n" + LAST),
        (LAST, "    if output_router_logits or self.training:\n        masked_lm_loss += aux\n" + LAST),
    ],
)
def test_what_changes_the_loss_is_read(old: str, new: str) -> None:
    assert old in PLAIN
    assert read(PLAIN.replace(old, new)).statements != READ


def test_num_items_in_batch_is_passed_by_name_or_in_kwargs() -> None:
    def of(arguments: str) -> LossCode:
        return read(PLAIN.replace(CALL, f"loss = self.loss_function(lm_logits, labels, {arguments})"))

    expected = {"loss_fct = CrossEntropyLoss()", "loss = self.loss_function(labels)"}
    assert of("self.config.vocab_size") == LossCode(frozenset(expected), False, False)
    for arguments in ("**kwargs", "num_items_in_batch=kwargs.get('num_items_in_batch')"):
        assert of(arguments) == LossCode(frozenset(expected), True, False)
    assert of("**others").statements != expected


def test_what_a_router_adds_is_left_out_and_told() -> None:
    source = PLAIN.replace(LAST, "    if output_router_logits:\n        masked_lm_loss += aux\n" + LAST)
    assert read(source) == LossCode(frozenset(READ), False, True)


def test_a_forward_without_source_or_of_another_class_is_not_read() -> None:
    names: dict[str, Any] = {}
    exec(textwrap.dedent(PLAIN), names)  # as generated code is made
    kind = type("Kind", (), {"forward": names["forward"]})
    assert loss_code(kind) is None
    names["forward"].__qualname__ = "Kind.forward"
    assert loss_code(kind) is None
    assert loss_code(torch.nn.Linear) == LossCode(frozenset(), False, False)


def test_whose_forwards_are_own() -> None:
    linear = torch.nn.Linear(2, 2)
    assert is_own(linear)
    assert forward_is_own(linear)

    @functools.wraps(linear.forward)
    def forward(x: Any) -> Any:
        return x

    linear.forward = forward
    assert not forward_is_own(linear)
    assert not is_own(torch.nn.Sequential(linear))
