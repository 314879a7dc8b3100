"""A trainer's parts, and a loop by accelerate over the same batches."""

import torch
from accelerate import Accelerator
from transformers import Trainer

import asrconfig_go as ac
from docs_setup import stand_ins

model, args, dataset, collator = stand_ins.model(), stand_ins.arguments(), stand_ins.prepared(), stand_ins.collator
manager, seconds = ac.ASRConfigManager(), 4.0
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
loader = torch.utils.data.DataLoader(dataset, batch_size=4, collate_fn=collator)
evaluation = [1, 2]
monitor = ac.MemoryMonitor()


def train() -> None:
    """Nothing to wait for."""
