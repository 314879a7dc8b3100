"""The sides of a benchmark: a plan, your settings, the Trainer's defaults; and single changes to the plan."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core.checks import checked
from .._core.files import read_object
from .._core.out_of_memory import first_line
from ..config import TrainingConfig
from ..errors import CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError
from ..plan.training_arguments import arguments_of, named

if TYPE_CHECKING:
    from transformers import TrainingArguments

    Kind = type[TrainingArguments]
    Original: TypeAlias = "TrainingArguments | TrainingConfig | Mapping[str, Any] | str | os.PathLike[str]"
    from torch.nn import Module

# Both sides neither log nor save, so that none of it differs between them.
_OWN: dict[str, Any] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "auto_find_batch_size": False,  # it would change the batch
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "dataloader_drop_last": False,
}
SHOWN = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "fp16", "bf16", "tf32", "gradient_checkpointing",
    "optim", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers",
    "dataloader_pin_memory", "torch_compile", "train_sampling_strategy", "group_by_length",
)  # fmt: skip


PLAN, YOURS, DEFAULTS = "plan", "your settings", "the Trainer's defaults"


@dataclass(frozen=True)
class Side:
    """One way to train. ``settings`` are the Trainer's names; with a ``plan`` those that win over it.

    ``adapted`` is why its batch is another than the one that was meant.
    """

    name: str
    settings: Mapping[str, Any]
    plan: TrainingConfig | None = None
    arguments_class: Kind | None = None
    adapted: str = ""

    @property
    def batch(self) -> tuple[int, int]:
        """Clips of a micro-batch, and how many are accumulated; the Trainer's defaults where they are not set."""
        usual = defaults(self.arguments_class) if self.plan is None else self.plan.to_dict()
        settings = {**usual, **self.settings}
        return _size("per_device_train_batch_size", settings), _size("gradient_accumulation_steps", settings)

    @property
    def effective_batch(self) -> int:
        """Clips of an optimizer step."""
        return math.prod(self.batch) if self.plan is None else self.plan.effective_batch_size

    def shown(self, arguments: TrainingArguments | None = None) -> dict[str, object]:
        """The settings to report of its ``arguments``, which are made here where it could not be trained."""
        if arguments is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arguments = self.arguments("out", 1, 0, None)
        values = {name: getattr(arguments, name) for name in SHOWN if hasattr(arguments, name)}
        values = {name: getattr(value, "value", value) for name, value in values.items()}
        if self.plan is not None:
            values |= {"micro_batching": self.plan.micro_batching, "length_handling": self.plan.length_handling}
        return values

    def halved(self) -> Side | None:
        """Half the micro-batch for the same step, of the Trainer's defaults; None where that leaves one clip alone."""
        batch, accumulated = self.batch
        if self.name != DEFAULTS or batch % 2 or batch < 4:
            return None
        reason = f"{batch} × {accumulated} ran out of memory on this device"
        settings = batch_settings(batch // 2, 2 * accumulated)
        return dataclasses.replace(
            self,
            settings={**self.settings, **settings},
            adapted=f"{self.adapted}; {reason}" if self.adapted else reason,
        )

    def arguments(self, folder: str, steps: int, seed: int, model: Module | None) -> TrainingArguments:
        """New TrainingArguments with this number of steps: newer ones leave accelerate's state as they found it."""
        own = named({**_OWN, "max_steps": steps, "seed": seed}, self.arguments_class)
        settings = {**self.settings, **own}
        if self.plan is None:
            return arguments_of(settings, folder, self.arguments_class)
        return self.plan.to_training_arguments(folder, arguments_class=self.arguments_class, model=model, **settings)


def most_workers(plan: TrainingConfig, original: Side | None, sweep: Sequence[str] | None, cores: float) -> int:
    """The most loader workers of any side, counted per batch of a step."""
    counts = [plan.dataloader_num_workers]
    if original is not None and original.plan is None:
        _, batches = original.batch
        counts.append(-(-int(original.settings.get("dataloader_num_workers", 0)) // batches))
    if sweep is None or "workers" in sweep:  # they may be tried
        counts.append(int(min(cores, 8)))
    return max(counts)


def _size(name: str, settings: Mapping[str, Any]) -> int:
    if checked(name, settings[name], int) < 1:
        raise InvalidArgumentError(f"{name} = {settings[name]} is not 1 or more", "correct the settings")
    return int(settings[name])


def batch_settings(size: int, accumulated: int) -> dict[str, int]:
    """By the Trainer's names."""
    return {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}


def defaults(arguments_class: Kind | None = None) -> dict[str, Any]:
    """Those of the installed TrainingArguments, or of a class of the user's."""
    from transformers import TrainingArguments

    return {field.name: field.default for field in dataclasses.fields(arguments_class or TrainingArguments)}


_HINT = "pass a plan's JSON, TrainingArguments.to_json_string in a file, or the training_args.bin of a checkpoint"
_PACKAGES = ("transformers.", "accelerate.")


def read_settings(path: str | os.PathLike[str]) -> Any:
    """A JSON object, or the TrainingArguments of a ``.bin`` file as the Trainer saves it.

    Raises ``NotFoundError`` for a file that cannot be read, ``CorruptFileError`` for one that holds something else.
    """
    if Path(path).suffix.lower() != ".bin":
        return read_object(path, "settings", _HINT)
    if not Path(path).is_file():
        raise NotFoundError(f"cannot read the settings {os.fspath(path)!r}: there is no such file", _HINT)
    return _unpickled(Path(path))


def _unpickled(path: Path) -> Any:
    """Only settings of transformers and accelerate are made of it: a pickle could run anything."""
    import torch

    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        hint = "save the settings by TrainingArguments.to_json_string"
        raise UnsupportedError(f"reading {path} requires torch 2.6", hint)
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        with torch.serialization.safe_globals([_settings_class(name) for name in names]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CorruptFileError(f"{path} holds no TrainingArguments: {first_line(error)}", _HINT) from error
    if not is_dataclass(arguments):
        raise CorruptFileError(f"{path} holds no TrainingArguments, but a {type(arguments).__name__}", _HINT)
    return arguments


def _settings_class(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    kind = getattr(importlib.import_module(module), attribute) if module.startswith(_PACKAGES) else None
    if isinstance(kind, type) and (
        is_dataclass(kind) or issubclass(kind, enum.Enum) or name == "accelerate.state.PartialState"
    ):
        return kind
    raise ValueError(f"it names {name}, which holds no settings")


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


def original_side(original: Original) -> Side:
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


def _changed_arguments(arguments: TrainingArguments) -> dict[str, Any]:
    kind = type(arguments)
    try:
        usual = arguments_of({}, arguments.output_dir, kind)
    except TypeError as error:
        raise InvalidArgumentError(f"a {kind.__name__} cannot be made again: {error}", "pass a dictionary") from error
    names = [field.name for field in dataclasses.fields(arguments) if field.init and hasattr(arguments, field.name)]
    return _changed({name: getattr(arguments, name) for name in names}, vars(usual), kind)


def _changed(
    settings: Mapping[str, Any], usual: Mapping[str, Any], kind: type[TrainingArguments] | None = None
) -> dict[str, Any]:
    """What differs from the defaults, each setting once: newer versions keep some under an older name as well."""
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in _PLACE and (name not in usual or value != usual[name]):
            changed |= named({name: value}, kind)
    return changed


_WORKERS = (0, 1, 2, 4, 8)
_PREFETCH = (1, 2, 4, 8)
OPTIONS = (
    "precision", "workers", "prefetch", "persistent", "pin", "compile", "cudnn_benchmark", "tf32", "checkpointing",
    "attention", "order",
)  # fmt: skip
"""Names of what can be swept."""


@dataclass(frozen=True)
class Place:
    """The device of the training: a GPU with its compute capability, (8, 0) for an A100, or a CPU."""

    gpu: bool
    capability: tuple[int, int]
    bf16: bool
    cores: float

    @classmethod
    def here(cls, cores: float) -> Place:
        """This machine."""
        import torch

        if not torch.cuda.is_available():
            return cls(False, (0, 0), True, cores)
        return cls(True, torch.cuda.get_device_capability(), torch.cuda.is_bf16_supported(), cores)


@dataclass(frozen=True)
class Change:
    """``value`` of ``option`` by ``fields`` of the plan, unless ``why_not`` has a reason not to try it."""

    option: str
    value: str
    fields: dict[str, Any]
    why_not: str = ""

    @property
    def words(self) -> str:
        """The fields as keyword arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self.fields.items())

    def of(self, plan: TrainingConfig) -> TrainingConfig:
        """The plan with it."""
        return TrainingConfig.from_dict({**plan.to_dict(), **self.fields})


def changes(names: Iterable[str], plan: TrainingConfig, place: Place, attention: str) -> list[Change]:
    """The changes to try; ``attention`` is the model's now. Raises ``InvalidArgumentError`` for unknown names."""
    options = tuple(dict.fromkeys(names))
    for name in options:
        if name not in OPTIONS:
            raise InvalidArgumentError(f"there is no option {name!r} to sweep", f"choose among {', '.join(OPTIONS)}")
    candidates = list(_changes(plan, place, attention))
    if options == OPTIONS and not place.gpu:
        skipped = _skipped("compile", "on a CPU it compiles for minutes; name it in sweep to try it")
        candidates = [skipped if change.option == "compile" else change for change in candidates]
    return [change for name in options for change in candidates if change.option == name]


def _changes(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    refused = {
        "fp16": "" if place.gpu else "the Trainer refuses it on a CPU",
        "bf16": "" if place.bf16 else "the GPU does not support it",
        "fp32": "",
    }
    for value, reason in refused.items():
        if value != plan.precision:
            precision = {"fp16": value == "fp16", "bf16": value == "bf16"}
            yield _skipped("precision", reason, value) if reason else Change("precision", value, precision)

    workers = plan.dataloader_num_workers
    for count in _WORKERS:
        if count != workers and count <= max(1, place.cores):
            prefetch = None if count == 0 else plan.dataloader_prefetch_factor or 2
            loader = {"dataloader_num_workers": count, "dataloader_prefetch_factor": prefetch}
            yield Change("workers", f"{count}", loader)
    if workers == 0:
        yield _skipped("prefetch", "the plan has no workers, and nobody else prefetches")
        yield _skipped("persistent", "the plan has no workers")
    else:
        for count in _PREFETCH:
            if count != plan.dataloader_prefetch_factor:
                yield Change("prefetch", f"{count}", {"dataloader_prefetch_factor": count})
        yield _skipped("persistent", "counts once an epoch, not in a step: see the loader's time to start workers")

    if place.gpu:
        yield _toggled("pin", "dataloader_pin_memory", plan)
    else:
        yield _skipped("pin", "there is no GPU to copy to")
    yield _toggled("compile", "torch_compile", plan)
    if place.gpu and not plan.deterministic:
        yield _toggled("cudnn_benchmark", "cudnn_benchmark", plan)
    else:
        reason = "the plan is deterministic" if place.gpu else "cuDNN is for NVIDIA GPUs"
        yield _skipped("cudnn_benchmark", reason)
    if place.gpu and place.capability >= (8, 0):
        yield _toggled("tf32", "tf32", plan)
    else:
        yield _skipped("tf32", "requires compute capability 8.0 or newer")
    yield _toggled("checkpointing", "gradient_checkpointing", plan)

    reason = "" if place.gpu and find_spec("flash_attn") else "needs a GPU and the package flash-attn"
    reason = reason or ("" if plan.precision != "fp32" else "needs 16-bit arithmetic")
    for value, problem in (("eager", ""), ("sdpa", ""), ("flash_attention_2", reason)):
        if value != (plan.attn_implementation or attention):
            fields = {"attn_implementation": value}
            yield _skipped("attention", problem, value) if problem else Change("attention", value, fields)

    if plan.micro_batching != "memory":
        yield _skipped("order", "the Trainer makes the plan's batches")
        return
    for value in ("random", "bucketed"):
        if value != plan.length_handling:
            yield Change("order", value, {"length_handling": value, "group_by_length": False})


def _skipped(option: str, reason: str, value: str = "") -> Change:
    return Change(option, value, {}, reason)


def _toggled(option: str, field: str, plan: TrainingConfig) -> Change:
    value = not getattr(plan, field)
    return Change(option, "on" if value else "off", {field: value})
