"""A model, lengths, and the bytes of a small budget."""

import asrconfig_go as ac
from docs_setup import stand_ins

model, durations, budget = stand_ins.model(), [0.5 + 0.01 * k for k in range(320)], 2_000_000_000
