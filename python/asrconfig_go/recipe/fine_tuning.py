"""All stages of a fine-tuning: load, clean, prepare, plan, train, evaluate, save, report, push."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..apply.training_arguments import check_settings
from ..config import TrainingConfig
from .final_stages import finished
from .fine_tune_options import FineTuneOptions
from .fine_tune_result import FineTuneResult
from .fine_tune_run import Run
from .output_folder import output_folder
from .rank_output import first_process
from .required_packages import need
from .speech_sources import load_speech


def fine_tune(
    source: Any,
    model: str,
    output_dir: str | os.PathLike[str],
    *,
    text_column: str | None = None,
    audio_column: str | None = None,
    evaluation_share: float = 0.1,
    name: str | None = None,
    split: str | None = None,
    evaluation_split: str | None = None,
    check_audio: bool | None = None,
    language: str | None = None,
    clean: bool | None = None,
    align: str | None = None,
    epochs: float | None = None,
    max_steps: int | None = None,
    target_batch_size: int | None = None,
    lora_rank: int | None = None,
    bits: int | None = None,
    gpu: str | None = None,
    config: TrainingConfig | str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool | str | os.PathLike[str] = False,
    save_by: str | None = None,
    push: bool | str = False,
    token: str | None = None,
    callbacks: Sequence[Any] = (),
    profile: int | None = None,
    seed: int = 0,
    verbose: bool = True,
) -> FineTuneResult:
    """Fine-tune ``model`` on ``source`` and leave everything in ``output_dir``; prints every stage if ``verbose``.

    ``source`` and the options up to ``language`` are those of ``load_speech``, ``model`` and ``language`` those of
    ``build_processor``. ``clean``: whether transcripts go through ``clean_text``; None does so for CTC alone, as
    others write with capitals and punctuation. ``align`` is a fine-tuned CTC model, by folder or name, that finds the
    texts of pieces of long clips which have no timestamps (see ``prepare``). ``epochs`` or ``max_steps`` (optimizer
    steps) replace the plan's length, ``target_batch_size`` is the clips of an optimizer step (default 32),
    ``lora_rank`` above 0 trains and saves adapters in place of the model (see ``add_lora``; None: 16 for an audio LLM,
    none for others), whose weights ``bits``, 8 or 4, loads by bitsandbytes, ``gpu`` plans for another GPU, and
    ``config`` is a plan made before. ``settings`` are fields of the plan, or else of TrainingArguments, to override.
    ``profile`` is how many optimizer steps PyTorch's profiler records, see ``ASRConfigManager.train``.

    ``resume=True`` resumes the training in ``output_dir`` with its plan, or starts it. ``save_by`` saves a checkpoint
    and stops before a moment, as ``manager.train`` does: ``"11h30m"`` from now, ``"17:45"`` today; evaluating, saving
    the model and pushing are then left to the call that resumes it. ``push`` uploads the model, to a repository of that
    name if it is one; without a token the result has a note. What was there before stays: a folder with an earlier
    training is refused unless that is resumed.

    Raises an ``AsrConfigError`` that names the cause and the remedy: for the data, the model, an output folder that
    cannot be written or is full. On Ctrl-C it prints how to continue, and raises ``KeyboardInterrupt``.

    >>> result = fine_tune("demo", "tiny-wav2vec2", "out", max_steps=1, verbose=False)
    >>> result.training.steps
    1
    """
    need("fine_tune", "torch", "transformers", "accelerate", "datasets", "soundfile")
    output = output_folder(output_dir, resume)
    options = FineTuneOptions(
        model, output, language, clean, align, epochs, max_steps, target_batch_size, lora_rank, bits, gpu, config,
        dict(settings or {}), resume, save_by, push, token, tuple(callbacks), profile, seed,
        verbose and first_process(),
    )  # fmt: skip
    check_settings(options.settings)  # a wrong name should not come to light after minutes
    data = load_speech(
        source, text_column=text_column, audio_column=audio_column, evaluation_share=evaluation_share, name=name,
        split=split, evaluation_split=evaluation_split, check_audio=check_audio, language=language, token=token,
        seed=seed, progress=verbose,
    )  # fmt: skip
    return Run(options, data).go(finished)
