"""All stages of a fine-tuning: load, clean, prepare, plan, train, evaluate, save, report, push."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import save_whole
from .._core.output import first_process
from .._core.requirements import TOKEN, explained, need, offline, without_retries
from ..config import TrainingConfig
from ..errors import AsrConfigError, NotFoundError
from ..plan.argument_names import check_settings
from .fine_tune_options import FineTuneOptions, FineTuneResult
from .fine_tune_run import MODEL_FILES, FineTuneRun, output_folder
from .speech_data import column
from .speech_sources import load_speech

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer


def model_card(result: FineTuneResult) -> str:
    """Markdown with the Hub's metadata: what was trained from what, how, and how well it does."""
    plan = result.config
    rates = [] if result.wer is None or result.cer is None else [
        f"Word error rate {result.wer:.1%}, character error rate {result.cer:.1%} on clips it was not trained on.", ""
    ]  # fmt: skip
    library = "peft" if plan.lora_rank else "transformers"
    head = ["---", f"library_name: {library}", "pipeline_tag: automatic-speech-recognition", "---", ""]
    rows = [
        ("optimizer steps", result.training.steps),
        ("effective batch", plan.effective_batch_size),
        *([("LoRA", f"adapters of rank {plan.lora_rank}")] if plan.lora_rank else []),
        ("precision", plan.precision),
        ("optimizer", plan.optimizer),
        ("GPU", plan.gpu_name or "none"),
    ]
    return "\n".join([
        *head,
        f"# {result.output_dir.resolve().name}",
        "",
        f"Fine-tuned from {result.model} with transformers {version('transformers')} and asrconfig-go.",
        "",
        *rates,
        "| setting | value |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        *(f"- {note}" for note in result.notes),
        "",
    ])  # fmt: skip


_LEFT_HERE = (
    "checkpoint-*/**", ".asrconfig/**", "runs/**", ".saving*/**", "asrconfig_monitor*.json", "training_args.bin",
)  # fmt: skip


def push_to_hub(trained: Any, repo: str | None = None, *, token: str | None = None, private: bool = True) -> str:
    """Upload a trained model to the Hub, without checkpoints and logs.

    Args:
        trained: The Trainer, or the folder that ``fine_tune`` wrote.
        repo: The repository, as ``"name"`` or ``"user/name"``; None for the folder's name. It is made if it does not
            exist.
        token: A token of the Hub; None for the stored one. Without any, nothing is uploaded.
        private: Whether a new repository is private.

    Returns:
        A sentence with the address, or with the reason why nothing was uploaded.

    Raises:
        NotFoundError: The folder holds no saved model, or the upload failed. The model stays in the folder.
    """
    from huggingface_hub import HfApi, get_token

    named = Path(trained if isinstance(trained, str | os.PathLike) else trained.args.output_dir)
    folder = named.resolve()
    token = token or get_token()
    if token is None:
        return f"not pushed to the Hub, as there is no token: {TOKEN}, then push_to_hub({str(named)!r})"
    if not any((folder / name).is_file() for name in MODEL_FILES):
        raise NotFoundError(f"{named} holds no saved model", "train to the end first, or trainer.save_model()")
    unreachable = offline()
    try:
        with without_retries(unreachable):
            api = HfApi(token=token)
            url = api.create_repo(repo or folder.name, private=private, exist_ok=True)
            api.upload_folder(repo_id=url.repo_id, folder_path=folder, ignore_patterns=list(_LEFT_HERE))
    except (OSError, ValueError, RuntimeError) as error:
        safe = f"the model is safe in {named}: push_to_hub({str(named)!r}) tries again"
        cause = explained(f"the repository {repo or folder.name!r}", error, safe, unreachable)
        raise NotFoundError(f"not pushed to the Hub: {cause.message}", cause.hint) from error
    return f"pushed to {url}"


_SAMPLES = 5
_ALL = "eval_all"  # a curve of its own, beside that of the clips drawn for evaluations during training


def finished(run: FineTuneRun) -> FineTuneResult:
    """Evaluate the model, and write the model card and the report next to it; nothing where ``save_by`` stopped it."""
    result = FineTuneResult(
        output_dir=run.options.output, model=run.options.model, wer_before=run.before, wer=None, cer=None,
        loss=_loss(run.trainer), samples=(),
        training=run.manager.report,  # type: ignore[arg-type]  # there is one once train has ended
        config=run.plan, notes=run.data.notes, memory=str(run.watch.summary()),
    )  # fmt: skip
    if result.training.stopped:
        return result
    evaluation = run.data.evaluation
    if evaluation is not None:
        rates = _rates(run.trainer, evaluation)
        samples = tuple(zip(column(evaluation, "text"), run.transcribed(_SAMPLES), strict=False))
        result = replace(result, wer=rates.get("eval_wer"), cer=rates.get("eval_cer"), samples=samples)
    if not run.trainer.is_world_process_zero():
        return result
    save_whole(run.options.output / "README.md", model_card(result).encode())
    return replace(result, report=_report(run.options.output), pushed=_pushed(run))


def _rates(trainer: Trainer, evaluation: Dataset | None) -> dict[str, float]:
    """Evaluate with all clips after the last step, unless the Trainer has done so itself."""
    if trainer.eval_dataset is not evaluation:
        metrics = trainer.evaluate(evaluation, metric_key_prefix=_ALL)
        return {name.replace(_ALL, "eval", 1): value for name, value in metrics.items()}
    entries = [entry for entry in trainer.state.log_history if "eval_wer" in entry]
    if entries and entries[-1].get("step") == trainer.state.global_step:
        return dict(entries[-1])
    return dict(trainer.evaluate())


def _loss(trainer: Trainer) -> float | None:
    losses = [entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry]
    return float(losses[-1]) if losses else None


def _report(output: Path) -> Path | None:
    from ..watch.run_report import report

    page = output / "report.html"
    try:
        report(output).to_html(page)
    except AsrConfigError:
        return None
    return page


def _pushed(run: FineTuneRun) -> str:
    """Push the model, if requested. A failure is reported, not raised: the model is in the folder."""
    push = run.options.push
    if push is False:
        return ""
    try:
        return push_to_hub(run.trainer, push if isinstance(push, str) else None, token=run.options.token)
    except AsrConfigError as error:
        return str(error)


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
    """Fine-tune a speech model, and leave the model and its processor in a folder.

    The clips are loaded, cleaned, cut and labelled; the training is planned, run and evaluated; and the model is saved,
    reported and, if requested, pushed. A folder with an earlier training is refused unless that training is resumed.

    Args:
        source: The speech, in any form that ``load_speech`` accepts.
        model: A name on the Hub, a folder, or a tiny model; see ``build_processor`` and ``load_model``.
        output_dir: The folder for checkpoints, the plan, the model, the model card and the report.
        text_column: The column of transcripts; None for its usual names.
        audio_column: The column of audio or of paths; None for its usual names.
        evaluation_share: The share of clips to evaluate with, 0 to 0.5, where the data has no split for that.
        name: The configuration of a dataset on the Hub.
        split: The split to train on; None for its usual names.
        evaluation_split: The split to evaluate with; None for its usual names.
        check_audio: Whether every clip is decoded first; None decodes up to ten hours of audio.
        language: The spoken language, by its English name or code. It decides how letters become lower case, what
            Whisper transcribes, and what prompts ask for.
        clean: Whether transcripts go through ``clean_text``; None does so for CTC alone, as other models write capitals
            and punctuation.
        align: A fine-tuned CTC model, by folder or name, which finds the texts of the pieces of long clips without
            timestamps; see ``prepare``.
        epochs: Replaces the plan's number of epochs.
        max_steps: Replaces the plan's length by a number of optimizer steps. Set at most one of ``epochs`` and
            ``max_steps``; without both, a tiny model trains for 1000 steps.
        target_batch_size: The clips of an optimizer step; None for those of ``config``, else 32 (a tiny model: 8).
        lora_rank: Above 0, adapters of this rank are trained and saved in place of the model; see ``add_lora``. None
            for 16 with a published audio LLM, and for no adapters otherwise.
        bits: 8 or 4 has bitsandbytes load the weights under the adapters in as many bits; None for whole weights.
        gpu: A GPU of the catalogue to plan for; None for this machine's.
        config: A plan made before, or its file; None makes a plan, or takes the one of the resumed training.
        settings: Fields of the plan, or else of ``TrainingArguments``, to override.
        resume: True continues the training in ``output_dir`` with its plan, or starts one; a path continues from that
            checkpoint.
        save_by: When to save a checkpoint and stop at the latest: ``"11h30m"`` from now, ``"17:45"`` today, or
            ``"2026-03-01T06:30"``. Evaluating, saving the model and pushing are then left to the call that resumes it.
        push: Whether to upload the model, or the repository to upload it to; see ``push_to_hub``. A failure, or a
            missing token, is reported in ``FineTuneResult.pushed`` and not raised.
        token: The Hub's token for the dataset and the upload; None for the stored one.
        callbacks: Further callbacks of the Trainer.
        profile: How many optimizer steps PyTorch's profiler records, 1 to 20; see ``ASRConfigManager.train``.
        seed: Draws the clips to evaluate with and new weights, and seeds the plan and the training.
        verbose: Whether to print every stage.

    Returns:
        The error rates, transcripts of some clips, and reports of the training. The transcripts and the final error
        rates are missing where ``save_by`` stopped the training.

    Raises:
        InvalidArgumentError: An option is out of its range or contradicts another, or ``output_dir`` has an earlier
            training.
        NotFoundError: The data or the model cannot be found, or the folder cannot be written.
        UnsupportedError: A package is missing, or the model is of another kind.
        AsrConfigError: Any other known problem of the data, the model, the GPU or the disk, with its remedy.
        KeyboardInterrupt: On Ctrl-C, after printing how to continue.

    Example:
        >>> result = fine_tune("demo", "tiny-wav2vec2", "out", max_steps=1, verbose=False)
        >>> result.training.steps
        1
    """
    need("fine_tune", "torch", "transformers", "accelerate", "datasets", "soundfile")
    output = output_folder(output_dir, resume)
    own = dict(settings or {})
    check_settings(own)  # a wrong name should not come to light after minutes
    max_steps, epochs = own.pop("max_steps", max_steps), own.pop("num_train_epochs", epochs)
    options = FineTuneOptions(
        model, output, language, clean, align, epochs, max_steps, target_batch_size, lora_rank, bits, gpu, config,
        own, resume, save_by, push, token, tuple(callbacks), profile, seed, verbose and first_process(),
    )  # fmt: skip
    data = load_speech(
        source, text_column=text_column, audio_column=audio_column, evaluation_share=evaluation_share, name=name,
        split=split, evaluation_split=evaluation_split, check_audio=check_audio, language=language, token=token,
        seed=seed, progress=verbose,
    )  # fmt: skip
    return FineTuneRun(options, data).run(finished)
