"""A folder of clips and a model."""

from asrconfig_go import create_optimal_config
from docs_setup import stand_ins

stand_ins.folder()
model = stand_ins.model()
