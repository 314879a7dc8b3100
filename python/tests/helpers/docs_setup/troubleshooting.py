"""A folder of clips, and what a training has."""

from functools import partial

from transformers import Trainer

import asrconfig_go
from docs_setup import stand_ins

stand_ins.folder()
# The model that is planned for by name is large: from its config.
create_optimal_config = partial(asrconfig_go.create_optimal_config, trace=False)
dataset, model, collator = stand_ins.prepared(), stand_ins.model(), stand_ins.collator
