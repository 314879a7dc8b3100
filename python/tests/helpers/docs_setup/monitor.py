"""A loop of your own."""

from pathlib import Path

loader, batch_seconds = [1, 2, 3], 4.0
Path("run").mkdir()


def train(batch):
    return batch
