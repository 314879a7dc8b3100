"""The training configuration: every field can be overridden by attribute, and every override is checked."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._core.checks import StartMethod, checked
from .errors import InvalidArgumentError, LibraryError
from .plan.plan_record import PlanRecord

if TYPE_CHECKING:
    from transformers import TrainingArguments
    from typing_extensions import Unpack

    from .audio.ctc_aligner import CTCAligner
    from .plan.environment import Applied
    from .plan.explanation import Explanation
    from .plan.launch_script import LaunchFiles, LaunchSettings
    from .plan.selection import Selection
    from .train.stream_batches import StreamBatches, StreamSettings


@dataclasses.dataclass(repr=False)
class TrainingConfig(PlanRecord):
    """A training configuration, with the names of ``transformers.TrainingArguments`` where they exist there.

    Assigning an attribute checks its type and range and raises ``InvalidArgumentError``; unknown names are refused with
    the nearest known one. Where the batch alone is overridden, ``gradient_accumulation_steps`` follows, so that a step
    keeps its clips; where both are overridden, both count. An ``OverrideWarning`` names the predictions that no longer
    hold, and the learning rate for another effective batch. Sizes are bytes, durations seconds.

    >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
    >>> config.learning_rate = 1e-4
    >>> config.preset = "fast"
    Traceback (most recent call last):
    InvalidArgumentError: preset = 'fast' is not one of 'balanced', 'speed', 'reproducible'
    """

    def to_training_arguments(
        self,
        output_dir: str | os.PathLike[str],
        *,
        arguments_class: type[TrainingArguments] | None = None,
        model: Any = None,
        **overrides: Any,
    ) -> TrainingArguments:
        """Build ``transformers.TrainingArguments`` for the installed transformers (4.46 or newer).

        ``arguments_class`` is a subclass to build instead; without it, overrides of ``Seq2SeqTrainingArguments`` such
        as ``predict_with_generate=True`` choose that one. ``model`` is looked at for
        ``ddp_find_unused_parameters``, which is True without it. ``overrides`` are
        TrainingArguments' own names and win over the plan; accumulation follows the batch, and an ``OverrideWarning``
        is given, as of its fields. Settings that the installed version does not know are reported by an
        ``UnsupportedSettingWarning`` each, overrides it does not know are refused.
        """
        from .plan.training_arguments import build

        return build(self, output_dir, overrides, arguments_class, model)

    def apply(self, model: Any = None, *, environment: bool = True, backends: bool = True) -> Applied:
        """Put in effect what is not the Trainer's matter; call it first, before anything uses the GPU.

        ``environment``: PyTorch's allocator settings (``alloc_conf``), and what loader workers and deterministic
        kernels need; variables that are set already win, key by key. ``backends``: cuDNN's benchmark, deterministic
        kernels and TF32. ``model``: see ``prepare_model``.

        Returns what was applied, what was not and why. A setting that comes too late raises a
        ``TooLateWarning``, one that the model's class lacks an ``UnsupportedSettingWarning``.
        """
        from .plan.model_preparation import apply

        return apply(self, model, environment, backends, stacklevel=2)

    def loader_settings(self, *, start_method: StartMethod | None = None) -> dict[str, Any]:
        """Keywords for a ``torch.utils.data.DataLoader`` of your own: workers, prefetching, pinned memory.

        Copy its batches with ``tensor.to(device, non_blocking=True)``, as ``to_training_arguments`` has the Trainer do.
        ``start_method`` of the workers: None is Python's own, ``"fork"`` on Linux before Python 3.14. Take ``"spawn"``
        or ``"forkserver"`` where workers use CUDA or call this package (a forked child can do neither); what they load
        must then be picklable, and a script needs ``if __name__ == "__main__"``. Raises ``InvalidArgumentError`` for
        one that this system does not have.
        """
        import torch

        methods = multiprocessing.get_all_start_methods()
        if start_method is not None and start_method not in methods:
            raise InvalidArgumentError(
                f"start_method = {start_method!r} is not known here", "choose one of " + ", ".join(methods)
            )
        # Without a GPU there is nothing to copy to, and torch warns of every loader.
        pinned = self.dataloader_pin_memory and torch.cuda.is_available()
        settings: dict[str, Any] = {"num_workers": self.dataloader_num_workers, "pin_memory": pinned}
        if self.dataloader_num_workers > 0:  # torch refuses these without workers
            settings["persistent_workers"] = self.dataloader_persistent_workers
            if self.dataloader_prefetch_factor is not None:
                settings["prefetch_factor"] = self.dataloader_prefetch_factor
            if start_method is not None:
                settings["multiprocessing_context"] = start_method
        return settings

    def clip_loader(self) -> Callable[[Any], Any]:
        """The function that reads a clip, for ``load`` of a collator: a ``DecodedCache`` with ``cache_dataset``.

        The cache keeps decoded clips in this machine's free RAM within the safety margin, shared by the loader workers.
        Without ``cache_dataset`` it is ``load_audio``, which decodes a clip each time.
        """
        from .audio.clip_cache import DecodedCache
        from .audio.decoding import load_audio
        from .predict.hardware import HardwareProfile

        if not self.cache_dataset:
            return load_audio
        free = HardwareProfile.detect().memory.available_bytes * self.safety_margin
        return DecodedCache(max(1, int(free / max(1, self.dataloader_num_workers))))

    def select(
        self,
        dataset: Any,
        durations: Sequence[float] | None = None,
        *,
        align: CTCAligner | None = None,
        processor: Any = None,
    ) -> tuple[Any, Selection]:
        """``dataset`` as the plan trains on it, and what was left out and cut (see ``select_clips``).

        ``dataset`` is a ``datasets.Dataset``, a list or a torch dataset with a length; ``durations`` are its clips'
        seconds, measured by ``scan_audio`` if None. Clips over ``max_length_s`` are left out. Those over
        ``chunk_length_s`` become pieces with their part of the text (docs/long-clips.md): by timestamps (a column
        ``segments``, ``chunks`` or ``words``, Whisper's tokens in the text, subtitles beside the file), by ``align``,
        or at silences where there is no text; else they are left out. ``processor``, of Whisper, keeps the pieces to
        the 448 positions of its decoder. The rows of pieces name a part of a file, ``talk.flac#t=12.5,30``, as
        ``load_audio``, the collators and ``scan_audio`` read it.

        Where nothing is left out or cut, the dataset itself is returned. Raises ``InvalidArgumentError`` for
        dictionaries and streams (see ``stream``), ``EmptyDatasetError`` when nothing is left.
        """
        from .plan.selection import select

        return select(dataset, durations, self, align, processor)

    def stream(self, dataset: Any, **options: Unpack[StreamSettings]) -> StreamBatches:
        """``dataset``, a stream, as a Trainer's ``train_dataset``: see ``StreamBatches``, whose ``options`` these are.

        Clips over the plan's ``max_length_s`` are left out, steps are made by its ``length_handling``, in the order of
        its ``seed``. A ``datasets.Dataset`` becomes a stream where the plan's ``streaming`` is set. Raises
        ``InvalidArgumentError`` for what is no stream.
        """
        from ._core.checks import check_keywords
        from .data.source import open_source
        from .train.stream_batches import StreamBatches, StreamSettings

        check_keywords(options, StreamSettings.__annotations__, "stream")
        if self.streaming and open_source(dataset).kind == "dataset":
            dataset = dataset.to_iterable_dataset()
        options.setdefault("max_length_s", self.max_length_s)
        options.setdefault("mode", "bucketed" if self.length_handling == "bucketed" else "random")
        options.setdefault("seed", self.seed)
        return StreamBatches(dataset, **options)

    def max_steps(self, clips: int) -> int:
        """Optimizer steps of ``num_train_epochs`` over ``clips`` clips, the last of each epoch not always whole.

        So newer Trainers count; transformers 4.46 leaves out an epoch's last step if it is not whole. A streamed
        dataset has no length, so the Trainer wants ``max_steps=config.max_steps(clips)``.
        """
        if checked("clips", clips, int) < 1:
            raise InvalidArgumentError(f"clips = {clips} is less than one", "pass the number of clips to train on")
        batches = math.ceil(clips / (self.per_device_train_batch_size * self.device_count))
        return math.ceil(self.num_train_epochs * math.ceil(batches / self.gradient_accumulation_steps))

    def launch_files(self, folder: str | os.PathLike[str], **options: Unpack[LaunchSettings]) -> LaunchFiles:
        """Write the plan for torchrun, accelerate, DeepSpeed and clusters: see ``asrconfig_go.plan.launch_files``."""
        from ._core.checks import check_keywords
        from .plan.launch_script import LaunchSettings, launch_files

        check_keywords(options, LaunchSettings.__annotations__, "launch_files")
        return launch_files(self, folder, **options)

    def explain(self) -> Explanation:
        """The whole plan with its reasons, alternatives and cautions; ``manager.explain()`` knows the machine, too."""
        from .plan.explanation import Explanation

        return Explanation(self)

    def __repr__(self) -> str:
        try:
            return self.explain().brief()
        except LibraryError as error:  # in a forked child, which cannot use the library
            return f"(plan: {error.message})"

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()
