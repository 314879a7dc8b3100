"""A folder of clips, a model, and what a training is made of."""

from transformers import Trainer, TrainingArguments

import asrconfig_go as ac
from docs_setup import stand_ins

stand_ins.folder(count=64)
model, collator, dataset = stand_ins.model(), stand_ins.collator, stand_ins.prepared(64)
manager = ac.ASRConfigManager()
