"""Trainings with settings chosen by hand compared with the plan's: memory, time and cost of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.records import to_json
from .._core.render import TERMINAL, Shown, text
from ..predict.model_profile import profile_model
from .gpu_comparison import CompareSettings, Prices, compare_described
from .plan_records import HandCase
from .planner import Tracer

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, repr=False)
class HandComparison(Shown, kind="by hand"):
    """Trainings with settings chosen by hand compared with the plan's.

    Attributes:
        cases: The trainings, one for each machine.
    """

    cases: tuple[HandCase, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return dict(to_json(self))

    def brief(self, width: int = TERMINAL) -> str:
        """Return the whole comparison as text; a machine fits a screen.

        Args:
            width: The most columns of a line.

        Returns:
            The text.
        """
        return text(self._kind, self._shown(), width)

    def __repr__(self) -> str:
        return self.brief()


def published_scenarios(*, prices: Prices | None = None, **options: Unpack[CompareSettings]) -> HandComparison:
    """Compare settings by hand with the plan's for the published examples, from the recordings of the package.

    ``compare_gpus(…, by_hand=True)`` compares a training of your own.

    Args:
        prices: Dollars per hour and GPU by name, or a JSON file of them, in place of those of ``gpu_prices``.
        options: Options of ``compare_gpus``.

    Returns:
        The examples, each with the settings that were compared.

    Raises:
        InvalidArgumentError: A value is out of range.

    Example:
        >>> [(case.gpu, case.rows[0].settings) for case in published_scenarios().cases]
        [('L4', 'aggressive'), ('A100-40GB SXM', 'aggressive'), ('T4', 'aggressive')]
    """
    cases: list[HandCase] = []
    for scenario in native.call("timing.scenarios"):
        model = scenario["model"]
        tracer = Tracer(model, False, lora_rank=options.get("lora_rank", 0))
        comparison = compare_described(
            profile_model(model), tracer, scenario["data"], gpus=[scenario["gpu"]], prices=prices, scenario=scenario,
            **options,
        )  # fmt: skip
        cases.extend(comparison.by_hand)
    return HandComparison(tuple(cases))
