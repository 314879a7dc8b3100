"""The folders of runs, a trainer that has settings, and an export of the run."""

from pathlib import Path

from asrconfig_go.watch import export
from docs_setup import stand_ins
from made_runs import put_run, trained

put_run(Path("out"), trained())
put_run(Path("leaking"), trained(seconds=1200, steps=460), wer=0.23)
put_run(Path("mended"), trained(leak=False), batch=16)
export("out", "run.csv")
trainer = stand_ins.trainer()
