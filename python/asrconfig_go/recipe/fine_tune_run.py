"""One fine-tuning, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .._base.adapters import add_lora
from .._base.defaults import SAMPLING_RATE
from .._base.output import show
from ..loading.processor_batches import CollatorSettings, asked_language
from ..plan.plan_record import FILE
from ..training.checkpoint_space import check_room, disk_errors_explained, saved_so_far
from ..view.units import say
from .error_rates import word_error_rate
from .fine_tune_options import FineTuneOptions
from .fine_tune_result import FineTuneResult
from .labelling import prepare
from .long_recordings import load_aligner
from .model_building import load_model
from .model_kinds import family
from .output_folder import save_model
from .processors import build_processor
from .quantization import check_bits
from .rank_output import quiet
from .recipe_plan import given_plan, plan_of
from .speech_data import Notes, SpeechData, column
from .trainer_settings import FROM_RANDOM_WEIGHTS, override, schedule
from .trainers import arguments_class, make_trainer, speech_settings
from .transcription import transcribe

_BEFORE_S = 600  # of audio, of which a word error rate before the training costs little


class Run:
    """From data to a model in a folder. See ``fine_tune``."""

    def __init__(self, options: FineTuneOptions, data: SpeechData) -> None:
        self.options, self.data = options, data
        self.processor: Any = None
        self.model: Any = None
        self.trainer: Any = None
        self.before: float | None = None

    def go(self, finish: Callable[[Run], FineTuneResult]) -> FineTuneResult:
        """All stages; ``finish`` is the last one."""
        self._prepare()
        self.plan, self.manager = plan_of(self.options, self.data, self.model, self.processor)
        self._select()
        self.watch = self.manager.callback()
        self.trainer = self._make_trainer()
        with ExitStack() as stack:
            stack.enter_context(quiet(not self.options.verbose))
            stack.enter_context(disk_errors_explained(self.options.output, lambda: self.trainer))
            self._train(stack)
            if not (self.manager.report and self.manager.report.stopped):
                save_model(self.trainer, self.options.output)
            return finish(self)

    def say(self, stage: str, text: Any) -> None:
        """Print a stage."""
        say(self.options.verbose and (self.trainer is None or self.trainer.is_world_process_zero()), stage, text)

    def _prepare(self) -> None:
        options, data = self.options, self.data
        self.say("Speech", data)
        cleans = family(options.model) == "ctc" if options.clean is None else options.clean
        cleaned = data.clean(language=options.language) if cleans else data.with_texts(str.strip)
        self.processor = build_processor(column(cleaned.train, "text"), options.model, language=options.language)
        plan = given_plan(options)
        rank = plan.lora_rank if plan else options.rank
        check_bits(options.bits, bool(rank), options.tiny)
        self.model = load_model(options.model, self.processor, seed=options.seed, bits=options.bits)
        if rank:
            self.model = add_lora(self.model, rank, seed=options.seed)
        aligner = load_aligner(options.align) if options.align else None
        chunk = plan.chunk_length_s if plan else None
        self.data = prepare(
            cleaned, self.processor, model=self.model, align=aligner, chunk_length_s=chunk, progress=options.verbose
        )
        tokens = f"{len(self.processor.tokenizer)} tokens in the vocabulary"
        self.say("Prepared", Notes((*self.data.since(data), tokens)))
        check_room(options.output, self.model)

    def _select(self) -> None:
        seconds = [length / SAMPLING_RATE for length in column(self.data.train, "length")]
        train, selection = self.plan.select(self.data.train, seconds)
        if len(train) < len(seconds):
            self.data = self.data.of(train, self.data.evaluation).noted(*repr(selection).splitlines())
            self.say("Selected", selection)

    def _make_trainer(self) -> Any:
        from transformers import PrinterCallback

        options, plan, clips = self.options, self.plan, len(self.data.train)
        if options.epochs is not None:
            plan.num_train_epochs = float(options.epochs)
        steps = options.steps or plan.max_steps(clips)
        interval = plan.save_steps if options.steps is None and options.epochs is None else None
        settings = {
            **schedule(steps, self.data.evaluation is not None, interval),
            **speech_settings(self.model, self.data),
            **({"max_steps": options.steps} if options.steps else {}),
            **(self._from_random_weights(steps) if options.tiny else {}),
            "disable_tqdm": not options.verbose,
        }
        others = override(plan, options.settings)
        settings = {name: value for name, value in settings.items() if name not in options.settings} | others
        plan.apply(self.model)  # before the arguments: they start CUDA, and allocator settings then come too late
        args = plan.to_training_arguments(
            options.output, arguments_class=arguments_class(self.model), model=self.model, **settings
        )
        plan.save(options.output / FILE)
        self.manager.explain().save(options.output / "plan.html")
        callbacks = [self.watch, *options.callbacks]
        collating: CollatorSettings = {"load": plan.clip_loader(), **asked_language(self.processor, options.language)}
        data = self._during_training()
        trainer = make_trainer(self.model, args, data, self.processor, callbacks=callbacks, **collating)
        if not options.verbose:
            trainer.remove_callback(PrinterCallback)  # it prints what the bar would
        return trainer

    def _during_training(self) -> SpeechData:
        """The data with as many evaluation clips as the plan has time for; the last evaluation takes all."""
        data = self.data.evaluated_with(self.plan.eval_samples, self.options.seed)
        if data.evaluation is None or data is self.data:
            return data
        drawn = f"{len(data.evaluation)} of {len(column(self.data.evaluation, 'text'))} clips, drawn at random"
        note = f"evaluations during training take {drawn}; the last one takes all"
        self.data = self.data.noted(note)
        self.say("Evaluations", Notes([note]))
        return data

    def _from_random_weights(self, steps: int) -> dict[str, Any]:
        settings = {**FROM_RANDOM_WEIGHTS, "warmup_steps": max(1, steps // 10)}
        values = ", ".join(f"{name} {value:g}" for name, value in settings.items() if not isinstance(value, bool))
        self.say("Settings", Notes([f"random weights need other settings than the plan's: {values}"]))
        return settings

    def _train(self, stack: ExitStack) -> None:
        options, trainer, evaluation = self.options, self.trainer, self.data.evaluation
        if options.tiny:  # too small for two threads: they wait for each other where cores are shared
            import torch

            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        stack.callback(self.manager.attach(trainer).detach)
        fresh = evaluation is not None and options.resume is False
        if fresh and sum(column(evaluation, "length")) <= _BEFORE_S * SAMPLING_RATE:
            # Not by trainer.evaluate(): before a training has begun, its reporters write to the working folder.
            self.before = word_error_rate(column(evaluation, "text"), self.transcribed(None))
        try:
            self.manager.train(
                trainer, resume=options.resume, save_by=options.save_by, profile=options.profile,
                verbose=options.verbose,
            )  # fmt: skip
        except KeyboardInterrupt:
            if options.verbose and trainer.is_world_process_zero():
                state, output = trainer.state, Path(trainer.args.output_dir)
                show(
                    f"\nStopped at step {state.global_step} of {state.max_steps}: {saved_so_far(output)}\n"
                    "  → continue with the same call with resume=True (asrconfig train … --resume)"
                )
            raise

    def transcribed(self, n: int | None) -> list[str]:
        """Transcribe the first ``n`` clips to evaluate with, or all of them for None."""
        longest = getattr(self.trainer.args, "generation_max_length", None)
        progress = self.options.verbose and n is None
        return transcribe(
            self.model, self.processor, self.data.evaluation, n=n, max_length=longest, progress=progress,
            language=self.options.language,
        )  # fmt: skip
