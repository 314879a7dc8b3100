"""The explanation of a plan as one record: text for terminals, HTML for notebooks, JSON for programs."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .._core import native
from .._core.records import from_json, to_json
from .._core.render import Record, Shown, brief, save_page, save_text, text
from ..data.label_rules import Limits, limits_of
from ..data.labels import LabelReport
from ..data.scan_result import DatasetProfile
from ..errors import AsrConfigError, InvalidArgumentError
from ..predict.hardware import HardwareProfile
from ..predict.model_profile import ModelProfile
from ..trace.model import Model
from .plan_record import PlanRecord
from .plan_records import Caution

VERSION = 1
_KINDS: dict[str, tuple[type, str]] = {
    "config": (PlanRecord, "TrainingConfig"),  # what people know it as
    "hardware": (HardwareProfile, "HardwareProfile"),
    "dataset": (DatasetProfile, "DatasetProfile"),
    "model": (ModelProfile, "ModelProfile"),
    "labels": (LabelReport, "LabelReport"),
}


@dataclass(frozen=True, repr=False)
class Explanation(Shown, kind="plan"):
    """A plan with what it was made from, to show: ``print`` shows the text, a notebook the HTML.

    Cautions about labels, losses and evaluation rest on ``labels`` and ``model_config``.

    Attributes:
        config: The plan. It is copied: later overrides do not change the explanation.
        hardware: The profile of the machine; None where it is not known.
        dataset: The profile of the audio; None where it is not known.
        model: The profile of the model; None where it is not known.
        labels: The result of ``check_labels``; None where labels were not checked.
        model_config: The model's ``config.json`` as a dictionary; None where it is not known.
        guarded: Whether the training will have the guard, which ``manager.train`` and ``asrconfig train`` attach.

    Raises:
        InvalidArgumentError: A value is of another type.
    """

    config: PlanRecord
    hardware: HardwareProfile | None = None
    dataset: DatasetProfile | None = None
    model: ModelProfile | None = None
    labels: LabelReport | None = None
    model_config: Mapping[str, object] | None = None
    guarded: bool = True

    def __post_init__(self) -> None:
        for name, (kind, called) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and (name == "config" or value is not None):
                raise InvalidArgumentError(
                    f"{name} = {type(value).__name__} is not a {called}", "pass what the function of that name gave"
                )
        object.__setattr__(self, "config", copy.copy(self.config))

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What to look out for, the most serious first."""
        return tuple(from_json(Caution, caution) for caution in self._answer["cautions"])

    def to_json(self) -> Record:
        """Return the explanation as a JSON object, with the keys of docs/reference/plan.md.

        Returns:
            The object; what is not known is None or empty.
        """
        record = self._shown()
        del record["stale"]
        return {"explanation_version": VERSION, **record}

    def text(self, *, profiles: bool = True) -> str:
        """Return the whole explanation as text.

        Args:
            profiles: Whether the hardware, the audio and the model are shown.

        Returns:
            Lines of at most 110 columns.
        """
        return text("plan", self._shown(profiles))

    def brief(self, width: int = 0, *, profiles: bool = True) -> str:
        """Return the first screen: the settings, what they take, and the worst cautions.

        Args:
            width: The most columns of a line; 0 for 80.
            profiles: Whether the hardware, the audio and the model are shown.

        Returns:
            The text.
        """
        return brief("plan", self._shown(profiles), width)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explanation to a file, completely or not at all.

        Args:
            path: The file. Its suffix decides: ``.html`` for a self-contained page, ``.json`` for the JSON object,
                ``.txt`` for the text.

        Raises:
            InvalidArgumentError: The suffix is another one.
            NotFoundError: The file cannot be written.
        """
        if not isinstance(path, str | os.PathLike):
            raise InvalidArgumentError(f"{path!r} names no file", 'write a name, such as "plan.html"')
        file = Path(path)
        kind = file.suffix.lower()
        if kind in (".html", ".htm"):
            save_page(file, "plan", self._shown())
        elif kind == ".json":
            save_text(file, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")
        elif kind == ".txt":
            save_text(file, f"{self}\n")
        else:
            raise InvalidArgumentError(
                f"cannot tell from {file.name!r} what to write", "name a file .html, .json or .txt"
            )

    @property
    def _answer(self) -> Record:
        """Decisions, memory and cautions, as core/plan has them."""
        request = {
            "config": to_json(self.config),
            "hardware": self.hardware and to_json(self.hardware),
            "dataset": self.dataset and to_json(self.dataset),
            "loss": self._loss_facts(),
            "labels": None if self.labels is None else _label_facts(self.labels),
            "guarded": self.guarded,
            "pid": os.getpid(),
        }
        return dict(native.call("plan.explain", request))

    def _shown(self, profiles: bool = True) -> Record:
        c = self.config
        left_out = {} if profiles else dict.fromkeys(("hardware", "dataset", "model"))
        return {
            "step": {
                "samples": c.effective_batch_size,
                "per_device_batch": c.per_device_train_batch_size,
                "accumulation": c.gradient_accumulation_steps,
                "devices": c.device_count,
                "micro_batching": c.micro_batching,
                "micro_batch": c.micro_batch_size,
                "precision": c.precision,
                "gradient_checkpointing": c.gradient_checkpointing,
                "every_n_layers": c.every_n_layers,
                "offload_checkpoints": c.offload_checkpoints,
            },
            "hardware": self.hardware and to_json(self.hardware),
            "devices": to_json(c.devices),
            "dataset": self.dataset and to_json(self.dataset),
            "model": self.model and to_json(self.model),
            "times": c.times and to_json(c.times),
            "alternatives": to_json(c.alternatives),
            "config": c.to_dict(),
            **self._answer,
            **left_out,
        }

    def _loss_facts(self) -> Record:
        config, limits, d = self.model_config or {}, self._limits(), self.dataset
        named = config.get("architectures")
        class_name = self.model.class_name if self.model is not None else ""
        vocabulary = config.get("vocab_size")
        shortest_s, longest_s = (d.min_s, d.max_s) if d is not None and d.measured_count else (0.0, 0.0)
        has_frames = limits is not None and limits.positions is None
        return {
            "class_name": class_name or str(named[0] if isinstance(named, list) and named else ""),
            "reduction": config.get("ctc_loss_reduction"),
            "vocabulary": vocabulary if isinstance(vocabulary, int) else 0,
            "frames": [limits.available(s) for s in (shortest_s, longest_s)] if limits and has_frames else None,
            "decodes": limits is not None and not has_frames,
        }

    def _limits(self) -> Limits | None:
        config = self.model_config
        if config is None and self.model is not None and self.model.architecture:
            config = {"model_type": self.model.architecture}
        try:
            return None if config is None else limits_of(dict(config))
        except AsrConfigError:  # another kind of model
            return None


def _label_facts(labels: LabelReport) -> Record:
    return {
        "model": labels.model,
        "limit": labels.limit,
        "unit": labels.unit,
        "checked": labels.checked,
        "infeasible": labels.infeasible_count,
        "first": str(labels.infeasible[0]) if labels.infeasible else "",
        "longest": labels.longest_labels,
        "findings": list(labels.findings),
    }


def config_of(model: object) -> Mapping[str, object] | None:
    """The ``config.json`` of a model, as ``profile_model`` takes it; None of one without."""
    try:
        return Model.of(model).config_json
    except AsrConfigError:  # counts, and modules of one's own
        return None
