"""Hints of errors: an input that fails, the words that its hint must have, and the input mended as the hint says.

What a hint shows (``name=value``) is in the mended input; the names, commands, options and packages in it exist.
"""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asrconfig_go as ac
from asrconfig_go.__main__ import _parser, main
from asrconfig_go._core import native
from asrconfig_go.errors import AsrConfigError
from locations import REPOSITORY as ROOT
from made_runs import put_run, trained
from recipe_data import digits
from speech_models import wav2vec2
from tiny_training import tiny_trainer
from training_fixtures import make_plan

# Patches, by dotted names, of the first request in capi/testdata that is answered; None leaves a field out.
# fmt: off
OPERATIONS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("batching.compare", {"options.step_samples": 0}, "choose 1 to", {}),
    ("batching.compare", {"options.ranks": 3}, "a multiple of the number of processes", {"options.ranks": 2}),
    ("batching.split", {"overhead_s": -1}, "pass 0 to 1e7 seconds", {}),
    ("batching.split", {"host_s": -1}, "pass 0 to 1e7 seconds", {}),
    ("batching.split", {"seconds": [1, -1]}, "drop those that cannot be read", {"seconds": [1]}),
    ("batching.split", {"seconds": [1, 90]}, "drop or shorten them", {"seconds": [1]}),
    ("memory.device", {"gpu.sms": 0}, "leave sms out to look it up", {"gpu.sms": 40}),
    ("memory.replay", {"settings": "expandable_segment:True"}, "did you mean",
     {"settings": "expandable_segments:True"}),
    ("memory.replay", {"events": [-5]}, "free every storage once, after its allocation", {"events": [5, -1]}),
    ("memory.sharding", {"precision": "int4"}, "choose fp32, fp16 or bf16", {"precision": "fp32"}),
    ("memory.sharding", {"strategy": "zero9"}, "zero3", {"strategy": "zero3"}),
    ("memory.simulate", {"accumulation": -1}, "a whole number from 1 to 65536", {"accumulation": 1}),
    ("memory.simulate", {"kind": "dream"}, '"train", "evaluate" or "generate"', {"kind": "train"}),
    ("model.profile", {"folder": "."}, "exactly one of name, folder and counts", {}),
    ("model.profile", {"name": "xls-r-301m"}, "known names like it", {"name": "xls-r-300m"}),
    ("plan.make", {"options.preset": "fast"}, "speed", {"options.preset": "speed"}),
    ("plan.make", {"options.safety_margin": 0.99}, "0.85 is usual", {"options.safety_margin": 0.85}),
    ("plan.make", {"options.target_batch_size": 0}, "a whole number from 1", {"options.target_batch_size": 16}),
    ("plan.make", {"hardware.gpus": [], "options.device_count": 2}, "leave device_count out", {"hardware.gpus": []}),
    ("plan.make", {"dataset.sample_count": 0}, "check the path or the split", {}),
    ("plan.make", {"hardware.gpus.0.memory_total_bytes": 2147483648}, "take a smaller model", {}),
    ("recovery.next", {"class": "oom"}, "pass the class that classify returned", {"class": "gpu_oom"}),
    ("report.compare", {"a.sources": []}, "pass the run logs of its monitors", {}),
    ("report.run", {"by": "epochs"}, 'pass "time" or "steps"', {"by": "steps"}),
    ("runlog.check", {"run_log.duration_s": -1}, "take another copy of the file", {}),
    ("timing.calibrate", {"steps": []}, "pass the seconds of some optimizer steps", {}),
    ("timing.compare", {"prices": {"L4": -1}}, "such as T4=0.35", {"prices": {"T4": 0.35}}),
    ("timing.compare", {"gpus": ["0xT4"]}, 'as in "2xT4"', {"gpus": ["2xT4"]}),
    ("timing.kernels", {"memory_bytes": -1}, "pass the card's memory", {}),
    ("timing.run", {"eval_samples": None}, "pass eval_samples", {}),
    ("timing.step", {"measured_s": [-1.0]}, "pass the seconds of an optimizer step", {}),
    ("view.render", {"kind": "poem"}, "box", {"kind": "box"}),
    ("view.render", {"format": "pdf"}, "choose text, brief, html", {"format": "html"}),
]

# The names that the code uses are those of ``names``.
CALLS = [
    ("ac.ASRConfigManager(gpu=4)", "write it as text", 'ac.ASRConfigManager(gpu="T4")'),
    ("ac.ASRConfigManager(safety_margin=2)", "15 % of the memory free", "ac.ASRConfigManager(safety_margin=0.85)"),
    ("manager().explain()", "call create_optimal_config, or manager.plan()", "m = manager(); m.plan(); m.explain()"),
    ("manager().train(trainer(), save_by='soon')", '"11h30m" from now', "manager().train(trainer(), save_by='11h30m')"),
    ("manager().train(trainer(), max_retries=-1)", "3 is usual", "manager().train(trainer(), max_retries=3)"),
    ("manager().train(trainer(auto_find_batch_size=True))", "the guard finds a fitting micro-batch",
     "manager().train(trainer(auto_find_batch_size=False))"),
    ("ac.create_optimal_config(CLIPS, 'wav2vec2-base', gpu='T4', distributed='zero3', **quiet)",
     "plan for several GPUs",
     "ac.create_optimal_config(CLIPS, 'wav2vec2-base', gpu='2xT4', device_count=2, distributed='zero3', **quiet)"),
    ("ac.create_optimal_config(CLIPS, 'wav2vec2-base', gpu='T4', precision='bf16', **quiet)", 'ask for "fp16"',
     "ac.create_optimal_config(CLIPS, 'wav2vec2-base', gpu='T4', precision='fp16', **quiet)"),
    ("ac.PlanOptions(epochs=3)", "did you mean num_train_epochs=3?", "ac.PlanOptions(num_train_epochs=3)"),
    ("ac.PlanOptions(fp16=True)", "did you mean", 'ac.PlanOptions(precision="fp16")'),
    ("ac.PlanOptions(max_steps=5)", "it is the Trainer's", "plan().to_training_arguments(tmp, max_steps=5)"),
    ("plan().learning_rat = 1", "did you mean", "plan().learning_rate = 1e-4"),
    ("plan().per_device_train_batch_size = 0", "choose a value in that range",
     "plan().per_device_train_batch_size = 1"),
    ("ac.TrainingConfig.load('')", 'the working folder is "."', "plan().save('p'); ac.TrainingConfig.load('./p')"),
    ("plan().save(tmp / 'no' / 'p.json')", "choose a folder that exists", "plan().save(tmp / 'p.json')"),
    ("plan().explain().save(tmp / 'p.doc')", ".html, .json or .txt", "plan().explain().save(tmp / 'p.html')"),
    ("ac.select_clips('no', plan())", "as scan_audio(…).durations", "ac.select_clips(scan().durations, plan())"),
    ("plan().select([{'audio': clip, 'text': 'a'}], [1.0, 2.0])", "pass one for each row",
     "plan().select([{'audio': clip, 'text': 'a'}], [1.0])"),
    ("ac.StepSampler('no', 4)", "scan_audio(source).durations", "ac.StepSampler(scan().durations, 4)"),
    ("ac.StepSampler([1.0] * 8, 4, mode='sorted')", '"stratified", "bucketed"', "ac.StepSampler([1.0] * 8, 4)"),
    ("list(ac.StepSampler([1.0] * 9, 4).shard(0, 4))", "or drop_last",
     "list(ac.StepSampler([1.0] * 9, 4, drop_last=True).shard(0, 4))"),
    ("ac.train.use_batches(trainer(), ac.StepSampler([1.0] * 16, 8))", "set per_device_train_batch_size to 8",
     "ac.train.use_batches(trainer(per_device_train_batch_size=8), ac.StepSampler([1.0] * 16, 8))"),
    ("ac.largest_models('T4', 'gpt')", "try whisper, xls-r", "ac.largest_models('T4', 'xls-r')"),
    ("ac.compare_gpus('wav2vec2-base', hours=1, gpus=[], trace=False)", "or leave it out for all",
     'ac.compare_gpus("wav2vec2-base", hours=1, gpus=["T4", "L4"], trace=False)'),
    ("ac.compare_gpus('wav2vec2-base', gpus=['T4'], trace=False)", "a dataset, hours of audio, or a number of texts",
     "ac.compare_gpus('wav2vec2-base', hours=1, gpus=['T4'], trace=False)"),
    ("ac.scan_audio(CLIPS, sample_size=0)", "leave sample_size out", "ac.scan_audio(CLIPS)"),
    ("ac.scan_audio(tmp / 'no')", "the working folder is", "os.chdir(CLIPS); ac.scan_audio('.')"),
    ("ac.scan_audio(tmp)", "files with these extensions are looked for", "ac.scan_audio(CLIPS)"),
    ("ac.check_labels(scan())", "pass texts=… as well", "ac.check_labels(scan(), texts=['a'] * len(scan().clips))"),
    ("ac.add_durations(CLIPS)", "pass a datasets.Dataset", "scan().durations; ac.add_durations(rows())"),
    ("ac.audio.load_audio(7)", 'pass a path, the bytes of an audio file, {"path": …}',
     "import datasets; load = ac.audio.load_audio; load(clip); load(clip.read_bytes()); load({'path': clip})\n"
     "load(rows().cast_column('audio', datasets.Audio(decode=False))[0]['audio'])"),
    ("ac.audio.load_audio(clip, sample_rate=1)", "16000 is usual", "ac.audio.load_audio(clip, sample_rate=16000)"),
    ("ac.audio.AddNoise(noises=[])", "leave it out", "ac.audio.AddNoise(noises=None)"),
    ("ac.audio.DecodedCache(-1)", "1 << 30 is a GiB", "ac.audio.DecodedCache(1 << 30)"),
    ("ac.audio.CTCCollator(processor())([{'labels': [1]}])", 'rows need "audio"',
     "ac.audio.CTCCollator(processor())([{'audio': clip, 'labels': [1]}]); trainer(remove_unused_columns=False)"),
    ("ac.measure_loader(CLIPS, processor=7)", "called as processor(array, sampling_rate=…)",
     "ac.measure_loader(CLIPS, processor=lambda array, sampling_rate: array, seconds=0.05)"),
    ("ac.estimate_memory('wav2vec2-base', batch=2, seconds=3, estimator='published', every_n_layers=2)", "too",
     "ac.estimate_memory('wav2vec2-base', batch=2, seconds=3, estimator='published', every_n_layers=2,"
     " gradient_checkpointing=True)"),
    ("traced().largest_batch(1.0)", "pass limit_bytes, or trace with", 'traced(gpu="L4").largest_batch(1.0)'),
    ("ac.trace.trace_training(model(), points=[(0, 1, 1)])", "batch and length from 1 on",
     "ac.trace.trace_training(model(), points=[(1, 16000, 1)])"),
    ("ac.find_max_batch_size(model(), high=2)", "pass batch_fn(samples)",
     "ac.find_max_batch_size(model(), seconds=0.5, high=2)"),
    ("ac.find_max_batch_size(trainer(), low=4, high=2)", "the range",
     "ac.find_max_batch_size(trainer(), low=1, high=2)"),
    ("ac.AdaptiveMemoryCallback(memory=traced())", "trace it with",
     'ac.AdaptiveMemoryCallback(memory=traced(gpu="L4"))'),
    ("ac.AdaptiveMemoryCallback(cooldown_s=-1)", "the default is 60", "ac.AdaptiveMemoryCallback(cooldown_s=60)"),
    ("ac.guard.attach(trainer(), rule='best')", "choose one of", "ac.guard.attach(trainer(), rule='mean')"),
    ("ac.guard.attach(7)", "pass a transformers.Trainer", "ac.guard.attach(trainer())"),
    ("manager().train(model())", "pass a transformers.Trainer", "manager().train(trainer(), verbose=False)"),
    ("ac.plan.largest_models('', 'whisper-t')", 'such as gpu="T4"',
     'ac.plan.largest_models(gpu="T4", family="whisper-t")'),
    ("ac.MemoryMonitor(interval_ms=-1)", "100 ms is usual", "ac.MemoryMonitor(interval_ms=100).stop()"),
    ("ac.MemoryMonitor(pid=-1)", "the PID of a running process", "ac.MemoryMonitor(pid=os.getpid()).stop()"),
    ("ac.watch.report(7)", "pass a MemoryMonitor or a RunLog",
     "put_run(tmp, trained(seconds=60)); ac.watch.report(tmp)"),
    ("ac.plan.launch_files(two(), tmp, machines=4)", "the GPUs of all machines together",
     "c = two(); c.device_count = 4; ac.plan.launch_files(c, tmp, machines=4)"),
    ("ac.plan.launch_files(two(), tmp, strategy='none')", "choose ddp",
     "ac.plan.launch_files(two(), tmp, strategy='ddp')"),
    ("ac.plan.launch_files(two(), tmp, strategy='fsdp')", "pass model=",
     "ac.plan.launch_files(two(), tmp, strategy='fsdp', layers=[\"Wav2Vec2EncoderLayerStableLayerNorm\"])"),
    ("ac.recipe.load_speech('demo', evaluation_share=2)", "0.1 is usual",
     "ac.recipe.load_speech('demo', evaluation_share=0.1)"),
    ("ac.recipe.load_speech(rows(), text_column='txt')", "did you mean",
     "ac.recipe.load_speech(rows(), text_column='text')"),
    ("ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=0)", "at least 1",
     "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=1, verbose=False)"),
    ("ac.prepare_model(7, plan())", "pass the torch module", "ac.prepare_model(model(), plan())"),
]

COMMANDS = [
    ("compare --hours 1", "pass --model, or --largest", "compare --hours 1 --model wav2vec2-base --gpus T4"),
    ("compare --model wav2vec2-base", "pass --data, --hours", "compare --model wav2vec2-base --hours 1 --gpus T4"),
    ("compare --largest xls-r", "name one with --gpus", "compare --largest xls-r --gpus T4"),
    ("train --model tiny-wav2vec2 --data demo --set learning_rate", "write --set learning_rate=3e-5",
     "train --help --set learning_rate=3e-5"),
    ("report a b c", "name one run, or two", "report run"),
    ("report run run --by time", "leave --by out", "report run run"),
    ("report run --plot a.doc", "name a file .png", "report run --plot a.png"),
    ("monitor --once --json --pid 1073741824", "name one that runs", "monitor --once --json --pid {pid}"),
    ("scan", "--help lists all options", "scan --help"),
]
# fmt: on
OTHERS = {"asrconfig_go", "from_pretrained", "AutoProcessor", "Audio", "decode", "input_values", "input_features"}
OTHERS |= {"expandable_segments", "ctc_zero_infinity"}


@cache
def declared() -> frozenset[str]:
    """Every name that the package declares, and the settings of transformers."""
    transformers = pytest.importorskip("transformers")
    names = set(inspect.signature(transformers.Trainer.__init__).parameters) | OTHERS
    names |= {field.name for field in dataclasses.fields(transformers.Seq2SeqTrainingArguments)}
    for path in Path(ac.__file__).parent.rglob("*.py"):
        names.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return frozenset(names)


@cache
def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = [a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(action.choices)


def check_hint(hint: str, words: str, mended: str = "") -> None:
    """It has the words, what it names exists, and one of the arguments it shows is in the mended call."""
    assert words in hint
    prose = re.sub(r'"[^"]*"|\'[^\']*\'|/\S+|[\w./-]+\.(py|json|md|html|txt)\b|--\S+', "", hint)
    names = re.findall(r"\b([a-z]\w*_\w+|\w+(?=\())|\b([a-z]\w+)=", prose)
    assert {name for pair in names for name in pair if name} <= declared(), hint
    examples = re.findall(r'(?<!-)\b[a-z]\w+=(?:"[^"]+"|\[[^\]]+\]|\w[\w.]*\w|\d)', hint)
    plain = mended.replace("'", '"')
    assert not (examples and mended) or any(part in plain for part in examples), (examples, mended)


def names(tmp: Path) -> dict[str, Any]:
    """What the code of ``CALLS`` uses."""

    def manager() -> ac.ASRConfigManager:
        made = ac.ASRConfigManager(gpu="T4")
        made.profile_dataset(clips, progress=False)
        made.profile_model("wav2vec2-base")
        return made

    for package in ("audio", "guard", "plan", "predict", "recipe", "trace", "train", "watch"):
        import_module(f"asrconfig_go.{package}")
    clips = Path(ac.__file__).parent / "data" / "clips"
    return {
        "ac": ac, "np": np, "os": os, "tmp": tmp, "CLIPS": clips, "clip": min(clips.glob("*.mp3")), "plan": make_plan,
        "manager": manager, "put_run": put_run, "trained": trained, "quiet": {"verbose": False, "trace": False},
        "trainer": lambda **settings: tiny_trainer(tmp / "run", **{"max_steps": 1, **settings}),
        "model": lambda: wav2vec2("mean"), "two": lambda: make_plan(device_count=2, gpu_name="Tesla T4"),
        "traced": lambda **more: ac.MemoryModel.trace(wav2vec2("mean"), precision="fp32", progress=False, **more),
        "scan": lambda: ac.scan_audio(clips, progress=False), "rows": lambda: digits(6)["train"],
        "processor": lambda: ac.recipe.build_processor(["one two"], "tiny-wav2vec2"),
    }  # fmt: skip


def patched(operation: str, patch: dict[str, Any]) -> dict[str, Any]:
    pairs = json.loads((ROOT / "capi" / "testdata" / f"{operation}.json").read_text())
    arguments = copy.deepcopy(next(pair["request"]["args"] for pair in pairs if pair["answer"].get("ok")))
    for name, value in patch.items():
        *path, last = name.split(".")
        within = arguments
        for part in path:
            within = within[int(part)] if isinstance(within, list) else within[part]
        within[last] = value
        if value is None:
            del within[last]
    return dict(arguments)


@pytest.mark.parametrize(("operation", "wrong", "words", "mended"), OPERATIONS)
def test_a_request(operation: str, wrong: dict[str, Any], words: str, mended: dict[str, Any]) -> None:
    with pytest.raises(AsrConfigError) as refused:
        native.call(operation, patched(operation, wrong))
    check_hint(refused.value.hint, words)
    assert native.call(operation, patched(operation, mended)) is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("wrong", "words", "mended"), CALLS, ids=lambda text: str(text)[:50])
def test_a_call(wrong: str, words: str, mended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AsrConfigError) as refused:
        exec(wrong, names(tmp_path))
    check_hint(refused.value.hint, words, mended)
    exec(mended, names(tmp_path))


@pytest.mark.parametrize(("wrong", "words", "mended"), COMMANDS, ids=lambda text: str(text)[:50])
def test_a_command(
    wrong: str, words: str, mended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    put_run(tmp_path / "run", trained(seconds=60))

    def status(line: str) -> Any:
        try:
            return main(shlex.split(line.format(pid=os.getpid())))
        except SystemExit as ended:
            return ended.code or 0

    assert status(wrong) in (1, 2)
    assert words in capsys.readouterr().err.partition("→")[2]
    assert status(mended) == 0


def test_commands_packages_settings_and_pages_that_texts_name_exist() -> None:
    """Of every text in the sources, run or not."""
    files = [*(ROOT / "core").rglob("*.go"), *(ROOT / "python" / "asrconfig_go").rglob("*.py")]
    sources = "\n".join(file.read_text() for file in files if not file.name.endswith("_test.go"))
    extras = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    named = set(re.findall(r"\basrconfig ([a-z][a-z-]+) --", sources))
    assert named and named <= set(commands())
    packages = set(re.findall(r"pip install (?:-U |--force-reinstall )?['\\\"]*([a-z][\w-]+)", sources))
    assert packages and all(name in extras + "asrconfig-go torch lightning shtab pyarrow" for name in packages)
    settings = set(re.findall(r"\bset ([a-z]+_\w+)=", sources))
    assert settings and settings <= declared()
    pages = set(re.findall(r"\bdocs/[\w/-]+\.md", sources))
    assert pages and all((ROOT / page).exists() for page in pages)


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="needs ffmpeg")
def test_a_file_that_is_not_read_yet_is_converted(tmp_path: Path) -> None:
    clip, refused, converted = names(tmp_path)["clip"], tmp_path / "a.wma", tmp_path / "a.flac"
    subprocess.run(["ffmpeg", "-v", "error", "-i", clip, refused], check=True)
    (bad,) = ac.scan_audio([refused], allow_empty=True, progress=False).profile.bad_files
    code = bad.error.rpartition("convert it: ")[2]
    assert code == "ffmpeg -i INPUT OUTPUT.flac"
    files = {"INPUT": str(refused), "OUTPUT.flac": str(converted)}
    subprocess.run([files.get(word, word) for word in shlex.split(code)], check=True, capture_output=True)
    (again,) = ac.scan_audio([converted], progress=False).clips
    assert again.duration_s == pytest.approx(ac.scan_audio([clip], progress=False).clips[0].duration_s, abs=0.2)
