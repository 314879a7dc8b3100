"""A folder of clips, and a trainer of two steps."""

from functools import partial

import asrconfig_go
from docs_setup import stand_ins

stand_ins.folder()
# The model that is planned for by name is large: from its config.
create_optimal_config = partial(asrconfig_go.create_optimal_config, trace=False)
trainer, manager = stand_ins.trainer(max_steps=2), asrconfig_go.ASRConfigManager()
