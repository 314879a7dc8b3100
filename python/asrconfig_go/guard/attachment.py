"""``attach``: puts a guard on a Trainer, or returns the one that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .._core.checks import check_keywords
from .._core.training_session import attached
from ..errors import InvalidArgumentError
from .guard import Guard
from .guard_options import GuardSettings

if TYPE_CHECKING:
    from transformers import Trainer
    from typing_extensions import Unpack


def guard_of(trainer: Trainer) -> Guard | None:
    """Return the guard of a Trainer.

    Args:
        trainer: The ``transformers.Trainer``.

    Returns:
        The guard that is attached to it; None without one.

    Example:
        >>> from transformers import Trainer, TrainingArguments
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
        >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
        >>> guard_of(trainer) is None
        True
    """
    return cast("Guard | None", attached(trainer, "guard"))


def attach(trainer: Trainer, **options: Unpack[GuardSettings]) -> Guard:
    """Attach a guard to a Trainer, which recovers its steps from out-of-memory errors without changing the result.

    Args:
        trainer: The ``transformers.Trainer``.
        options: Options of ``Guard``, such as ``micro_batch`` and ``bad_clips``. A guard that is attached already
            accepts none.

    Returns:
        The guard; the one that is attached already, if there is one.

    Raises:
        InvalidArgumentError: An option is unknown or out of range, it requires a known loss and that of the Trainer is
            unknown, this training cannot be guarded, or there are options and the Trainer is guarded already.

    Example:
        >>> from transformers import Trainer, TrainingArguments
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
        >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
        >>> guard = attach(trainer, micro_batch=4)
        >>> guard.detach()
    """
    check_keywords(options, GuardSettings.__annotations__, "attach")
    existing = guard_of(trainer)
    if existing is None:
        return Guard(trainer, **options).attach()
    if options:
        raise InvalidArgumentError("the trainer is guarded already", "call detach() of its guard to change options")
    return existing
