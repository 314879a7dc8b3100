"""What is predicted of a training, before it runs and without CUDA."""

from __future__ import annotations

import warnings
from typing import Any

import models
import plain_loop
from cases import Case

from asrconfig_go.errors import UnsupportedError
from asrconfig_go.predict import MemoryEstimate, MemoryModel
from asrconfig_go.predict.memory_settings import Target
from asrconfig_go.trace import MemoryRecorder, TraceError


def predict(case: Case) -> dict[str, Any]:
    """Peaks in bytes, in all and by phase, and whether it fits the card."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimate = _of_trainer(case) if case.loop == "trainer" else _of_plain_loop(case)
    return {
        "allocated": estimate.peak_allocated,
        "reserved": estimate.peak_reserved,
        "pinned": estimate.pinned_bytes,
        "fits": estimate.fits,
        **{phase: _peak(estimate, phase) for phase in ("forward", "backward")},
    }


def _peak(estimate: MemoryEstimate, phase: str) -> int:
    return max(row.peak_allocated for row in estimate.phases if row.phase == phase)


def _of_trainer(case: Case) -> MemoryEstimate:
    about = models.MODELS[case.model]
    own: dict[str, Any] = {}
    if about.kind != "transformer":
        own["batch_fn"] = lambda batch, length, labels: models.batch(about, batch, length, labels)
        own["length_per_second"] = models.units(about)
    try:
        return _traced(case, own)
    except TraceError:  # whatever the shape
        raise
    except UnsupportedError:  # SEW: what it makes of a length follows no formula, so that the shape itself is traced
        return _traced(case, own | {"points": [(case.batch, _length(case), _labels(case))]})


def _traced(case: Case, own: dict[str, Any]) -> MemoryEstimate:
    checkpointing: Any = case.checkpointing or False
    with MemoryModel.trace(
        models.MODELS[case.model].build(),
        precision=case.precision,  # type: ignore[arg-type]
        optimizer=case.optimizer,  # type: ignore[arg-type]
        gpu=case.gpu,
        gradient_checkpointing=checkpointing,
        every_n_layers=case.every_n_layers,
        offload_checkpoints=case.offload_checkpoints,
        accumulation=case.accumulation,
        allocator=case.allocator,
        cache=False,
        progress=False,
        **own,
    ) as memory:
        return memory.estimate(case.batch, case.seconds, _labels(case))


def _length(case: Case) -> int:
    return round(case.seconds * models.units(models.MODELS[case.model]))


def _labels(case: Case) -> int:
    return round(case.seconds * models.MODELS[case.model].labels_per_second)


def _of_plain_loop(case: Case) -> MemoryEstimate:
    target = Target.find(case.gpu)
    with MemoryRecorder(compute_capability=target.capability) as recorder:
        model = models.MODELS[case.model].build()
        recorder.load(model)
        recorder.segment("iteration")
        plain_loop.train(case, model, recorder.place, recorder.step)
        trace = recorder.trace()
    with MemoryModel.load(trace, gpu=case.gpu, allocator=case.allocator) as memory:
        return memory.as_recorded(plain_loop.STEPS)
