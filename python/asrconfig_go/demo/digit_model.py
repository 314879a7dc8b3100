"""The demo's model: a wav2vec2 with CTC head, under a hundredth of the size of wav2vec2-base, with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .digits import BLANK, Collator

if TYPE_CHECKING:
    import datasets
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC


def small_config(tokens: int) -> Wav2Vec2Config:
    """Return the architecture: four strided convolutions (one frame each 20 ms), then three transformer layers."""
    from transformers import Wav2Vec2Config

    return Wav2Vec2Config(
        vocab_size=tokens,
        pad_token_id=BLANK,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        conv_dim=[32, 64, 128, 128],  # the first layers run at the highest rate, so width costs most there
        conv_stride=[16, 5, 2, 2],  # 320 samples a frame, as in the published wav2vec2 models
        conv_kernel=[32, 10, 4, 4],
        conv_bias=True,
        feat_extract_activation="relu",  # the gradient of "gelu" alone would take a sixth of a CPU's step
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=4,
        # Layer normalisation instead of group normalisation: a clip's result does not depend on its padding.
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        # The clips are few, so masked frames keep the model from learning them by heart. The masks are short, because
        # a digit is only about 15 frames long.
        mask_time_prob=0.1,
        mask_time_length=3,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        ctc_loss_reduction="mean",  # the default, "sum", makes the gradient grow with the batch
        ctc_zero_infinity=True,
    )


def small_model(tokens: int, seed: int) -> Wav2Vec2ForCTC:
    """Return the model with random weights that depend on `seed` alone; torch's own random state is left as it was."""
    import torch
    from transformers import Wav2Vec2ForCTC

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Wav2Vec2ForCTC(small_config(tokens))


def transcribe(model: Wav2Vec2ForCTC, dataset: datasets.Dataset, collator: Collator, batch: int = 20) -> list[str]:
    """Return the greedy transcript of every row, in order, `batch` clips (at least 1) at a time.

    The model is left in evaluation mode.
    """
    import torch

    model.eval()
    rows: list[dict[str, Any]] = list(dataset)
    texts = []
    for start in range(0, len(rows), batch):
        inputs = {name: tensor.to(model.device) for name, tensor in collator(rows[start : start + batch]).items()}
        del inputs["labels"]
        with torch.inference_mode():
            tokens = model(**inputs).logits.argmax(dim=-1)
        # Frames past the end of a clip come from its padding and say nothing.
        frames = model._get_feat_extract_output_lengths(inputs["attention_mask"].sum(dim=-1)).tolist()
        texts += [collator.vocabulary.decode(row[:count]) for row, count in zip(tokens.tolist(), frames, strict=True)]
    return texts
