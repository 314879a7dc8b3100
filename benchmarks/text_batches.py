"""The largest and the planned batches of models of text on each card, as docs/text-models.md shows them.

    python benchmarks/text_batches.py [--markdown]

Models are those of transformers' default configs, which are the published sizes, with two classes; GPT-2 predicts the
next token. Their own code is traced, with random weights and texts of 128 tokens. --markdown writes the page's table
instead of printing it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import transformers

import asrconfig_go as ac
from asrconfig_go.plan.gpu_comparison import GPUPlan

PAGE = Path(__file__).resolve().parent.parent / "docs" / "text-models.md"
BEGIN, END = "<!-- table: text batches -->", "<!-- end of table -->"
TEXTS, TOKENS, STEP = 100_000, 128, 256
CARDS = (
    "K80", "P100-16", "T4", "V100-16", "V100-32", "L4", "A10", "A100-40GB SXM", "A100-80GB SXM", "H100-80GB SXM",
)  # fmt: skip
MODELS = {
    "BERT-base": (transformers.BertForSequenceClassification, transformers.BertConfig()),
    "RoBERTa-base": (
        transformers.RobertaForSequenceClassification,
        transformers.RobertaConfig(max_position_embeddings=514, type_vocab_size=1),
    ),
    "DistilBERT": (transformers.DistilBertForSequenceClassification, transformers.DistilBertConfig()),
    "GPT-2": (transformers.GPT2LMHeadModel, transformers.GPT2Config()),
}


def plans(name: str) -> tuple[GPUPlan, ...]:
    kind, config = MODELS[name]
    return ac.compare_gpus(
        kind(config), texts=TEXTS, max_tokens=TOKENS, gpus=list(CARDS), target_batch_size=STEP, calibrations={}
    ).rows


def cell(plan: GPUPlan) -> str:
    marks = " c" * plan.gradient_checkpointing
    return f"{plan.largest_batch} ({plan.per_device_train_batch_size} × {plan.gradient_accumulation_steps}{marks})"


def table() -> str:
    columns = {name: plans(name) for name in MODELS}
    rows = [["GPU", "memory, GiB", "precision", *columns], ["---"] * (3 + len(columns))]
    for at, card in enumerate(CARDS):
        first = columns["BERT-base"][at]
        cells = [cell(column[at]) for column in columns.values()]
        rows.append([card, f"{first.memory_bytes / 2**30:.1f}", first.precision, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE.name}")
    if not parser.parse_args().markdown:
        print(table())
        return 0
    before, _, after = PAGE.read_text("utf-8").partition(BEGIN)
    behind = after.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{behind}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
