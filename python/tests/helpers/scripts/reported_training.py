"""A training whose reporter is W&B (offline) or MLflow (a folder): run as a script, as both leave processes behind.

``reported_training.py REPORTER FOLDER`` prints the logged values as JSON: name -> [[step, value], …].
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrconfig_go.watch.callback import AdaptiveMemoryCallback
from tiny_training import tiny_trainer
from watching_fakes import FakeMonitor, gpu, makes

_BLOCK, _HEAD, _FULL_OR_LAST = 32768, 7, (1, 4)


def records(data: bytes) -> Iterator[bytes]:
    """Those of a W&B run file: LevelDB's log format behind a head of the size of a record's."""
    at, parts = _HEAD, b""
    while at + _HEAD <= len(data):
        if at % _BLOCK > _BLOCK - _HEAD:  # what is left of a block is padding
            at += _BLOCK - at % _BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + _HEAD : at + _HEAD + size]
        at += _HEAD + size
        if kind in _FULL_OR_LAST:
            yield parts
            parts = b""


def of_wandb(folder: Path) -> dict[str, Any]:
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.finish()
    (file,) = folder.rglob("run-*.wandb")
    found: dict[str, Any] = {}
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name, value in items.items():
                found.setdefault(name, []).append([items.get("train/global_step"), value])
    return found


def of_mlflow(folder: Path) -> dict[str, Any]:
    import mlflow

    client = mlflow.tracking.MlflowClient()
    (run,) = [run for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]
    return {
        name: [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


def main() -> None:
    reporter, folder = sys.argv[1], Path(sys.argv[2])
    os.environ.update(
        WANDB_MODE="offline",
        WANDB_DIR=str(folder),
        WANDB_SILENT="true",
        MLFLOW_TRACKING_URI=(folder / "mlruns").as_uri(),
        MLFLOW_ALLOW_FILE_STORE="true",
    )
    monitor = FakeMonitor([gpu(1.0), gpu(2.0), gpu(3.0), gpu(4.0)])
    callback = AdaptiveMemoryCallback(monitor=makes(monitor), run_file=False)
    tiny_trainer(folder / "out", callbacks=[callback], logging_steps=2, report_to=reporter).train()
    print(json.dumps({"wandb": of_wandb, "mlflow": of_mlflow}[reporter](folder)))


if __name__ == "__main__":
    main()
