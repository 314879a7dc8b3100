"""Clips and a model."""

import asrconfig_go as ac
from docs_setup import stand_ins

dataset, model = stand_ins.clips(), stand_ins.model()
