"""How much GPU memory a training needs, without a GPU: ``estimate_memory``."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from .._base.checks import checked
from .._base.choices import Checkpointing, Estimator, Optimizer, Precision
from .._base.defaults import ACCUMULATION, ALLOCATOR, OPTIMIZER, PRECISION
from .._base.errors import AsrConfigError, UnsupportedError
from ..machine.model import profile_model
from ..machine.model_source import model_source
from .estimate import MemoryEstimate
from .memory_model import MemoryModel
from .memory_settings import MemorySettings, Shape, Target
from .published import published_estimate
from .remedies import changes_that_fit


class EstimatorWarning(UserWarning):
    """The training step could not be traced, so a formula answered instead."""


def estimate_memory(
    model: Any,
    *,
    batch: int,
    seconds: float,
    labels: int | None = None,
    precision: Precision = PRECISION,
    gradient_checkpointing: bool | Checkpointing = False,
    optimizer: Optimizer = OPTIMIZER,
    accumulation: int = ACCUMULATION,
    every_n_layers: int = 1,
    offload_checkpoints: bool = False,
    freeze_feature_encoder: bool = False,
    lora_rank: int = 0,
    gpu: str | None = None,
    evaluation_batch: int | None = None,
    estimator: Estimator = "auto",
    allocator: str = ALLOCATOR,
    cache: bool = True,
    progress: bool = True,
) -> MemoryEstimate:
    """Estimate the GPU memory of training ``model``: peaks, what holds them, and whether it fits.

    ``model`` is a ``torch.nn.Module``, a function that builds one, a transformers config (object or dictionary), a
    folder with ``config.json``, or a known name. ``batch`` is the micro-batch, ``seconds`` its longest clip, ``labels``
    its longest text in tokens (None: usual for that duration). ``precision`` is ``"fp32"``, ``"fp16"`` or ``"bf16"``;
    ``optimizer`` the Trainer's name; ``accumulation`` micro-batches per optimizer step; ``every_n_layers`` above 1
    checkpoints each n-th layer alone, ``offload_checkpoints`` keeps what checkpoints save in pinned host memory
    (``.pinned_bytes``), both as transformers 5.23 does; ``lora_rank`` above 0 trains adapters, as ``add_lora`` makes
    them; ``allocator`` the text of PYTORCH_CUDA_ALLOC_CONF: what a plan
    sets when left out, "" for PyTorch's own defaults. ``gpu`` names a GPU of the catalogue; None takes this machine's,
    if there is one. ``evaluation_batch`` adds the memory of evaluating (traced models only).

    ``estimator`` is ``"trace"``: the training step is recorded with imaginary tensors and replayed through a simulation
    of PyTorch's allocator, in seconds the first time and at once from the cache (``cache``) later; of known models
    recordings come with the package, which answer without torch. ``"published"``: the formula of the policy of that
    name; ``"auto"``: the first of them that works, with an ``EstimatorWarning`` where tracing failed.

    The answer is the plain prediction, without a safety margin. Raises ``InvalidArgumentError`` for a value out of its
    range, ``NotFoundError`` for an unknown name, and with ``estimator="trace"`` ``TraceError`` for a step that cannot
    be traced.

    >>> memory = estimate_memory("wav2vec2-base", batch=4, seconds=10, gpu="T4", progress=False)
    >>> memory.fits, round(memory.peak_reserved / 2**30, 1)
    (True, 3.5)
    """
    checked("estimator", estimator, Estimator)
    settings = MemorySettings(
        precision=precision,
        gradient_checkpointing=gradient_checkpointing,
        optimizer=optimizer,
        accumulation=accumulation,
        every_n_layers=every_n_layers,
        offload_checkpoints=offload_checkpoints,
        freeze_feature_encoder=freeze_feature_encoder,
        lora_rank=lora_rank,
        allocator=allocator,
    )
    shape = Shape(batch, seconds, labels)
    question = _Question(model, shape, settings, gpu, evaluation_batch, cache, progress)
    for name in _order(estimator):
        try:
            found = question.ask(name)
        except UnsupportedError as error:
            if name == estimator or name == "published":
                raise
            question.failed(name, error)
        else:
            return dataclasses.replace(found, warnings=tuple(question.warnings))
    raise AssertionError("the published estimator answers or raises")


def _order(estimator: str) -> tuple[str, ...]:
    if estimator != "auto":
        return (estimator,)
    return ("trace", "published")


@dataclasses.dataclass
class _Question:
    model: Any
    shape: Shape
    settings: MemorySettings
    gpu: str | None
    evaluation_batch: int | None
    cache: bool
    progress: bool
    warnings: list[str] = dataclasses.field(default_factory=list)

    def ask(self, estimator: str) -> MemoryEstimate:
        """One estimator's answer."""
        return {"trace": self._trace, "published": self._published}[estimator]()

    def failed(self, estimator: str, error: AsrConfigError) -> None:
        """Remember, and log once, why an estimator failed."""
        text = f"the {estimator} estimator could not answer: {error.message}"
        self.warnings.append(text)
        warnings.warn(text, EstimatorWarning, stacklevel=3)

    def _trace(self) -> MemoryEstimate:
        traced = self._traced(self.settings)
        try:
            found = traced.estimate(
                self.shape.batch, self.shape.seconds, self.shape.labels, evaluation_batch=self.evaluation_batch
            )
        except BaseException:
            traced.close()
            raise
        return self._advised(found)  # the trace stays open as long as the estimate, which can save a snapshot

    def _traced(self, settings: MemorySettings) -> MemoryModel:
        source = model_source(self.model, settings.freeze_feature_encoder)
        known = MemoryModel.of_known(source.label, gpu=self.gpu, record=None, **vars(settings))
        return known or MemoryModel.trace(
            source, **vars(settings), gpu=self.gpu, cache=self.cache, progress=self.progress
        )

    def _published(self) -> MemoryEstimate:
        target = Target.find(self.gpu)
        return self._finished(published_estimate(self.model, self.shape, self.settings, target), target)

    def _finished(self, found: MemoryEstimate, target: Target) -> MemoryEstimate:
        if self.evaluation_batch is not None:
            self.warnings.append(f"evaluation is estimated from traces only, not by {found.estimator!r}")
        profile = profile_model(self.model, freeze_feature_encoder=self.settings.freeze_feature_encoder)
        label = f"{profile.name} ({profile.class_name})" if profile.name else profile.class_name
        return dataclasses.replace(found, model=label, shape=self.shape, settings=self.settings, target=target)

    def _advised(self, found: MemoryEstimate) -> MemoryEstimate:
        if found.fits is not False:
            return found
        return dataclasses.replace(found, remedies=found.remedies + changes_that_fit(self.settings, self._asked))

    def _asked(self, settings: MemorySettings) -> MemoryEstimate:
        """What a training with other settings takes."""
        with self._traced(settings) as traced:
            return traced.estimate(self.shape.batch, self.shape.seconds, self.shape.labels, timeline=0)
