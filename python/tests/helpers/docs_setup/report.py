"""The folder of a run, a trainer that has settings, and an export of the run."""

from pathlib import Path

from asrconfig_go.report import export
from docs_setup import stand_ins
from made_runs import trained
from run_logs import saved

saved(trained(), Path("out/asrconfig_monitor.json"))
export("out", "run.csv")
trainer = stand_ins.trainer()


def train() -> None:
    """Nothing to wait for."""
