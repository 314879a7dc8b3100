"""A trainer of two steps."""

import asrconfig_go as ac
from docs_setup import stand_ins

trainer, manager = stand_ins.trainer(max_steps=2), ac.ASRConfigManager()
