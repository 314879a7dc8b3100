"""``TrainingConfig``: a plan whose fields can be overridden, and what is made of it for a training."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._core.checks import at_least
from ._core.settings import StartMethod
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

    Assigning an attribute checks its type and range, and raises ``InvalidArgumentError`` where they are wrong; for an
    unknown name the error suggests the nearest known one. Where only the batch is overridden,
    ``gradient_accumulation_steps`` follows, so that the effective batch size stays. Where both are overridden, both
    apply. An ``OverrideWarning`` names the predictions that no longer hold, and the learning rate for another effective
    batch size. Sizes are bytes, durations seconds.

    Example:
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

        Settings of the plan that the installed version does not have are reported by an ``UnsupportedSettingWarning``.

        Args:
            output_dir: The Trainer's folder.
            arguments_class: A subclass to build instead. Without it, overrides of ``Seq2SeqTrainingArguments`` such as
                ``predict_with_generate=True`` choose that one.
            model: The model, which decides ``ddp_find_unused_parameters``; without it, that is True.
            overrides: Arguments of ``TrainingArguments`` that replace the plan's. As with fields of this class,
                accumulation follows the batch, and an ``OverrideWarning`` names what no longer holds.

        Returns:
            The arguments.

        Raises:
            InvalidArgumentError: An override does not exist in the installed version.
            UnsupportedError: transformers, torch or accelerate is not installed.

        Example:
            >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
            >>> args = config.to_training_arguments("out", report_to="tensorboard")
        """
        from .plan.training_arguments import build

        return build(self, output_dir, overrides, arguments_class, model)

    def apply(self, model: Any = None, *, environment: bool = True, backends: bool = True) -> Applied:
        """Apply the settings that a Trainer does not have; call it first, before anything uses the GPU.

        A setting that comes too late is reported by a ``TooLateWarning``, one that the model's class does not have by
        an ``UnsupportedSettingWarning``.

        Args:
            model: A model to prepare: see ``prepare_model``.
            environment: Whether environment variables are set: PyTorch's allocator settings (``alloc_conf``), and those
                for loader workers and deterministic kernels. Variables that are set already stay, key by key.
            backends: Whether cuDNN's benchmark, deterministic kernels and TF32 are switched.

        Returns:
            What was applied, and what was not and why.
        """
        from .plan.model_preparation import apply

        return apply(self, model, environment, backends, stacklevel=2)

    def loader_settings(self, *, start_method: StartMethod | None = None) -> dict[str, Any]:
        """Return keyword arguments for your own ``torch.utils.data.DataLoader``: workers, prefetching, pinned memory.

        Copy its batches with ``tensor.to(device, non_blocking=True)``, as a Trainer does with the arguments of
        ``to_training_arguments``.

        Args:
            start_method: How workers are started; None for Python's default, ``"fork"`` on Linux before Python 3.14.
                Use ``"spawn"`` or ``"forkserver"`` where workers use CUDA or call this package, as a forked child can
                do neither. What they load must then be picklable, and a script needs ``if __name__ == "__main__"``.

        Returns:
            The keyword arguments.

        Raises:
            InvalidArgumentError: This system does not have the start method.
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
        """Return the function that reads a clip, for ``load`` of a collator.

        Returns:
            Where ``cache_dataset`` is set, a ``DecodedCache``, which keeps decoded clips in the free RAM of this
            machine, within the safety margin and divided among the loader workers. Otherwise ``load_audio``, which
            decodes a clip each time.
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
        """Return a dataset as the plan trains on it, and what was left out and cut (see ``select_clips``).

        Clips longer than ``max_length_s`` are left out. Those longer than ``chunk_length_s`` are cut into pieces with
        their part of the text (docs/long-clips.md): by timestamps (a column ``segments``, ``chunks`` or ``words``,
        Whisper's tokens in the text, subtitles beside the file), by ``align``, or at silences where there is no text;
        otherwise they are left out. The rows of pieces name a part of a file, ``talk.flac#t=12.5,30``, as
        ``load_audio``, the collators and ``scan_audio`` read it.

        Args:
            dataset: A ``datasets.Dataset``, a list or a torch dataset with a length.
            durations: The seconds of its clips; None to measure them by ``scan_audio``.
            align: Finds where the words of a text are in a clip.
            processor: Whisper's, to keep the texts of pieces within the 448 positions of its decoder.

        Returns:
            The dataset, unchanged where nothing is left out or cut, and the selection.

        Raises:
            InvalidArgumentError: The dataset is a dictionary of splits or a stream (see ``stream``), or ``durations``
                are not those of its clips.
            EmptyDatasetError: No clip is left.
        """
        from .plan.selection import select

        return select(dataset, durations, self, align, processor)

    def stream(self, dataset: Any, **options: Unpack[StreamSettings]) -> StreamBatches:
        """Return a stream as a Trainer's ``train_dataset`` (see ``StreamBatches``).

        Clips longer than the plan's ``max_length_s`` are left out; steps are made by its ``length_handling``, in the
        order of its ``seed``.

        Args:
            dataset: A stream, or a ``datasets.Dataset`` where the plan's ``streaming`` is set.
            options: Options of ``StreamBatches``.

        Returns:
            The steps.

        Raises:
            InvalidArgumentError: The dataset is of another kind.
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
        """Return the optimizer steps of ``num_train_epochs`` epochs, with partial steps at the end of epochs.

        Trainers count in the same way, except that transformers 4.46 leaves out partial steps. A stream has no length:
        a Trainer then requires ``max_steps=config.max_steps(clips)``.

        Args:
            clips: The number of clips of an epoch.

        Returns:
            The number of steps.

        Raises:
            InvalidArgumentError: ``clips`` is less than 1.
        """
        at_least("clips", clips, 1, "pass the number of clips to train on")
        batches = math.ceil(clips / (self.per_device_train_batch_size * self.device_count))
        return math.ceil(self.num_train_epochs * math.ceil(batches / self.gradient_accumulation_steps))

    def launch_files(self, folder: str | os.PathLike[str], **options: Unpack[LaunchSettings]) -> LaunchFiles:
        """Write the plan for torchrun, accelerate, DeepSpeed and clusters.

        Args:
            folder: The folder to write to.
            options: Options of ``asrconfig_go.plan.launch_files``.

        Returns:
            The files, and the commands that start them.

        Raises:
            InvalidArgumentError: An option is unknown, or the engines cannot do what is asked.
            NotFoundError: The files cannot be written.
        """
        from ._core.checks import check_keywords
        from .plan.launch_script import LaunchSettings, launch_files

        check_keywords(options, LaunchSettings.__annotations__, "launch_files")
        return launch_files(self, folder, **options)

    def explain(self) -> Explanation:
        """Explain the plan with its reasons, alternatives and cautions.

        ``manager.explain()`` also shows the machine, the audio and the model, with the cautions that follow from them.

        Returns:
            The explanation.
        """
        from .plan.explanation import Explanation

        return Explanation(self)

    def __repr__(self) -> str:
        try:
            return self.explain().brief()
        except LibraryError as error:  # in a forked child, which cannot use the library
            return f"(plan: {error.message})"

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()
