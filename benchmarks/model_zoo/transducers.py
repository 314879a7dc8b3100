"""Transducers: a joint network over all pairs of frames and labels."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from material import PAD, Sizes, Subject, filterbank, mask, padded, row, tokens

_KIND = "transducer"


def fast_conformer(sizes: Sizes, **more: Any) -> dict[str, Any]:
    """The encoder of the Parakeet family without what is drawn at random."""
    return {
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.feed_forward,
        "subsampling_conv_channels": sizes.channels,
        "dropout": 0.0,
        "dropout_positions": 0.0,
        "layerdrop": 0.0,
        "activation_dropout": 0.0,
        "attention_dropout": 0.0,
        **more,
    }


def collator(blank: int, padding: int, **more: Any) -> Any:
    """Features with a mask, the labels, and the decoder's input, which starts with the blank token."""

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        frames = [filterbank(clip, 80) for clip in clips]
        texts = [tokens(clip) for clip in clips]
        return {
            "input_features": padded(frames),
            "attention_mask": mask(frames, torch.bool),
            "labels": padded(texts, padding),
            "decoder_input_ids": padded([torch.cat([text.new_tensor([blank]), text]) for text in texts], padding),
            **{name: value(clips) if callable(value) else value for name, value in more.items()},
        }

    return collate


def _decoder(sizes: Sizes) -> dict[str, Any]:
    return {"vocab_size": sizes.labels + 1, "decoder_hidden_size": sizes.width, "num_decoder_layers": 1,
            "pad_token_id": PAD, "blank_token_id": sizes.labels}  # fmt: skip


@row("Parakeet RNN-T", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.ParakeetRNNTConfig(**_decoder(sizes), encoder_config=fast_conformer(sizes))
    return Subject(_rnnt_loss(t.ParakeetForRNNT(config)), collator(sizes.labels, PAD))


def _tdt(sizes: Sizes) -> Subject:
    config = t.ParakeetTDTConfig(**_decoder(sizes), encoder_config=fast_conformer(sizes))
    return Subject(t.ParakeetForTDT(config), collator(sizes.labels, PAD))


row("Parakeet TDT", _KIND)(_tdt)


@row("Parakeet TDT, 8 192 labels", _KIND)
def _(sizes: Sizes) -> Subject:
    import dataclasses

    return _tdt(dataclasses.replace(sizes, labels=8192))


@row("Parakeet TDT, encoder frozen", _KIND)
def _(sizes: Sizes) -> Subject:
    whole = _tdt(sizes)
    whole.model.encoder.requires_grad_(False)
    return whole


def _rnnt_loss(model: Any) -> Any:
    """The loss of RNN-T in torch's operations: transformers 5.24 calls torchaudio, which has no build for torch 2.15.

    It also stands for the loss of the Nemotron classes, which 5.24 calls without the lengths that it needs.
    """

    def loss(logits: torch.Tensor, labels: torch.Tensor, encoder_outputs: Any = None, **given: Any) -> torch.Tensor:
        frames = given["logit_lengths"] if encoder_outputs is None else encoder_outputs.attention_mask.sum(-1)
        lengths = (labels != model.config.pad_token_id).sum(-1)
        return transducer_loss(logits, labels, frames, lengths, model.config.blank_token_id)

    model.loss_function = loss
    return model


def transducer_loss(
    logits: torch.Tensor, labels: torch.Tensor, frames: torch.Tensor, lengths: torch.Tensor, blank: int
) -> torch.Tensor:
    """Of each path through frames and labels the probability, by a recursion over frames; the mean of a label."""
    scores = torch.log_softmax(logits.float(), -1)
    blanks = scores[..., blank]
    targets = labels.clamp(min=0)[:, None, :, None].expand(-1, scores.shape[1], -1, 1)
    emitted = scores[:, :, :-1].gather(3, targets)[..., 0].cumsum(2)
    emitted = torch.nn.functional.pad(emitted, (1, 0))
    reached = [emitted[:, 0]]
    for step in range(1, scores.shape[1]):
        entered = reached[-1] + blanks[:, step - 1]
        reached.append(emitted[:, step] + torch.logcumsumexp(entered - emitted[:, step], 1))
    alphas, clips = torch.stack(reached, 1), torch.arange(len(logits), device=logits.device)
    last = frames.to(logits.device).clamp(min=1) - 1
    ends = lengths.to(logits.device)
    return -(alphas[clips, last, ends] + blanks[clips, last, ends]).sum() / ends.sum()


def _streaming(sizes: Sizes) -> dict[str, Any]:
    return fast_conformer(sizes, sliding_window=21, default_num_lookahead_tokens=3)


@row("Nemotron ASR streaming", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.NemotronAsrStreamingConfig(**_decoder(sizes), encoder_config=_streaming(sizes))
    model = _rnnt_loss(t.NemotronAsrStreamingForRNNT(config))
    return Subject(model, collator(sizes.labels, PAD, num_lookahead_tokens=3))


@row("Nemotron 3.5 ASR", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.Nemotron3_5AsrConfig(
        **_decoder(sizes),
        num_prompts=16,
        default_prompt_id=3,
        prompt_intermediate_size=sizes.feed_forward,
        encoder_config=_streaming(sizes) | {"model_type": "nemotron_asr_streaming_encoder"},
    )
    model = _rnnt_loss(t.Nemotron3_5AsrForRNNT(config))
    prompts = {"num_lookahead_tokens": 3, "prompt_ids": lambda clips: torch.full((len(clips),), 3)}
    return Subject(model, collator(sizes.labels, PAD, **prompts))
