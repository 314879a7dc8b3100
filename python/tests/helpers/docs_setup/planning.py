"""A folder of clips, a model, and a network of your own."""

from functools import partial

import torch

import asrconfig_go
from docs_setup import stand_ins

stand_ins.folder()
model = network = stand_ins.model()
# The model that is planned for by name is large: from its config.
create_optimal_config = partial(asrconfig_go.create_optimal_config, trace=False, verbose=False)
