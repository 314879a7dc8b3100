"""A stream of shards, a model and a processor for it."""

from pathlib import Path

from asrconfig_go.recipe import build_processor, load_model
from streamed_training import make_shards, open_shards

clips = 32


def stream():
    return open_shards(make_shards(Path("shards"), "parquet", clips, 4), "parquet")


processor = build_processor([row["text"] for row in stream()], "tiny-wav2vec2")
model = load_model("tiny-wav2vec2", processor)
