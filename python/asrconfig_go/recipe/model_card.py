"""The page that a model shows on the Hub and in its folder."""

from __future__ import annotations

from importlib.metadata import version

from .fine_tune_result import FineTuneResult


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
