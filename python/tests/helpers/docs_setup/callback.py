"""A training with settings of its own."""

from transformers import Trainer

from docs_setup import stand_ins

dataset, model, collator, args = stand_ins.prepared(), stand_ins.model(), stand_ins.collator, stand_ins.arguments()
