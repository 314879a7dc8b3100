"""A trainer of one step, and a manager."""

import asrconfig_go
from asrconfig_go import ASRConfigManager
from docs_setup import stand_ins

trainer, manager = stand_ins.trainer(), ASRConfigManager(gpu="T4")
memory_model = asrconfig_go.MemoryModel.trace(trainer.model, precision="fp32", gpu="T4")
