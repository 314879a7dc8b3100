"""Clips of different lengths under the guard: padding that is taken off, and clips that do not fit alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

from asrconfig_go._core.batches import Extent, extent, own_lengths, spoken_lengths
from asrconfig_go._core.padding import trimmed
from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError
from asrconfig_go.guard import attach
from asrconfig_go.guard.loss_table import loss_of
from speech_models import CTC_SIZES, wav2vec2
from tiny_training import Regression, running_short, tiny_trainer
from uneven_clips import Collator, Run, UnevenClips


def batch(*lengths: int) -> dict[str, Any]:
    audio = torch.zeros(len(lengths), max(lengths))
    for row, n in zip(audio, lengths, strict=True):
        row[:n] = 1
    labels = torch.tensor([[1, 2, -100, -100]] * len(lengths))
    return {"input_values": audio, "attention_mask": audio.long(), "labels": labels}


def test_lengths_with_and_without_padding() -> None:
    for kind in (torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32):
        masked = batch(3, 300, 5)
        assert own_lengths({**masked, "attention_mask": masked["attention_mask"].to(kind)}) == [3, 300, 5]
    assert extent(batch(3, 7)) == Extent(7)
    unmasked = {n: v for n, v in batch(3, 7).items() if n != "attention_mask"}
    assert own_lengths(unmasked) is None
    assert spoken_lengths(unmasked) == [3, 7]
    assert spoken_lengths({"input_values": torch.zeros(2, 4)}) == [1, 1]
    odd = batch(3, 7)
    odd["attention_mask"][0, 0] = 0
    assert own_lengths(odd) is None, "padding on the left is not told from silence"
    frames = {"input_features": torch.zeros(2, 100, 8), "attention_mask": torch.ones(2, 100)}
    assert extent(frames) == Extent(100, width=8)
    assert extent({"input_features": torch.zeros(2, 80, 3000)}) == Extent(3000, width=80), "Whisper's"
    assert extent({"x": torch.zeros(3, 4)}) == Extent(1)


def test_trimmed_takes_input_mask_and_unused_labels() -> None:
    short = trimmed(batch(3, 7), 5)
    assert {n: tuple(v.shape) for n, v in short.items()} == {
        "input_values": (2, 5), "attention_mask": (2, 5), "labels": (2, 2)
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "limit"), [("ctc mean", 5600), ("ctc sum", 5600), ("w2v-bert", 320)])
def test_micro_batches_of_similar_clips_without_padding_end_as_the_whole_batch(
    tmp_path: Path, kind: str, limit: int
) -> None:
    settings = {"learning_rate": 1e-4 if kind == "ctc sum" else 1e-2}
    calm = Run(tmp_path, kind, settings=settings).train()
    run = Run(tmp_path, kind, limit, settings=settings).train()
    assert run.apart(calm) < 1e-5
    assert run.collator.order == calm.collator.order
    assert run.guard.events
    assert {n for n, _ in calm.appetite.shapes} == {8}
    shapes = run.appetite.shapes[8:]
    assert max(n * length for n, length in shapes) <= limit
    assert len({n for n, _ in shapes}) > 2, "short clips form larger micro-batches"
    longest = {length for _, length in calm.appetite.shapes}
    assert {length for _, length in shapes} - longest, "some are shorter than any whole batch"


def test_batches_that_fit_are_cut_where_it_saves_padding(tmp_path: Path) -> None:
    """A micro-batch is said to cost as much as 100 samples of audio, or as much as several whole batches."""
    calm = Run(tmp_path).train()
    unsplit = Run(tmp_path, overhead_s=10.0).train()
    assert {n for n, _ in unsplit.appetite.shapes} == {8}
    cut = Run(tmp_path, overhead_s=100 / 16_000).train()
    assert not cut.guard.events, "nothing was out of memory"
    assert cut.apart(calm) < 1e-5
    assert cut.collator.order == calm.collator.order
    computed = sum(n * length for n, length in cut.appetite.shapes)
    assert computed < 0.8 * sum(n * length for n, length in calm.appetite.shapes)
    assert {n for n, _ in cut.appetite.shapes} > {1, 2}
    with pytest.raises(InvalidArgumentError, match=r"overhead_s = -1.* is out of range"):
        Run(tmp_path, overhead_s=-1.0)


def test_padding_stays_where_norms_see_it(tmp_path: Path) -> None:
    """As in wav2vec2-base, whose first layer normalises over time."""

    def model() -> Any:
        torch.manual_seed(0)
        return Wav2Vec2ForCTC(Wav2Vec2Config(ctc_loss_reduction="mean", **{**CTC_SIZES, "feat_extract_norm": "group"}))

    loss = loss_of(model())
    assert loss is not None and not loss.trims
    run = Run(tmp_path, "ctc mean", 3000, model=model()).train()
    assert {length for _, length in run.appetite.shapes} <= _batch_lengths(run)
    assert run.guard.events and run.guard.knows_rule
    assert run.apart(Run(tmp_path, "ctc mean", model=model()).train()) < 1e-5


def _batch_lengths(run: Run) -> set[int]:
    clips = UnevenClips("ctc mean")
    order, padded = run.collator.order, set()
    for i in range(0, len(order), 8):
        padded.add(max(len(clips[j]["audio"]) for j in order[i : i + 8]))
    return padded


def test_a_model_whose_loss_sees_padding_keeps_it(tmp_path: Path) -> None:
    model = wav2vec2("mean")
    forward = model.forward

    def leaky(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        out.loss = out.loss + 0.01 * kwargs["input_values"].shape[1]
        return out

    model.forward = leaky
    run = Run(tmp_path, "ctc mean", 3000, model=model, rule="mean").train()
    assert {length for _, length in run.appetite.shapes} <= _batch_lengths(run)


def test_a_clip_that_does_not_fit_alone_ends_the_run_unless_it_may_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError, match="ran out of GPU memory"):
        Run(tmp_path, limit=1500).train()
    run = Run(tmp_path, limit=1500, too_long="skip").train()
    clips = UnevenClips("ctc mean").items
    long = [c["id"] for c in clips if len(c["audio"]) > 1500]
    assert len(long) == 2
    assert run.guard.skipped == 4, "in each epoch"
    assert [e.place for e in run.guard.events].count("skipped") == 2, "the second time it is known"
    assert "4 clips were too long" in repr(run.guard)

    class Without(Collator):
        def __call__(self, rows: Any) -> Any:
            return super().__call__([row for row in rows if row["id"] not in long])

    calm = Run(tmp_path)
    calm.trainer.data_collator = Without()
    assert run.apart(calm.train()) < 1e-5, "the others weigh what they would without it"
    losses = [[e["loss"] for e in r.trainer.state.log_history if "loss" in e] for r in (run, calm)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_function_may_replace_a_clip_that_is_too_long(tmp_path: Path) -> None:
    clips = []

    def halves(sample: Any) -> list[Any]:
        clips.append(sample["input_values"].shape)
        middle = sample["input_values"].shape[1] // 2
        first = trimmed(sample, middle)
        second = {**sample, "input_values": sample["input_values"][:, middle:]}
        return [first, {**second, "attention_mask": sample["attention_mask"][:, middle:]}]

    run = Run(tmp_path, limit=1500, too_long=halves).train()
    assert sorted(clips) == [(1, 1580), (1, 1580), (1, 1600), (1, 1600)]
    assert {(1, 790), (1, 800)} <= set(run.appetite.shapes)
    assert run.guard.skipped == 4
    assert run.trainer.state.global_step == 6


def test_each_replacement_counts_once(tmp_path: Path) -> None:
    """Two long clips of one batch, each replaced by two halves: a step of 10 clips instead of 8."""
    run = Run(tmp_path, limit=1300, too_long=lambda sample: [trimmed(sample, 400), trimmed(sample, 300)])
    engine, factors = run.guard._engine, []
    finish = engine.finish

    def noting(left_out: Any) -> float:
        factors.append((len(engine.window.calls[0].replacements), left_out, finish(left_out)))
        return factors[-1][-1]

    engine.finish = noting  # type: ignore[method-assign]
    run.train()
    assert max(n for n, _, _ in factors) > 2, "more than one of a batch"
    for made, left_out, factor in factors:
        assert left_out == -made // 2
        assert factor == pytest.approx(8 / (8 + made // 2))


def test_a_clip_of_an_unknown_input_may_be_left_out_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Regression()
    model.fail = running_short(4, 0)  # of 4, 2, and of 1 twice
    trainer = tiny_trainer(tmp_path, model=model)
    guard = attach(trainer, too_long="skip", rule="mean")
    trainer.train()
    assert [(e.micro_batch_before, e.micro_batch_after) for e in guard.events] == [(4, 2), (2, 1), (1, 1), (1, 0)]
    assert (guard.skipped, trainer.state.global_step) == (1, 4)


def test_the_pre_flight_finds_what_will_be_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path, limit=1500, too_long="skip", preflight=0.1).train()
    assert {e.place for e in run.guard.events if e.global_step == 0} >= {"pre-flight", "skipped"}
    assert run.guard.skipped == 4, "the trial does not count"
    assert run.trainer.state.global_step == 6


def test_a_step_of_nothing_but_long_clips_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError, match="every clip of an optimizer step"):
        Run(tmp_path, limit=100, too_long="skip").train()
