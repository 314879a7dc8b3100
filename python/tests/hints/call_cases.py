"""Hints of the package's functions: a call that gets one, and the call mended as the hint says.

Both are code, in which ``ac`` is the package, ``tmp`` an empty folder and the rest what ``hint_names`` gives.
"""

from __future__ import annotations

from typing import NamedTuple


class Call(NamedTuple):
    """``before`` is run first, for both."""

    hint: str
    wrong: str
    mended: str
    before: str = ""


C = Call
_MEMORY = "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False, cache=False)"
_T4 = _MEMORY.replace("'fp32'", "'fp16', gpu='T4'")
_ESTIMATE = "ac.estimate_memory('wav2vec2-base', batch=2, seconds=3, gpu='T4', progress=False{})"
_ANALYTIC = _ESTIMATE.format(", estimator='analytic'{}")
_PLAN = "ac.create_optimal_config(CLIPS, 'wav2vec2-base', verbose=False, trace=False, {})"
_TWO_FITS = "pass rows of (seconds, largest micro-batch), or make them by memory_table(memory_model, longest_s)"
_SELECT = "config = plan()"
_COMPARE = "ac.compare_gpus('wav2vec2-base', {}, trace=False)"
_LARGEST = "ac.largest_models('T4', 'xls-r', {})"
_BATCH_FN = "pass batch_fn(batch, length, labels) -> the model's keyword arguments as tensors"
_MONITOR = "m = ac.MemoryMonitor(interval_ms=20)"
_REPORTS = "from asrconfig_go.report import *; from run_logs import *"
_TRACE = "t = ac.trace.trace_training(model(), points=[(1, 16000, 3), (2, 16000, 3), (2, 24000, 4)]{})"
_GUARD = "ac.guard.attach(t, {})"

CALLS: list[Call] = [
    # checks of values
    C(
        "pass a finite number",
        "ac.AdaptiveMemoryCallback(warn_at=float('nan'))",
        "ac.AdaptiveMemoryCallback(warn_at=0.8)",
    ),
    C("pass {}", "ac.AdaptiveMemoryCallback(warn_at='high')", "ac.AdaptiveMemoryCallback(warn_at=0.8)"),
    C("choose one of {}", "ac.guard.attach(t, rule='best')", "ac.guard.attach(t, rule='mean')", "t = trainer()"),
    C(
        "choose 0 or more, below 2**32",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, seed=-1, max_steps=1, verbose=False)",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, seed=0, max_steps=1, verbose=False)",
    ),
    C(
        "pass a path",
        "ac.TrainingConfig.load(7)",
        "ac.TrainingConfig.load(tmp / 'p.json')",
        "plan().save(tmp / 'p.json')",
    ),
    C(
        'the working folder is "."',
        "ac.TrainingConfig.load('')",
        "chdir(tmp); ac.scan_audio('.', allow_empty=True, progress=False)",
    ),
    C(
        "check the path",
        "ac.TrainingConfig.load('a' + chr(0))",
        "ac.TrainingConfig.load(tmp / 'p.json')",
        "plan().save(tmp / 'p.json')",
    ),
    C(
        "choose a folder that exists and can be written",
        "plan().save(tmp / 'no' / 'p.json')",
        "plan().save(tmp / 'p.json')",
    ),
    C(
        "name a file that save_config wrote",
        "ac.TrainingConfig.load(tmp / 'p.json')",
        "plan().save(tmp / 'p.json'); ac.TrainingConfig.load(tmp / 'p.json')",
        "(tmp / 'p.json').write_text('[]')",
    ),
    C("did you mean {}?", "c.learning_rat = 1", "c.learning_rate = 1e-4", "c = plan()"),
    C(
        "see dataclasses.fields(TrainingConfig) for the settings there are",
        "c.nothing_like_it = 1",
        "import dataclasses; name = dataclasses.fields(ac.TrainingConfig)[3].name; setattr(c, name, getattr(c, name))",
        "c = plan()",
    ),
    C(
        "choose a value in that range",
        "c.per_device_train_batch_size = 0",
        "c.per_device_train_batch_size = 1",
        "c = plan()",
    ),
    # plans
    C('write it as text, such as gpu="T4"', "ac.ASRConfigManager(gpu=4)", 'ac.ASRConfigManager(gpu="T4")'),
    C(
        "{} keeps 15 % of the memory free for fragmentation and other processes",
        "ac.ASRConfigManager(safety_margin=2)",
        "ac.ASRConfigManager(safety_margin=0.85)",
    ),
    C(
        "call manager.{}(…) first",
        "manager.plan()",
        "manager.profile_dataset(CLIPS, progress=False); manager.profile_model('wav2vec2-base'); manager.plan(trace=False)",
        "manager = ac.ASRConfigManager(gpu='T4')",
    ),
    C(
        "call create_optimal_config, or manager.plan()",
        "manager.explain()",
        "manager.plan(trace=False); manager.explain()",
        "manager = ac.ASRConfigManager(gpu='T4'); manager.profile_dataset(CLIPS, progress=False); manager.profile_model('wav2vec2-base')",
    ),
    C(
        'leave precision out, or ask for "fp16"',
        _PLAN.format("gpu='T4', precision='bf16'"),
        _PLAN.format("gpu='T4', precision='fp16'"),
    ),
    C("allow longer clips", _PLAN.format("gpu='T4', max_length_s=0.01"), _PLAN.format("gpu='T4', max_length_s=20")),
    C(
        "leave predict_with_generate, generation_max_length and num_beams out",
        _PLAN.format("gpu='T4', num_beams=2"),
        _PLAN.format("gpu='T4'"),
    ),
    C(
        'leave distributed out, or plan for several GPUs: gpu="2xT4", device_count=2',
        _PLAN.format("gpu='T4', distributed='zero3'"),
        _PLAN.format("gpu='2xT4', device_count=2, distributed='zero3'"),
    ),
    C(
        "leave precision out",
        "ac.create_optimal_config(CLIPS, model(), verbose=False, trace=False, precision='fp16')",
        "ac.create_optimal_config(CLIPS, model(), verbose=False, trace=False)",
    ),
    C(
        "leave offload_checkpoints out",
        "ac.create_optimal_config(CLIPS, model(), verbose=False, trace=False, offload_checkpoints=True)",
        "ac.create_optimal_config(CLIPS, model(), verbose=False, trace=False)",
    ),
    C(
        "create_optimal_config gives one",
        "ac.select_clips([1.0], 7)",
        "config, _ = ac.create_optimal_config(CLIPS, 'wav2vec2-base', gpu='T4', trace=False, verbose=False); ac.select_clips([1.0], config)",
    ),
    C(
        "raise config.max_length_s, or set chunk_length_s and split the clips",
        "config.max_length_s = 1.0; ac.select_clips([2.0], config)",
        "config.max_length_s = 3.0; ac.select_clips([2.0], config)",
        _SELECT,
    ),
    C(
        "pass seconds, as scan_audio(…).durations",
        "ac.select_clips('no', config)",
        "ac.select_clips(ac.scan_audio(CLIPS, progress=False).durations, config)",
        _SELECT,
    ),
    C("pass seconds", "ac.select_clips([-1.0], config)", "ac.select_clips([1.0], config)", _SELECT),
    C(
        "name a file .html, .json or .txt",
        "e.save(tmp / 'p.doc')",
        "e.save(tmp / 'p.html'); e.save(tmp / 'p.json'); e.save(tmp / 'p.txt')",
        "e = plan().explain()",
    ),
    C('write a name, such as "plan.html"', "e.save(7)", 'chdir(tmp); e.save("plan.html")', "e = plan().explain()"),
    C(
        "pass what the function of that name gave",
        "ac.explain.Explanation(plan(), hardware=7)",
        "ac.explain.Explanation(plan(), hardware=ac.machine.HardwareProfile.detect('T4'))",
    ),
    C("name a file .html", "plan().explain().to_html(tmp / 'p.pdf')", "plan().explain().to_html(tmp / 'p.html')"),
    # applying
    C(
        "write it as 'expandable_segments:True,other:value'",
        "c.alloc_conf = 'nonsense'; c.apply(model())",
        "c.alloc_conf = 'expandable_segments:True'; c.apply(model())",
        "c = plan()",
    ),
    C(
        "pass the torch module, before DistributedDataParallel",
        "ac.prepare_model(7, plan())",
        "ac.prepare_model(model(), plan())",
    ),
    C(
        "did you mean {}?",
        "plan().to_training_arguments(tmp, learning_rat=1)",
        "plan().to_training_arguments(tmp, learning_rate=1e-4)",
    ),
    # batching
    C("choose 0 or more, below 2**64", "ac.StepSampler([1.0] * 8, 4, seed=-1)", "ac.StepSampler([1.0] * 8, 4, seed=0)"),
    C(
        "pass the seconds of every clip: scan_audio(source).durations",
        "ac.StepSampler('no', 4)",
        "ac.StepSampler(ac.scan_audio(CLIPS, progress=False).durations, 4)",
    ),
    C(_TWO_FITS, "ac.batching.split_by_memory([1.0], 7)", "ac.batching.split_by_memory([1.0], [(2.0, 4)])"),
    C(
        "pass seconds above 0",
        "ac.batching.memory_table(m, 0)",
        "ac.batching.memory_table(m, 2.0, 10**9)",
        "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False, gpu='L4')",
    ),
    C("count ranks from 0", "s.shard(2, 2)", "s.shard(1, 2)", "s = ac.StepSampler([1.0] * 8, 4)"),
    C("count epochs from 0", "s.set_epoch(-1)", "s.set_epoch(0)", "s = ac.StepSampler([1.0] * 8, 4)"),
    C(
        "take fewer processes, other steps, or drop_last",
        "list(ac.StepSampler([1.0] * 9, 4).shard(0, 4))",
        "list(ac.StepSampler([1.0] * 9, 4, drop_last=True).shard(0, 4))",
    ),
    C("give the duration of every clip", "list(ac.StepSampler([], 4))", "list(ac.StepSampler([1.0] * 4, 4))"),
    # comparisons
    C(
        "give a number above 0",
        "ac.largest_models('T4', 'xls-r', seconds=0)",
        "ac.largest_models('T4', 'xls-r', seconds=15)",
    ),
    C("pass a dataset, or hours of audio", _COMPARE.format("gpus=['T4']"), _COMPARE.format("hours=1, gpus=['T4']")),
    C(
        'name some, such as gpus=["T4", "L4"], or leave it out for all',
        _COMPARE.format("hours=1, gpus=[]"),
        _COMPARE.format('hours=1, gpus=["T4", "L4"]'),
    ),
    C(
        'pass {"T4": 0.35, "L4": 0.7}, or a JSON file',
        _COMPARE.format("hours=1, gpus=['T4'], prices=7"),
        _COMPARE.format('hours=1, gpus=["T4"], prices={"T4": 0.35, "L4": 0.7}'),
    ),
    C(
        "give dollars per hour and GPU",
        _COMPARE.format("hours=1, gpus=['T4'], prices={'T4': 'x'}"),
        _COMPARE.format("hours=1, gpus=['T4'], prices={'T4': 0.35}"),
    ),
    C(
        "choose full, eight_bit or lora",
        "ac.largest_models('T4', 'xls-r').largest('half')",
        "ac.largest_models('T4', 'xls-r').largest('lora')",
    ),
    # data
    C(
        "None measures every file",
        "ac.scan_audio(CLIPS, sample_size=0, progress=False)",
        "ac.scan_audio(CLIPS, sample_size=None, progress=False)",
    ),
    C(
        "use 0 for four per usable core",
        "ac.scan_audio(CLIPS, workers=-1, progress=False)",
        "ac.scan_audio(CLIPS, workers=0, progress=False)",
    ),
    C(
        "use 1 to 65536",
        "ac.scan_audio(CLIPS, batch_size=-1, progress=False)",
        "ac.scan_audio(CLIPS, batch_size=1, progress=False)",
    ),
    C(
        "the working folder is {}",
        "ac.scan_audio(tmp / 'no', progress=False)",
        "chdir(CLIPS); ac.scan_audio('.', progress=False)",
    ),
    C(
        "pass texts=… as well",
        "ac.check_labels(r)",
        "ac.check_labels(r, texts=['a'] * len(r.clips))",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "pass a list with one text for each clip",
        "ac.check_labels(r, texts=7)",
        "ac.check_labels(r, texts=['a'] * len(r.clips))",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "texts are str, or lists of labels",
        "ac.check_labels(r, texts=[7] * len(r.clips))",
        "ac.check_labels(r, texts=['a'] * len(r.clips))",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "pass one text for each clip, bad ones included",
        "ac.check_labels(r, texts=['a'])",
        "ac.check_labels(r, texts=['a'] * len(r.clips))",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "pass tokenizer=…",
        "ac.check_labels(r, texts=['a'] * len(r.clips), model='whisper-tiny')",
        "ac.check_labels(r, texts=['a'] * len(r.clips), model='whisper-tiny', tokenizer=list)",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "pass a function from a text to its labels",
        "ac.check_labels(r, texts=['a'] * len(r.clips), tokenizer=7)",
        "ac.check_labels(r, texts=['a'] * len(r.clips), tokenizer=list)",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "it must return a text's labels",
        "ac.check_labels(r, texts=['a'] * len(r.clips), tokenizer=len)",
        "ac.check_labels(r, texts=['a'] * len(r.clips), tokenizer=list)",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "pass a model, its config, a known name, or a function from seconds to frames",
        "ac.check_labels(r, texts=['a'] * len(r.clips), model=7)",
        "ac.check_labels(r, texts=['a'] * len(r.clips), model='wav2vec2'); ac.check_labels(r, texts=['a'] * len(r.clips), model=lambda s: int(50 * s))",
        "r = ac.scan_audio(CLIPS, progress=False)",
    ),
    C(
        "pass texts=… in the order of the clips",
        "ac.check_labels(files, progress=False)",
        "ac.check_labels(files, texts=['a'] * len(files), progress=False)",
        "files = sorted(CLIPS.glob('*.flac'))[:3]",
    ),
    C(
        "remove_columns({}), or choose another column=…",
        "ac.add_durations(d, progress=False)",
        "ac.add_durations(d, column='other', progress=False); ac.add_durations(d.remove_columns('length'), progress=False)",
        "d = ac.add_durations(hub_dataset(), progress=False)",
    ),
    C(
        "pass a datasets.Dataset; of other sources, scan_audio(source).durations are the seconds",
        "ac.add_durations(CLIPS, progress=False)",
        "ac.scan_audio(CLIPS, progress=False).durations; ac.add_durations(hub_dataset(), progress=False)",
    ),
    C(
        "load it without streaming=True; a stream cannot be put in the order of lengths anyway",
        "ac.add_durations(hub_dataset().to_iterable_dataset(), progress=False)",
        "ac.add_durations(hub_dataset(), progress=False)",
    ),
    C(
        "pass one split, such as dataset[{}]",
        "ac.scan_audio(dataset, progress=False)",
        "ac.scan_audio(dataset['train'], progress=False)",
        "dataset = {'train': [np.zeros(16000, dtype='float32')]}",
    ),
    # loading
    C(
        'pass a path, the bytes of an audio file, {"path": …} or {"bytes": …} as datasets.Audio(decode=False) gives it, {"array": …, "sampling_rate": …}, or an array',
        "load(7)",
        "load(one); load(one.read_bytes()); load({'path': str(one)}); load({'bytes': one.read_bytes()}); load({'array': np.zeros(100), 'sampling_rate': 16000}); load(np.zeros(100))",
        "load = ac.loading.load_audio; one = clip()",
    ),
    C(
        "it is {} to {} Hz",
        "load({'array': np.zeros(100), 'sampling_rate': -1})",
        "load({'array': np.zeros(100), 'sampling_rate': 8000})",
        "load = ac.loading.load_audio",
    ),
    C(
        "16000 is usual",
        "ac.loading.load_audio(clip(), sample_rate=1)",
        "ac.loading.load_audio(clip(), sample_rate=16000)",
    ),
    C("1.0 changes every clip", "ac.loading.ChangeSpeed(probability=2)", "ac.loading.ChangeSpeed(probability=1.0)"),
    C(
        "8, or None for no multiple",
        "ac.loading.CTCCollator(processor(), pad_to_multiple_of=-1)",
        "ac.loading.CTCCollator(processor(), pad_to_multiple_of=8); ac.loading.CTCCollator(processor(), pad_to_multiple_of=None)",
    ),
    C(
        "pass the model's processor, such as AutoProcessor.from_pretrained(…)",
        "ac.loading.CTCCollator(7)([{'input_values': [0.0], 'labels': [1]}])",
        "ac.loading.CTCCollator(processor())([{'input_values': [0.0] * 400, 'labels': [1]}])",
    ),
    C("1 << 30 is a GiB: 4.5 h at 16 kHz", "ac.loading.DecodedCache(-1)", "ac.loading.DecodedCache(1 << 30)"),
    C("Reverberation.made() makes some", "ac.loading.Reverberation([])", "ac.loading.Reverberation.made()"),
    C(
        "leave it out, or noises=None: white",
        "ac.loading.AddNoise(noises=[])",
        "ac.loading.AddNoise(); ac.loading.AddNoise(noises=None)",
    ),
    C("(0.9, 1.0, 1.1)", "ac.loading.ChangeSpeed(factors=(0,))", "ac.loading.ChangeSpeed(factors=(0.9, 1.0, 1.1))"),
    C("give bytes", "ac.loading.ResampledCache(tmp, max_bytes=-1)", "ac.loading.ResampledCache(tmp, max_bytes=10**9)"),
    C("1.0 is enough", "ac.measure_loader(CLIPS, seconds=-1)", "ac.measure_loader(CLIPS, seconds=1.0)"),
    C(
        "pass a feature extractor that is called as processor(array, sampling_rate=…)",
        "ac.measure_loader(CLIPS, processor=7)",
        "ac.measure_loader(CLIPS, processor=lambda array, sampling_rate: array, seconds=0.05)",
    ),
    # models and memory
    C(
        "pass a torch.nn.Module, a transformers config, a folder with config.json, a known name, or a ModelProfile",
        "ac.profile_model(7)",
        "ac.profile_model(model()); ac.profile_model(model().config); ac.profile_model('wav2vec2-base'); ac.profile_model(ac.machine.ModelProfile(1000, 1000))",
    ),
    C(
        "set requires_grad on what is to be trained",
        "ac.trace.trace_training(frozen, points=[(1, 16000, 3)])",
        "frozen.requires_grad_(True); ac.trace.trace_training(frozen, points=[(1, 16000, 3)])",
        "frozen = model().requires_grad_(False)",
    ),
    C(
        "pass a whole number of at least 1",
        _ESTIMATE.format(", estimator='analytic', every_n_layers=0"),
        _ESTIMATE.format(", estimator='analytic', every_n_layers=1"),
    ),
    C(
        "pass gradient_checkpointing=True, too",
        _ANALYTIC.format(", every_n_layers=2"),
        _ANALYTIC.format(", every_n_layers=2, gradient_checkpointing=True"),
    ),
    C(
        'name one as the Trainer does, such as "adamw_torch_fused"',
        _ANALYTIC.format(", optimizer=''"),
        _ANALYTIC.format(', optimizer="adamw_torch_fused"'),
    ),
    C(
        "pass the longest clip in seconds",
        "ac.estimate_memory('wav2vec2-base', batch=2, seconds=-1, estimator='analytic')",
        "ac.estimate_memory('wav2vec2-base', batch=2, seconds=1, estimator='analytic')",
    ),
    C("pass the tokens of the longest text", _ANALYTIC.format(", labels=-1"), _ANALYTIC.format(", labels=5")),
    C(
        "call model.freeze_feature_encoder() first: a live module is taken as it is",
        "ac.estimate_memory(model, batch=1, seconds=1, freeze_feature_encoder=True, progress=False)",
        "model.freeze_feature_encoder(); ac.estimate_memory(model, batch=1, seconds=1, precision='fp32', progress=False)",
        "model = model()",
    ),
    C(
        "pass a torch.nn.Module, a function that builds one, a transformers config, a folder with config.json, or a known name",
        "ac.MemoryModel.trace(7)",
        "ac.MemoryModel.trace(model, precision='fp32', progress=False)",
    ),
    C(
        "pass a Trace, or the file that Trace.save wrote",
        "ac.MemoryModel.load(7)",
        "t.save(tmp / 't.trace'); ac.MemoryModel.load(t); ac.MemoryModel.load(tmp / 't.trace')",
        _TRACE.format(""),
    ),
    C(
        "ask inside the with block, or trace again",
        "m.estimate(1, 1.0)",
        "with ac.MemoryModel.trace(model(), precision='fp32', progress=False) as again: again.estimate(1, 1.0)",
        "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False)\nwith m: pass",
    ),
    C(
        'pass limit_bytes, or trace with gpu="L4"',
        "m.largest_batch(1.0)",
        "m.largest_batch(1.0, limit_bytes=10**9); ac.MemoryModel.trace(model(), gpu=\"L4\", precision='fp32', progress=False).largest_batch(1.0)",
        "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False)",
    ),
    C(
        "pass the duration of every clip",
        "m.simulate_run([], 2)",
        "m.simulate_run([1.0, 1.5, 2.0, 1.0], 2)",
        "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False, gpu='L4')",
    ),
    C(
        "pass a StepSampler, or lists of clip numbers",
        "m.simulate_steps([1.0] * 4, [])",
        "m.simulate_steps([1.0] * 4, ac.StepSampler([1.0] * 4, 2)); m.simulate_steps([1.0] * 4, [[0, 1], [2, 3]])",
        "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False, gpu='L4')",
    ),
    C(
        "pass a StepSampler of these durations, or lists of numbers of clips, or of micro-batches of them",
        "m.simulate_steps([1.0] * 4, [[7]])",
        "m.simulate_steps([1.0] * 4, ac.StepSampler([1.0] * 4, 2)); m.simulate_steps([1.0] * 4, [[0, 1]]); "
        "m.simulate_steps([1.0] * 4, [[[0], [1]]])",
        "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False, gpu='L4')",
    ),
    C(
        "pass the durations that the sampler was made of",
        "m.simulate_steps([1.0] * 3, ac.StepSampler([1.0] * 4, 2))",
        "m.simulate_steps([1.0] * 4, ac.StepSampler([1.0] * 4, 2))",
        "m = ac.MemoryModel.trace(model(), precision='fp32', progress=False, gpu='L4')",
    ),
    # traces
    C(
        'choose False, True, "non_reentrant" or "reentrant"',
        _TRACE.format(", gradient_checkpointing='yes'"),
        _TRACE.format(', gradient_checkpointing="non_reentrant"'),
    ),
    C("give a whole number from 1 on", _TRACE.format(", accumulation=0"), _TRACE.format(", accumulation=1")),
    C(
        "give (batch, length, labels): whole numbers, batch and length from 1 on",
        "ac.trace.trace_training(model(), points=[(0, 1, 1)])",
        "ac.trace.trace_training(model(), points=[(1, 16000, 1)])",
    ),
    C(
        "trace it with gradient_checkpointing=False",
        "ac.trace.trace_training(Plain(), fn, points=[(1, 8, 1)], gradient_checkpointing=True)",
        "ac.trace.trace_training(Plain(), fn, points=[(1, 8, 1)], gradient_checkpointing=False)",
        "Plain, fn = plain()",
    ),
    C(
        "return the model's keyword arguments: a dict of tensors",
        "ac.trace.trace_training(Plain(), lambda *shape: 7, points=[(1, 8, 1)])",
        "ac.trace.trace_training(Plain(), fn, points=[(1, 8, 1)])",
        "Plain, fn = plain()",
    ),
    C(
        "choose one of {}, or pass a function: parameter groups -> optimizer",
        _TRACE.format(", optimizer='lion'"),
        _TRACE.format(", optimizer='adafactor'")
        + "; import torch; "
        + _TRACE.format(", optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1)"),
    ),
    C(
        "leave the other one first",
        "with ac.trace.MemoryRecorder():\n    with ac.trace.MemoryRecorder(): pass",
        "with ac.trace.MemoryRecorder() as r: pass",
    ),
    # monitors and reports
    C("100 ms is usual", "ac.MemoryMonitor(interval_ms=-1)", "ac.MemoryMonitor(interval_ms=100).stop()"),
    C(
        "pass the PID of a running process",
        "ac.MemoryMonitor(pid=-1)",
        "import os; ac.MemoryMonitor(pid=os.getpid()).stop()",
    ),
    C(
        "0 < warn_at < clean_at <= 1 and 0 <= hysteresis < warn_at; the defaults are 0.90, 0.95 and 0.05",
        "ac.AdaptiveMemoryCallback(warn_at=0.99)",
        "ac.AdaptiveMemoryCallback(warn_at=0.90, clean_at=0.95, hysteresis=0.05)",
    ),
    C(
        "pass seconds; the default is 60",
        "ac.AdaptiveMemoryCallback(cooldown_s=-1)",
        "ac.AdaptiveMemoryCallback(cooldown_s=60)",
    ),
    C(
        "pass what MemoryModel.trace(…) gives",
        "ac.AdaptiveMemoryCallback(memory=7)",
        "ac.AdaptiveMemoryCallback(memory=ac.MemoryModel.trace(model(), gpu='L4', precision='fp32', progress=False))",
    ),
    C(
        'trace it with gpu="L4"',
        "ac.AdaptiveMemoryCallback(memory=ac.MemoryModel.trace(model(), precision='fp32', progress=False))",
        "ac.AdaptiveMemoryCallback(memory=ac.MemoryModel.trace(model(), gpu=\"L4\", precision='fp32', progress=False))",
    ),
    C(
        "pass 1 to 65535, or 0 for one that is free",
        "ac.report.MetricsServer(m, port=-1)",
        "ac.report.MetricsServer(m, port=0).stop()",
        _MONITOR,
    ),
    C(
        'name a file .csv, .jsonl or .json, or pass format="csv", "jsonl" or "chrome"',
        "ac.report.export(m, tmp / 'a.doc')",
        "ac.report.export(m, tmp / 'a.csv'); ac.report.export(m, tmp / 'b', format=\"chrome\")",
        _MONITOR + "\nimport time; time.sleep(0.1); m.stop()",
    ),
    C(
        "name the export otherwise",
        "ac.report.export(m, tmp / 'asrconfig_monitor.json')",
        "ac.report.export(m, tmp / 'export.json')",
        _MONITOR + "\nimport time; time.sleep(0.1); m.stop()",
    ),
    C(
        "name the output_dir of a training, or its asrconfig_monitor.json",
        "ac.report.report(tmp / 'no')",
        "m.save(tmp / 'asrconfig_monitor.json'); ac.report.report(tmp); ac.report.report(tmp / 'asrconfig_monitor.json')",
        _MONITOR + "\nimport time; time.sleep(0.1); m.stop()",
    ),
    C(
        "pass a MemoryMonitor or a RunLog, or {}",
        "ac.report.report(7)",
        "ac.report.report(m); ac.report.report(m.run_log())",
        _MONITOR + "\nimport time; time.sleep(0.1); m.stop()",
    ),
    # guard and training
    C("pass a transformers.Trainer", "ac.guard.attach(7)", "ac.guard.attach(trainer())"),
    C("3 halvings are usual", _GUARD.format("max_halvings=-1"), _GUARD.format("max_halvings=3"), "t = trainer()"),
    C(
        "pass seconds of audio, 4 is usual",
        _GUARD.format("overhead_s=-1.0"),
        _GUARD.format("overhead_s=4.0"),
        "t = trainer()",
    ),
    C(
        '"raise", "skip", or a function from a batch of one to a list',
        _GUARD.format("too_long='drop'"),
        'ac.guard.attach(t, too_long="raise").detach(); ac.guard.attach(t, too_long="skip").detach(); ac.guard.attach(t, too_long=lambda batch: [batch])',
        "t = trainer()",
    ),
    C(
        "call detach() of its guard to change options",
        "ac.guard.attach(t, micro_batch=2)",
        "ac.guard.guard_of(t).detach(); ac.guard.attach(t, micro_batch=2)",
        "t = trainer(); ac.guard.attach(t)",
    ),
    C(
        "unfreeze what should be trained before attaching",
        "ac.guard.attach(t)",
        "t.model.requires_grad_(True); ac.guard.attach(t)",
        "t = trainer(); t.model.requires_grad_(False)",
    ),
    C(
        "3 is usual",
        "manager.train(t, max_retries=-1)",
        "manager.train(t, max_retries=3, verbose=False)",
        "manager = ac.ASRConfigManager(); t = trainer()",
    ),
    C(
        "True takes the newest one",
        "manager.train(t, resume='')",
        "manager.train(t, resume=True, verbose=False)",
        "manager = ac.ASRConfigManager(); t = trainer()",
    ),
    C(
        "pass resume=True, or resume=a path",
        "manager.train(t, resume_from_checkpoint=True)",
        "manager.train(t, resume=True, verbose=False)",
        "manager = ac.ASRConfigManager(); t = trainer()",
    ),
    C(
        "set auto_find_batch_size=False: the guard finds a fitting micro-batch itself",
        "manager.train(trainer(auto_find_batch_size=True))",
        "manager.train(trainer(auto_find_batch_size=False), verbose=False)",
        "manager = ac.ASRConfigManager()",
    ),
    C(
        "resume=True takes the newest complete one",
        "manager.train(t, resume=tmp / 'checkpoint-7')",
        "manager.train(t, resume=True, verbose=False)",
        "manager = ac.ASRConfigManager(); t = trainer()",
    ),
    C(
        "pass a torch.nn.Module or a transformers.Trainer",
        "ac.find_max_batch_size(7)",
        "ac.find_max_batch_size(trainer(), high=2, start=1)",
    ),
    # launching
    C(
        "name the Python file that trains",
        "ac.launch.launch_files(two(), tmp, script=' ')",
        "ac.launch.launch_files(two(), tmp, script='train.py')",
    ),
    C(
        "give a whole number from {} to {}",
        "ac.launch.launch_files(two(), tmp, machines=0)",
        "ac.launch.launch_files(two(), tmp, machines=1)",
    ),
    C(
        "plan with device_count= the GPUs of all machines together",
        "ac.launch.launch_files(two(), tmp, machines=4)",
        "c = two(); c.device_count = 4; ac.launch.launch_files(c, tmp, machines=4)",
    ),
    C(
        "choose ddp or another",
        "ac.launch.launch_files(two(), tmp, strategy='none')",
        "ac.launch.launch_files(two(), tmp, strategy='ddp')",
    ),
    C(
        "choose ddp, or plan for a GPU",
        "ac.launch.launch_files(cpu, tmp, strategy='zero3')",
        "ac.launch.launch_files(cpu, tmp, strategy='ddp'); ac.launch.launch_files(two(), tmp, strategy='zero3')",
        "cpu = two(); cpu.gpu_name = ''",
    ),
    C(
        'pass model=, or layers=["Wav2Vec2EncoderLayerStableLayerNorm"] (XLS-R), ["Wav2Vec2EncoderLayer"] (wav2vec2-base), ["WhisperEncoderLayer", "WhisperDecoderLayer"]',
        "ac.launch.launch_files(two(), tmp, strategy='fsdp')",
        'ac.launch.launch_files(two(), tmp, strategy="fsdp", layers=["Wav2Vec2EncoderLayerStableLayerNorm"]); ac.launch.launch_files(two(), tmp, strategy="fsdp", model=model())',
    ),
    C(
        "pass a list of class names",
        "ac.launch.launch_files(two(), tmp, strategy='fsdp', layers='A')",
        "ac.launch.launch_files(two(), tmp, strategy='fsdp', layers=['A'])",
    ),
    C(
        "pass the model that will be trained",
        "ac.launch.launch_files(two(), tmp, strategy='fsdp', model=7)",
        "ac.launch.launch_files(two(), tmp, strategy='fsdp', model=model())",
    ),
    # recipes
    C(
        "0.1 is usual",
        "ac.recipe.load_speech('demo', evaluation_share=2, progress=False)",
        "ac.recipe.load_speech('demo', evaluation_share=0.1, progress=False)",
    ),
    C(
        'pass "demo", a folder (with metadata.csv or .jsonl, or with x.txt beside each x.wav), a manifest, the name of a dataset on the Hub, or a datasets.Dataset',
        "ac.recipe.load_speech(7)",
        'ac.recipe.load_speech("demo", progress=False); ac.recipe.load_speech(hub_dataset(), progress=False)',
    ),
    C(
        "name it: {}=… (--{}-column NAME)",
        "ac.recipe.load_speech(d, progress=False)",
        "ac.recipe.load_speech(d, text_column='said', progress=False)",
        "d = hub_dataset().rename_column('text', 'said')",
    ),
    C(
        "did you mean {}? Pass {}={} (--{}-column {})",
        "ac.recipe.load_speech(hub_dataset(), text_column='txt', progress=False)",
        "ac.recipe.load_speech(hub_dataset(), text_column='text', progress=False)",
    ),
    C(
        "give one of them",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, epochs=1, max_steps=1, verbose=False)",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=1, verbose=False)",
    ),
    C(
        "give a number of at least 1",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=0, verbose=False)",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=1, verbose=False)",
    ),
    C(
        "continue with it by resume=True (--resume), or choose another folder (--out)",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=1, verbose=False)",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=2, resume=True, verbose=False)",
        "ac.fine_tune('demo', 'tiny-wav2vec2', tmp, max_steps=1, verbose=False)",
    ),
    # benchmarks
    C("choose among {}, or all", "b(sweep='dance')", "b(sweep='none')", "b = benchmark()"),
    C("leave it out for the usual", "b(target_batch_size=0)", "b()", "b = benchmark()"),
    C("leave it out for no limit", "b(minutes=-1)", "b()", "b = benchmark()"),
    C(
        "pass TrainingArguments, a TrainingConfig, a dictionary of their names, or a file of one",
        "b(original=7)",
        "b(original={'per_device_train_batch_size': 8})",
        "b = benchmark()",
    ),
]

COMMANDS: list[Call] = [
    C(
        "give --model, or --largest with a family",
        "compare --hours 1",
        "compare --hours 1 --model wav2vec2-base --gpus T4",
    ),
    C("give --data, or --hours", "compare --model wav2vec2-base", "compare --model wav2vec2-base --hours 1 --gpus T4"),
    C("name one with --gpus", "compare --largest xls-r", "compare --largest xls-r --gpus T4"),
    C(
        "write T4=0.35, dollars per hour and GPU",
        "compare --model wav2vec2-base --hours 1 --gpus T4 --price T4=cheap",
        "compare --model wav2vec2-base --hours 1 --gpus T4 --price T4=0.35",
    ),
    C("rename it", "benchmark --model tiny-wav2vec2 --data demo --csv a.txt", "benchmark --help --csv a.csv"),
    C(
        "write --set learning_rate=3e-5",
        "train --model tiny-wav2vec2 --data demo --set learning_rate",
        "train --model tiny-wav2vec2 --data demo --max-steps 1 --quiet --set learning_rate=3e-5",
    ),
    C("name one run, or two", "report a b c", "report run"),
    C("name a file .csv, or take --json", "report run run --export a.jsonl", "report run run --export a.csv"),
    C("leave --{} out, or name one run", "report run run --by time", "report run run"),
    C(
        "name one that runs, as ps or nvidia-smi list them",
        "monitor --once --json --pid 1073741824",
        "monitor --once --json --pid {pid}",
    ),
    C(
        "name a .png, .svg or .pdf in a folder that exists",
        "memory --model tiny-wav2vec2 --batch 1 --seconds 2 --gpu T4 --no-cache --plot no/a.png",
        "memory --model tiny-wav2vec2 --batch 1 --seconds 2 --gpu T4 --no-cache --plot a.png",
    ),
    C("name a file .png, .pdf or .svg", "report run --plot a.doc", "report run --plot a.png"),
    C("--help lists all options", "scan", "scan --help"),
]
