"""The commands that measure: ``asrconfig benchmark``, ``profile-gpu``, ``monitor`` and ``report``.

Each ``add_…`` declares one command for ``main``, which then calls the command's ``run`` for its exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.checks import checked
from .._core.files import save_whole
from .._core.output import show, show_json, write
from .._core.requirements import imported
from .._core.settings import TARGET_BATCH_SIZE
from ..benchmark.measurements import ENOUGH_ROUNDS
from ..errors import InvalidArgumentError, NotFoundError
from ..predict.hardware import kernel_profile, store_kernel_table, stored_kernel_tables
from .options import add_output_options, add_quiet, command_line, passed_on, save_plot, show_result, with_progress

if TYPE_CHECKING:
    from ..benchmark.benchmark_result import BenchmarkResult
    from ..watch.live_readings import Reader, Reading
    from ..watch.memory_monitor import MemoryMonitor
    from .options import Commands


_SUFFIXES = {"csv": (".csv",), "plot": (".png", ".pdf", ".svg")}
_STOPPED = 130  # a shell's exit code for Ctrl-C
_REFRESH_S = 1.0
_RATES_S = 8.0  # rates (CPU, disk, network) are known from the second slow reading on; wait no longer for it
_POLL_S = 0.05
_ALL_ROWS = 10**6  # of a terminal: nothing is shortened
_ENTER_SCREEN, _LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the alternate one, without a cursor
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def add_benchmark(commands: Commands) -> None:
    """Declare ``asrconfig benchmark`` among argparse's ``commands``."""
    benchmark = commands.add_parser("benchmark", help="compare training by the plan with your own settings")
    add = benchmark.add_argument
    add("--model", required=True, help="checkpoint: a folder or a name on the Hub; or tiny-wav2vec2, tiny-whisper")
    add("--data", required=True, help="folder, manifest or dataset on the Hub; or demo: bundled spoken digits")
    add("--compare", action="store_true", help="beside your settings (--args), or the Trainer's defaults")
    add("--args", metavar="FILE", help="what you train with now, implies --compare: training_args.bin of a checkpoint, "
        "or JSON of TrainingArguments or of a plan")  # fmt: skip
    add("--config", metavar="FILE", help="the plan, as asrconfig plan --output wrote it (default: made here)")
    add("--target-batch-size", type=int, help="clips per optimizer step (default: that of your settings or of the "
        f"Trainer's defaults; without --compare {TARGET_BATCH_SIZE})")  # fmt: skip
    add("--steps", type=int, default=4, help="optimizer steps of a block (default 4)")
    add("--rounds", type=int, default=5, help="blocks of each side (default 5, the fewest that show a difference)")
    add("--warm-up", type=int, default=2, help="steps before each block that are not measured (default 2)")
    add("--minutes", type=float, help="end after this time with what was measured (default: no limit)")
    add("--sweep", metavar="OPTIONS", help="changes to try: precision,workers,…, all or none (default: what may help)")
    add("--no-loader", dest="loader", action="store_false", help="do not measure the loader separately")
    add("--profile", metavar="DIR", help="also write traces by PyTorch's profiler, for TensorBoard and Perfetto")
    add("--text-column", help="column of the transcripts (default: by its usual names)")
    add("--audio-column", help="column of the audio or its paths")
    add("--seed", type=int, default=0, help="of the drawn clips (default 0)")
    add_output_options(benchmark)
    add("--csv", metavar="FILE", help="also write a table")
    add("--plot", metavar="FILE", help="also draw it with matplotlib: .png, .pdf or .svg")
    benchmark.set_defaults(run=_benchmark)


def _benchmark(arguments: argparse.Namespace) -> int:
    _check_files(arguments)
    result = _measured(arguments)
    if arguments.csv:
        result.to_csv(arguments.csv)
    if arguments.plot:
        save_plot(result.plot(), arguments.plot)
    show_result(arguments, result, result.to_json, _next_command(arguments, result))
    return _STOPPED if result.stopped else 0


def _next_command(arguments: argparse.Namespace, result: BenchmarkResult) -> str:
    """The command to run next: train where the plan is faster, nothing where it is slower, else measure more rounds."""
    options = {"model": arguments.model, "data": arguments.data, "config": arguments.config}
    options |= {"text-column": arguments.text_column, "audio-column": arguments.audio_column}
    options["target-batch-size"] = None if arguments.config else result.setting.effective_batch
    if result.original is None or result.original.problem or result.verdict == "faster":
        return command_line("train", **options)
    if result.verdict == "slower":
        return ""
    rounds = ENOUGH_ROUNDS if result.too_few_rounds else 2 * result.setting.rounds + 1
    return command_line("benchmark", "--compare", **options, args=arguments.args, rounds=rounds)


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise before hours of measuring where ``--csv`` or ``--plot`` could not be written."""
    for option, suffixes in _SUFFIXES.items():
        name = getattr(arguments, option)
        if name is None:
            continue
        if Path(name).suffix.lower() not in suffixes:
            raise InvalidArgumentError(f"--{option} {name!r} does not end with {' or '.join(suffixes)}", "rename it")
        if not os.access(Path(name).resolve().parent, os.W_OK):
            raise NotFoundError(f"cannot write {name}", "choose a folder that exists and can be written")


def _measured(arguments: argparse.Namespace) -> BenchmarkResult:
    """Prepare data and model as ``asrconfig train`` does, and benchmark them."""
    from ..benchmark.request import benchmark_training
    from ..config import TrainingConfig
    from ..recipe.labelling import prepare
    from ..recipe.model_building import load_model
    from ..recipe.processors import build_processor
    from ..recipe.speech_sources import load_speech
    from ..recipe.transcription import make_collator

    plan = None if arguments.config is None else TrainingConfig.load(arguments.config)
    columns = {"text_column": arguments.text_column, "audio_column": arguments.audio_column}
    speech = load_speech(arguments.data, **columns).clean()
    processor = build_processor(speech.train["text"], arguments.model)
    speech = prepare(speech, processor)
    model = load_model(arguments.model, processor)
    options = passed_on(arguments, "model", "data", "args", "config", "compare", "csv", "plot", *columns)
    return benchmark_training(
        model, speech.train, collator=make_collator(processor, model), original=arguments.args, plan=plan,
        compare=arguments.compare or arguments.args is not None, processor=processor, name=arguments.model,
        progress=with_progress(arguments), **options,
    )  # fmt: skip


def add_profile_gpu(commands: Commands) -> None:
    """Declare ``asrconfig profile-gpu`` among argparse's ``commands``."""
    profile = commands.add_parser("profile-gpu", help="measure kernels on this GPU, for the times of plans")
    profile.add_argument("--minutes", type=float, default=3.0, help="time to measure, at most (default %(default)s)")
    profile.add_argument("--device", default="cuda", help="cuda (default), cuda:1, …")
    profile.add_argument("--output", metavar="FILE", help="also write the table here, to look at or to send")
    profile.add_argument("--list", action="store_true", help="measure nothing: list the tables that plans use")
    add_quiet(profile)
    profile.set_defaults(run=_profile_gpu)


def _profile_gpu(arguments: argparse.Namespace) -> int:
    if arguments.list:
        show("\n".join(stored_kernel_tables()) or "no kernels were measured: asrconfig profile-gpu")
        return 0
    imported("torch", "measuring kernels")
    from ..benchmark.kernel_timing import measure_kernels

    table = measure_kernels(arguments.device, minutes=arguments.minutes, progress=not arguments.quiet)
    if arguments.output:  # before the table is checked: one that plans refuse may be worth a look
        save_whole(Path(arguments.output), json.dumps(table, indent=1).encode())
    profile = kernel_profile(table)
    path = store_kernel_table(table, profile["gpu"])
    show(_kernel_summary(table, profile))
    show(f"plans for this card take their times from it: {path}")
    return 0


def _kernel_summary(table: dict[str, Any], profile: dict[str, Any]) -> str:
    """What was measured, and by which factors it differs from the predicted times."""
    lines = [f"{table['gpu']}: {len(table['kernels'])} kernels, torch {table['torch']}, {table['date']}"]
    lines.append(f"a launch takes {1e6 * profile['launch_s']:.1f} µs, a dispatch {1e6 * profile['dispatch_s']:.1f} µs")
    lines.append("measured / predicted time (10 to 90 % of the kernels)")
    for factor in profile["factors"]:
        spread = f"{factor['factor']:.2f} ({factor['low']:.2f} to {factor['high']:.2f})"
        lines.append(f"  {factor['group']:<22}{factor['dtype']:<10}{spread}")
    return "\n".join(lines)


def add_monitor(commands: Commands) -> None:
    """Declare ``asrconfig monitor`` among argparse's ``commands``."""
    monitor = commands.add_parser("monitor", help="watch GPUs, host and a training's processes")
    add = monitor.add_argument
    add("--pid", type=int, help="process of a training: its RAM, with its children's")
    add("--interval", type=float, default=100.0, metavar="MS", help="between samples (default 100)")
    add("--once", action="store_true", help="print one reading")
    add("--json", action="store_true", help="a JSON object for each reading")
    add("--seconds", type=float, metavar="N", help="stop after this time (default: at Ctrl-C)")
    add("--prometheus", type=int, metavar="PORT",
        help="also serve /metrics on this port of 127.0.0.1; 0: any free port")  # fmt: skip
    monitor.set_defaults(run=_monitor)


def _monitor(arguments: argparse.Namespace) -> int:
    from ..watch.live_readings import Reader
    from ..watch.memory_monitor import MemoryMonitor

    if arguments.pid is not None and not _alive(arguments.pid):
        raise NotFoundError(f"there is no process {arguments.pid}", "name one that runs, as ps or nvidia-smi list them")
    if checked("seconds", arguments.seconds, float | None) is not None and arguments.seconds < 0:
        raise InvalidArgumentError(f"seconds = {arguments.seconds:g} is below 0", "pass 0 for one reading, or more")
    with MemoryMonitor(arguments.interval, pid=arguments.pid) as monitor, _metrics(monitor, arguments.prometheus):
        reader = Reader(monitor, arguments.pid)
        if arguments.once:
            _print_once(reader, arguments.json)
            return 0
        readings = _readings(reader, arguments)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a monitor is ended
            if sys.stdout.isatty() and not arguments.json:
                _redraw(readings)
            else:
                _print_lines(readings, arguments.json)
    return 0


def _alive(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").is_dir()


@contextlib.contextmanager
def _metrics(monitor: MemoryMonitor, port: int | None) -> Iterator[None]:
    """Inside, the readings are served to Prometheus, if a port was asked for."""
    if port is None:
        yield
        return
    from ..watch.live_readings import MetricsServer

    with MetricsServer(monitor, port) as server:
        show(f"asrconfig: metrics at {server.url}", sys.stderr)
        yield


def _print_once(reader: Reader, as_json: bool) -> None:
    """Print the first reading that has rates."""
    deadline = time.monotonic() + _RATES_S
    reading = reader.read()
    while reading.activity.cpu_share is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        reading = reader.read()
    if as_json:
        show_json(reading.to_json())
    else:
        show(reading.screen(shutil.get_terminal_size().columns, _ALL_ROWS))


def _readings(reader: Reader, arguments: argparse.Namespace) -> Iterator[Reading]:
    """Yield a reading each second, or each interval if that is longer, until the time is up or the process ends."""
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    pause = max(_REFRESH_S, arguments.interval / 1000)
    while arguments.pid is None or _alive(arguments.pid):
        yield reader.read()
        if end is not None and time.monotonic() + pause > end:
            time.sleep(max(0.0, end - time.monotonic()))
            return
        time.sleep(pause)


def _print_lines(readings: Iterator[Reading], as_json: bool) -> None:
    """Print a line for each reading, until nobody reads them any more (a closed pipe)."""
    for reading in readings:
        is_read = show_json(reading.to_json(), indent=None) if as_json else show(reading.screen(brief=True))
        if not is_read:
            return


def _redraw(readings: Iterator[Reading]) -> None:
    """Redraw one screen for each reading; the terminal is restored at SIGTERM and errors, too."""
    handler = signal.signal(signal.SIGTERM, _exit_by_signal)
    write(_ENTER_SCREEN)
    try:
        for reading in readings:
            columns, rows = shutil.get_terminal_size()
            lines = reading.screen(columns, rows, coloured="NO_COLOR" not in os.environ).splitlines()
            if not write(_HOME + "".join(f"{line}{_CLEAR_LINE}\r\n" for line in lines) + _CLEAR_BELOW):
                return
    finally:
        signal.signal(signal.SIGTERM, handler)
        write(_LEAVE_SCREEN)


def _exit_by_signal(number: int, _: object) -> None:
    raise SystemExit(128 + number)  # a shell's exit code for a signal


def add_report(commands: Commands) -> None:
    """Declare ``asrconfig report`` among argparse's ``commands``."""
    report = commands.add_parser("report", help="report on a run that was watched, or compare two")
    add = report.add_argument
    runs = "output_dir of a training, or its asrconfig_monitor.json; two are compared"
    add("runs", metavar="RUN", nargs="+", help=runs)
    add("--plot", metavar="FILE", help="also draw it with matplotlib: .png, .pdf or .svg (one run)")
    add("--by", choices=("time", "steps"), help="x axis of the charts of one run (default time)")
    add("--export", metavar="FILE",
        help="also write the series: .csv, .jsonl, or .json for Perfetto; of two runs .csv")  # fmt: skip
    add_output_options(report)
    report.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    if len(arguments.runs) > 1:
        return _compare(arguments)
    from ..watch.run_files import export
    from ..watch.run_report import report

    (run,) = arguments.runs
    result = report(run, by=arguments.by or "time")
    if arguments.plot:
        save_plot(result.plot(), arguments.plot)
    if arguments.export:
        export(run, arguments.export)
    show_result(arguments, result, result.to_json)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from ..watch.run_report import compare_runs

    if len(arguments.runs) > 2:
        raise InvalidArgumentError(f"cannot compare {len(arguments.runs)} runs", "name one run, or two")
    for option in ("plot", "by"):
        if getattr(arguments, option) is not None:
            raise InvalidArgumentError(f"--{option} is for one run", f"leave --{option} out, or name one run")
    if arguments.export and Path(arguments.export).suffix.lower() != ".csv":
        raise InvalidArgumentError(f"cannot write a comparison to {arguments.export!r}", "name a .csv, or use --json")
    comparison = compare_runs(*arguments.runs)
    if arguments.export:
        comparison.to_csv(arguments.export)
    show_result(arguments, comparison, comparison.to_json)
    return 0
