"""What hints say to set is set, and a training runs with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from hint_sources import Hint, all_hints  # noqa: E402
from speech_models import gradient, wav2vec2  # noqa: E402
from tiny_training import tiny_trainer  # noqa: E402

_SETTING = re.compile(r"\bset ([a-z]\w+)=([\w.{}]+)(?: and (\w+)=(\{\".*?\}|[\w.{}]+))?")
ADVICE = [h for h in all_hints() if re.match(r"core/(diagnosis|forecast|recovery)/|.*/cautions.py", h.file)]
# Without workers the Trainer refuses what is about them; these hints are for trainings that have some.
_WITH_WORKERS = {"dataloader_persistent_workers", "dataloader_prefetch_factor"}


def ids(hint: Hint) -> str:
    return hint.text[:60]


@pytest.mark.parametrize("hint", [h for h in ADVICE if _SETTING.search(h.text) and "ctc_" not in h.text], ids=ids)
@pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")
def test_settings_are_taken(hint: Hint, tmp_path: Path) -> None:
    found = _SETTING.search(hint.text)
    assert found is not None
    settings = {name: _value(text) for name, text in (found.group(1, 2), found.group(3, 4)) if name and "_" in name}
    if any(name in _WITH_WORKERS for name in settings):
        settings["dataloader_num_workers"] = 1
    if "bf16" in hint.text:
        settings["bf16"] = True
    if settings.pop("gradient_checkpointing", None):  # of a model with layers
        gradient("ctc mean", tmp_path, 1, 1, lambda t: (t.model.gradient_checkpointing_enable(), t.train()))
    trainer = tiny_trainer(tmp_path, max_steps=1, **settings)
    trainer.train()
    trainer.evaluate()


def _value(text: str) -> Any:
    if text.startswith('{"'):
        return json.loads(text.replace("True", "true"))
    return {"True": True, "False": False}.get(text, 2 if text == "{}" else int(text) if text.isdigit() else text)


@pytest.mark.parametrize("hint", [h for h in ADVICE if "halve" in h.text or "double" in h.text], ids=ids)
def test_halving_keeps_the_effective_batch(hint: Hint, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "dataloader_num_workers": 2,
        "per_device_eval_batch_size": 8,
    }  # fmt: skip
    before = tiny_trainer(tmp_path, **sizes)
    changed = dict(sizes)
    for word, factor in (("halve", 0.5), ("double", 2)):
        for name in re.findall(rf"\b{word} (\w+_\w+)", hint.text):
            changed[name] = int(factor * changed[name])
    assert changed != sizes
    after = tiny_trainer(tmp_path, **{**changed, "dataloader_num_workers": 0})
    effective = [t.args.train_batch_size * t.args.gradient_accumulation_steps for t in (before, after)]
    assert effective[0] == effective[1]
    after.train()
    assert after.state.global_step == 2
    after.evaluate()


@pytest.mark.parametrize("hint", [h for h in ADVICE if "preprocess_logits_for_metrics=" in h.text], ids=ids)
def test_predictions_are_kept_as_tokens(hint: Hint) -> None:
    code = hint.text.partition("preprocess_logits_for_metrics=")[2].rstrip(".")
    keep = eval(code)
    logits = torch.randn(2, 5, 7)
    assert keep(logits, None).shape == (2, 5)
    assert keep((logits, torch.zeros(1)), None).shape == (2, 5), "models with a decoder give more than logits"


@pytest.mark.parametrize("hint", [h for h in all_hints() if "expandable_segments" in h.text], ids=ids)
def test_allocator_settings_are_understood(hint: Hint) -> None:
    from asrconfig_go._base import native

    for settings in re.findall(r"expandable_segments:\w+", hint.text):
        native.call("memory.replay", {"events": [5, -1], "settings": settings})


@pytest.mark.parametrize("hint", [h for h in ADVICE if "ctc_zero_infinity" in h.text], ids=ids)
def test_texts_without_a_path_no_longer_make_the_loss_infinite(hint: Hint) -> None:
    model = wav2vec2("mean").eval()
    model.config.ctc_zero_infinity = False
    clip, text = torch.randn(1, 1600), torch.arange(2000)[None] % 5 + 1
    assert not torch.isfinite(model(clip, labels=text).loss)
    model.config.ctc_zero_infinity = True
    assert torch.isfinite(model(clip, labels=text).loss)
