"""What the cell calls yours: a dataset, a model and a collator."""

from transformers import Trainer

from docs_setup import stand_ins

dataset, model, collator = stand_ins.prepared(), stand_ins.model(), stand_ins.collator
