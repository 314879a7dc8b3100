"""A plan for two T4, and a script's model and data."""

import os
from types import SimpleNamespace

from transformers import Trainer

import asrconfig_go as ac
from docs_setup import stand_ins

dataset, collator = stand_ins.prepared(), stand_ins.collator
config, manager = ac.create_optimal_config(dataset, stand_ins.model(), gpu="2xT4", trace=False, verbose=False)
AutoModelForCTC = SimpleNamespace(from_pretrained=lambda name: stand_ins.model())
