"""A trainer of two steps, and a manager."""

import asrconfig_go
from docs_setup import stand_ins

trainer, manager = stand_ins.trainer(max_steps=2), asrconfig_go.ASRConfigManager()
