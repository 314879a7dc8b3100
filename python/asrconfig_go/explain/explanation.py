"""The explanation of a plan as one record: text for terminals, HTML for notebooks, JSON for programs."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError
from ..data.labels import LabelReport
from ..data.profile import DatasetProfile
from ..machine.hardware import HardwareProfile
from ..machine.model import ModelProfile
from ..plan.plan_record import PlanRecord
from ..view.render import html, save_page, save_text, text, title

if TYPE_CHECKING:
    from .cautions import Caution

_KINDS: dict[str, tuple[type, str]] = {
    "config": (PlanRecord, "TrainingConfig"),  # what people know it as
    "hardware": (HardwareProfile, "HardwareProfile"),
    "dataset": (DatasetProfile, "DatasetProfile"),
    "model": (ModelProfile, "ModelProfile"),
    "labels": (LabelReport, "LabelReport"),
}


@dataclass(frozen=True, repr=False)
class Explanation:
    """A plan with what it was made from; all but ``config`` may be unknown.

    ``config`` is copied: later overrides do not change an explanation. ``labels`` is what ``check_labels`` found, and
    ``model_config`` the model's ``config.json`` as a dictionary; cautions about labels, losses and evaluation rest on
    them. ``print`` shows the text, a notebook the HTML.
    """

    config: PlanRecord
    hardware: HardwareProfile | None = None
    dataset: DatasetProfile | None = None
    model: ModelProfile | None = None
    labels: LabelReport | None = None
    model_config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, (kind, called) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and (name == "config" or value is not None):
                raise InvalidArgumentError(
                    f"{name} = {type(value).__name__} is not a {called}", "pass what the function of that name gave"
                )
        object.__setattr__(self, "config", copy.copy(self.config))

    @property
    def headline(self) -> str:
        """The plan in one sentence: the step, the device, memory and time, as far as they are known."""
        from .explanation_json import plan_view

        return title("plan", plan_view(self))

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What to look out for, the most serious first."""
        from .cautions import cautions

        return cautions(self)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/explain.md; what is not known is None or empty."""
        from .explanation_json import explanation_json

        return explanation_json(self)

    def text(self, *, profiles: bool = True) -> str:
        """Lines of at most 110 columns; without ``profiles`` the hardware, the audio and the model are left out."""
        from .explanation_json import plan_view

        left_out = {} if profiles else dict.fromkeys(("hardware", "dataset", "model"))
        return text("plan", plan_view(self) | left_out)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained page (``.html``), the JSON object (``.json``) or the text (``.txt``).

        The file is there whole or not at all. Raises ``InvalidArgumentError`` for another suffix, ``NotFoundError``
        where it cannot be written.
        """
        if not isinstance(path, str | os.PathLike):
            raise InvalidArgumentError(f"{path!r} names no file", 'write a name, such as "plan.html"')
        file = Path(path)
        kind = file.suffix.lower()
        if kind in (".html", ".htm"):
            from .explanation_json import plan_view

            save_page(file, "plan", plan_view(self))
        elif kind == ".json":
            save_text(file, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")
        elif kind == ".txt":
            save_text(file, f"{self}\n")
        else:
            raise InvalidArgumentError(
                f"cannot tell from {file.name!r} what to write", "name a file .html, .json or .txt"
            )

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from .explanation_json import plan_view

        return html("plan", plan_view(self))
