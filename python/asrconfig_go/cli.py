"""The command ``asrconfig``: plan, scan, memory, compare, launch, doctor, demo."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._errors import AsrConfigError
from ._records import to_json
from .cli_compare import add_compare
from .cli_launch import add_launch
from .cli_memory import add_memory


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 on an error that was explained, 2 on wrong usage, 130 on Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except AsrConfigError as error:
        print(f"asrconfig: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("asrconfig: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        sys.stderr.close()
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="asrconfig", description="Plan and guard the fine-tuning of speech models.")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_plan(commands)
    _add_scan(commands)
    add_memory(commands)
    add_compare(commands)
    add_launch(commands)
    doctor = commands.add_parser("doctor", help="check the library, the driver, the limits and the versions")
    doctor.set_defaults(run=_doctor)
    _add_demo(commands)
    return parser


def _add_plan(commands: Any) -> None:
    plan = commands.add_parser("plan", help="plan a training run")
    plan.add_argument("--data", required=True, help="folder, manifest, tar shards, Parquet or audio file (see scan)")
    plan.add_argument("--model", required=True, help="known name, or folder with config.json")
    plan.add_argument("--gpu", help="plan for this GPU (T4, L4, A100-40GB, 2xT4, …) instead of what is here")
    plan.add_argument("--target-batch-size", type=int, default=32, help="samples per optimizer step (default 32)")
    plan.add_argument(
        "--safety-margin", type=float, default=0.85, help="share of memory to use, 0.70 to 0.95 (default 0.85)"
    )
    plan.add_argument("--preset", default="balanced", help="balanced (default), speed or reproducible")
    plan.add_argument(
        "--optimizer", default="adamw_torch", help="adamw_torch (default), adamw_bnb_8bit, adafactor or sgd"
    )
    plan.add_argument("--lr-scaling", default="sqrt", help="sqrt (default), linear or none")
    plan.add_argument("--freeze-feature-encoder", action="store_true", help="train without the convolutional front end")
    plan.add_argument("--sample-size", type=int, help="measure a random sample instead of every file")
    plan.add_argument("--output", metavar="FILE", help="also save the configuration as JSON")
    plan.add_argument(
        "--html",
        metavar="FILE",
        type=_html_file,
        help="also write the plan with its reasons as a page that stands alone",
    )
    plan.add_argument("--json", action="store_true", help="print profiles and configuration as JSON")
    plan.set_defaults(run=_plan)


def _html_file(name: str) -> str:
    if Path(name).suffix.lower() not in (".html", ".htm"):
        raise argparse.ArgumentTypeError(f"{name!r} does not end with .html")
    return name


def _plan(arguments: argparse.Namespace) -> int:
    from .manager import create_optimal_config

    config, manager = create_optimal_config(
        arguments.data,
        arguments.model,
        target_batch_size=arguments.target_batch_size,
        safety_margin=arguments.safety_margin,
        preset=arguments.preset,
        gpu=arguments.gpu,
        optimizer=arguments.optimizer,
        lr_scaling=arguments.lr_scaling,
        freeze_feature_encoder=arguments.freeze_feature_encoder,
        sample_size=arguments.sample_size,
        verbose=not arguments.json,
    )
    if arguments.output:
        config.save(arguments.output)
    explanation = manager.explain()
    if arguments.html:
        explanation.save(arguments.html)
    if arguments.json:
        parts = {"hardware": manager.hardware, "dataset": manager.dataset, "model": manager.model, "config": config}
        print(json.dumps({name: to_json(part) for name, part in parts.items()}, indent=2, ensure_ascii=False))
    else:
        print("\n" + explanation.text(profiles=False))  # the stages have shown them
    return 0


def _add_scan(commands: Any) -> None:
    scan = commands.add_parser("scan", help="measure audio files without decoding them")
    scan.add_argument(
        "paths", nargs="+", metavar="PATH", help="folders, audio files, a manifest, tar shards or Parquet"
    )
    scan.add_argument("--json", action="store_true", help="one JSON line per file")
    scan.add_argument("--sample-size", type=int, help="measure a random sample instead of every file")
    scan.add_argument("--workers", type=int, default=0, help="parallel reads (default: four for each usable core)")
    scan.add_argument("--batch-size", type=int, default=8, help="clips a batch, for what padding costs (default 8)")
    scan.add_argument("--no-cache", action="store_true", help="read every file, and keep nothing for the next scan")
    scan.set_defaults(run=_scan)


_LINE = ("path", "duration_s", "claimed_duration_s", "sample_rate", "channels", "bits", "codec", "method", "error")


def _scan(arguments: argparse.Namespace) -> int:
    from .dataset import scan_audio

    source: Any = arguments.paths[0] if len(arguments.paths) == 1 else [Path(path) for path in arguments.paths]
    result = scan_audio(
        source,
        sample_size=arguments.sample_size,
        batch_size=arguments.batch_size,
        workers=arguments.workers,
        cache=not arguments.no_cache,
        progress=not arguments.json,
        allow_empty=True,
    )
    if arguments.json:
        for clip in result.clips:
            print(json.dumps({name: getattr(clip, name) for name in _LINE}, ensure_ascii=False))
    else:
        print(result.profile)
    return 0 if result.profile.measured_count else 1


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import examine, report

    findings = examine()
    print(report(findings))
    return 0 if all(finding.status != "broken" for finding in findings) else 1


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="plan, train and guard a small speech model on spoken digits")
    demo.add_argument(
        "--output", default="demo-output", help="folder for checkpoints and TensorBoard (default demo-output)"
    )
    demo.add_argument("--max-steps", type=int, help="optimizer steps (default: enough to learn the digits)")
    demo.add_argument("--gpu", help="plan for this GPU instead of what is here")
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from .demo import run

    result = run(arguments.output, max_steps=arguments.max_steps, gpu=arguments.gpu)
    print(result)
    return 0
