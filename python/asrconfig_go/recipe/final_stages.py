"""Final stages of a fine-tuning: evaluate, show samples, report, push."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import AsrConfigError
from .._base.files import save_whole
from .fine_tune_result import FineTuneResult
from .hub import push_to_hub
from .model_card import model_card
from .speech_data import column

if TYPE_CHECKING:
    from .fine_tune_run import Run

_SAMPLES = 5
_ALL = "eval_all"  # a curve of its own, beside that of the clips drawn for evaluations during training


def finished(run: Run) -> FineTuneResult:
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


def _rates(trainer: Any, evaluation: Any) -> dict[str, Any]:
    """Evaluate with all clips after the last step, unless the Trainer has done so itself."""
    if trainer.eval_dataset is not evaluation:
        metrics = trainer.evaluate(evaluation, metric_key_prefix=_ALL)
        return {name.replace(_ALL, "eval", 1): value for name, value in metrics.items()}
    entries = [entry for entry in trainer.state.log_history if "eval_wer" in entry]
    if entries and entries[-1].get("step") == trainer.state.global_step:
        return dict(entries[-1])
    return dict(trainer.evaluate())


def _loss(trainer: Any) -> float | None:
    losses = [entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry]
    return float(losses[-1]) if losses else None


def _report(output: Path) -> Path | None:
    from ..report import report

    page = output / "report.html"
    try:
        report(output).to_html(page)
    except AsrConfigError:
        return None
    return page


def _pushed(run: Run) -> str:
    """Push the model, if requested. A failure is reported, not raised: the model is in the folder."""
    push = run.options.push
    if push is False:
        return ""
    try:
        return push_to_hub(run.trainer, push if isinstance(push, str) else None, token=run.options.token)
    except AsrConfigError as error:
        return str(error)
