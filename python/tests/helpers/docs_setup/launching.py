"""A plan for two T4."""

import asrconfig_go as ac
from docs_setup import stand_ins

config, manager = ac.create_optimal_config(
    stand_ins.prepared(), stand_ins.model(), gpu="2xT4", trace=False, verbose=False
)
