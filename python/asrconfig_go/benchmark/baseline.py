"""The side that a plan is compared with: your settings, or the Trainer's defaults."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from .._base.errors import InvalidArgumentError
from ..apply.training_arguments import arguments_of, named
from ..config import TrainingConfig
from .settings_file import read_settings
from .variants import DEFAULTS, YOURS, Side, batch_settings

_PLACE = ("output_dir", "logging_dir", "overwrite_output_dir", "resume_from_checkpoint", "hub_token")


def default_side(effective_batch: int | None) -> Side:
    """As the installed Trainer trains unasked, accumulated to ``effective_batch`` where one is given.

    Raises ``InvalidArgumentError`` where only micro-batches of a single clip add up to that batch.
    """
    side = Side(DEFAULTS, {})
    usual, accumulated = side.batch
    if effective_batch in (None, side.effective_batch):
        return side
    batch = max(n for n in range(1, usual + 1) if effective_batch % n == 0)
    if batch == 1 < effective_batch:
        raise InvalidArgumentError(
            f"the Trainer's default batch of {usual} makes no steps of {effective_batch} clips, but one clip at a time",
            f"choose a multiple of {usual}, or pass the settings that you train with (--args FILE, original=…)",
        )
    new = batch_settings(batch, effective_batch // batch)
    reason = f"{usual} × {accumulated} makes no steps of {effective_batch} clips"
    return Side(DEFAULTS, new, adapted=reason)


def original_side(original: Any) -> Side:
    """Of TrainingArguments, a plan, a dictionary of either's names, or a file of one (JSON, or ``training_args.bin``).

    Raises ``InvalidArgumentError`` for anything else and for unknown names, ``NotFoundError`` for a missing
    file and ``CorruptFileError`` for one that holds no settings.
    """
    if isinstance(original, str | os.PathLike):
        original = read_settings(original)
    if isinstance(original, Mapping) and "schema_version" in original:
        original = TrainingConfig.from_dict(dict(original))
    if isinstance(original, TrainingConfig):
        return Side(YOURS, {}, original)
    if isinstance(original, Mapping):
        usual = arguments_of({}, "out").to_dict()  # all of which to_json_string writes, some under two names
        return Side(YOURS, _changed(original, usual))
    if not dataclasses.is_dataclass(original) or not hasattr(original, "per_device_train_batch_size"):
        raise InvalidArgumentError(
            f"original = {type(original).__name__} holds no training settings",
            "pass TrainingArguments, a TrainingConfig, a dictionary of their names, or a file of one",
        )
    return Side(YOURS, _changed_arguments(original), arguments_class=type(original))


def _changed_arguments(arguments: Any) -> dict[str, Any]:
    kind = type(arguments)
    try:
        usual = arguments_of({}, arguments.output_dir, kind)
    except TypeError as error:
        raise InvalidArgumentError(f"a {kind.__name__} cannot be made again: {error}", "pass a dictionary") from error
    names = [field.name for field in dataclasses.fields(arguments) if field.init and hasattr(arguments, field.name)]
    return _changed({name: getattr(arguments, name) for name in names}, vars(usual), kind)


def _changed(settings: Mapping[str, Any], usual: Mapping[str, Any], kind: Any = None) -> dict[str, Any]:
    """What differs from the defaults, each setting once: newer versions keep some under an older name as well."""
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in _PLACE and (name not in usual or value != usual[name]):
            changed |= named({name: value}, kind)
    return changed
