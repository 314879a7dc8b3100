"""What a training has that runs already."""

from docs_setup import stand_ins

dataset, model = stand_ins.prepared(), stand_ins.model()
