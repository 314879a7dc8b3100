"""One fine-tuning, stage by stage: data, model, plan, Trainer, training, saved model.

``fine_tune`` loads the data and calls ``FineTuneRun.run`` once. The run writes to the output folder only: checkpoints,
the plan, its explanation, and the model with its processor.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import user_path, utf8
from .._core.modules import add_lora, bare, lora_rank
from .._core.output import quiet, show
from .._core.render import say
from .._core.settings import SAMPLING_RATE
from ..audio.collators import extractor_of
from ..audio.processor_batches import CollatorSettings, asked_language
from ..config import TrainingConfig
from ..errors import InvalidArgumentError, NotFoundError
from ..manager import ASRConfigManager
from ..optimal import create_optimal_config
from ..plan.plan_record import FILE
from ..trace.model import generation_facts
from ..train.checkpoints import check_room, checkpoints, disk_errors_explained, saved_so_far
from .fine_tune_options import FROM_RANDOM_WEIGHTS, FineTuneOptions, FineTuneResult, override, schedule, speech_settings
from .labelling import load_aligner, prepare
from .model_building import check_bits, load_model
from .processors import build_processor, family
from .speech_data import Notes, SpeechData, column
from .transcription import make_collator, transcribe, word_error_rate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin, Trainer

MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "adapter_config.json",
    "training_args.bin",  # with any model: named adapters are in subfolders, and torch's modules have no configuration
)
"""A folder in which a Trainer saved a model has at least one of these."""
_FIRST_EVALUATION_S = 600  # up to this much audio, a word error rate before the training costs little


def _plan_and_manager(
    options: FineTuneOptions,
    saved: TrainingConfig | None,
    data: SpeechData,
    model: PreTrainedModel,
    processor: ProcessorMixin,
) -> tuple[TrainingConfig, ASRConfigManager]:
    """The plan, ``saved`` or made here, and the manager of the training, which knows data and model."""
    if saved is None:
        config, manager = _new_plan(options, data, model, processor)
    else:
        config, manager = saved, ASRConfigManager(gpu=options.gpu)
        manager.profile_dataset(data.train, progress=options.verbose)
        manager.profile_model(model, name=options.model)
        manager.config = saved
    # The model's adapters, which the published rules leave out: a plain assignment would count as the user's choice.
    object.__setattr__(config, "lora_rank", lora_rank(model))
    say(options.verbose, "Plan", manager.explain())
    return config, manager


def _saved_plan(options: FineTuneOptions) -> TrainingConfig | None:
    """A copy of the plan that the user passed, or the plan of the resumed run; None where a new one is to be made.

    Raises ``InvalidArgumentError`` where its adapters or its effective batch differ from the requested ones.
    """
    source = options.config
    if source is None and options.resume is not False:
        saved = (options.output if options.resume is True else Path(options.resume).resolve().parent) / FILE
        source = saved if saved.is_file() else None
    if source is None:
        return None
    plan = copy.deepcopy(source) if isinstance(source, TrainingConfig) else TrainingConfig.load(source)
    if options.lora_rank not in (None, 0, plan.lora_rank):
        raise InvalidArgumentError(
            f"lora_rank is {options.lora_rank}, and that of the plan is {plan.lora_rank}",
            "leave lora_rank (--lora) out, or plan again",
        )
    asked = options.target_batch_size
    if asked not in (None, plan.target_batch_size, plan.effective_batch_size):
        raise InvalidArgumentError(
            f"target_batch_size = {asked}, and a step of the plan has {plan.target_batch_size} clips",
            "leave target_batch_size out, or plan again",
        )
    return plan


def _new_plan(
    options: FineTuneOptions, data: SpeechData, model: PreTrainedModel, processor: ProcessorMixin
) -> tuple[TrainingConfig, ASRConfigManager]:
    # An evaluation that generates takes memory by its longest text.
    generates = generation_facts(bare(model).config)
    longest = speech_settings(model, data).get("generation_max_length") if generates else None
    return create_optimal_config(
        data.train, model, model_name=options.model, target_batch_size=options.batch, gpu=options.gpu,
        seed=options.seed, processor=extractor_of(processor),
        collator=make_collator(processor, model, **asked_language(processor, options.language)),
        verbose=False, progress=options.verbose,
        eval_samples=0 if data.evaluation is None else len(data.evaluation), generation_max_length=longest,
    )  # fmt: skip


def output_folder(folder: str | os.PathLike[str], resume: bool | str | os.PathLike[str]) -> Path:
    """Make the output folder, and check that a training can be saved there before any time is spent on it.

    Raises ``NotFoundError`` where nothing can be written, and ``InvalidArgumentError`` where it has checkpoints or a
    model, and ``resume`` is False: the Trainer would remove the old checkpoints.
    """
    path = user_path(folder, "output folder")
    utf8(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
    except OSError as error:
        raise NotFoundError(
            f"cannot write to the output folder {path}: {error}", "choose a folder that can be written (--out)"
        ) from error
    earlier = [file.name for file in checkpoints(path)] + [name for name in MODEL_FILES if (path / name).exists()]
    if earlier and resume is False:
        raise InvalidArgumentError(
            f"{path} holds an earlier training ({', '.join(earlier[:3])})",
            "continue with it by resume=True (--resume), or choose another folder (--out)",
        )
    return path


def _save_model(trainer: Trainer, path: Path) -> None:
    """Save model and processor into ``path``, each file atomically, through a temporary folder."""
    with tempfile.TemporaryDirectory(dir=path, prefix=".saving") as folder:
        trainer.save_model(folder)  # in every process: the weights may be spread over them
        for file in sorted(Path(folder).iterdir()):
            file.replace(path / file.name)


class FineTuneRun:
    """From data to a model in a folder, as ``fine_tune`` describes it.

    Attributes:
        options: What the user passed.
        data: The clips; after the stages that clean, cut or select them, the remaining ones.
        processor: The model's processor; None until it is built, as are ``model`` and ``trainer``.
        before: The word error rate before the training; None where it was not measured.
        plan: The plan, once it was made.
        manager: The manager that accompanies the training, made with the plan.
        watch: The manager's callback, which records the training.
    """

    def __init__(self, options: FineTuneOptions, data: SpeechData) -> None:
        self.options, self.data = options, data
        self.processor: Any = None
        self.model: Any = None
        self.trainer: Any = None
        self.before: float | None = None

    def run(self, finish: Callable[[FineTuneRun], FineTuneResult]) -> FineTuneResult:
        """Run all stages; ``finish``, the last one, evaluates and pushes the model, and makes the result."""
        saved = _saved_plan(self.options)
        self._prepare(saved)
        self.plan, self.manager = _plan_and_manager(self.options, saved, self.data, self.model, self.processor)
        self._select()
        self.watch = self.manager.callback()
        self.trainer = self._make_trainer()
        with ExitStack() as stack:
            stack.enter_context(quiet(not self.options.verbose))
            stack.enter_context(disk_errors_explained(self.options.output, lambda: self.trainer))
            self._train(stack)
            if not (self.manager.report and self.manager.report.stopped):
                _save_model(self.trainer, self.options.output)
            return finish(self)

    def say(self, stage: str, text: object) -> None:
        """Print what a stage has done, from one process and unless the run is quiet."""
        say(self.options.verbose and (self.trainer is None or self.trainer.is_world_process_zero()), stage, text)

    def _prepare(self, saved: TrainingConfig | None) -> None:
        """Clean the texts, build processor and model, and cut and label the clips for them, by the ``saved`` plan."""
        options, data = self.options, self.data
        self.say("Speech", data)
        cleans = family(options.model) == "ctc" if options.clean is None else options.clean
        cleaned = data.clean(language=options.language) if cleans else data.with_texts(str.strip)
        self.processor = build_processor(column(cleaned.train, "text"), options.model, language=options.language)
        rank = saved.lora_rank if saved else options.rank
        check_bits(options.bits, bool(rank), options.tiny)
        self.model = load_model(options.model, self.processor, seed=options.seed, bits=options.bits)
        if rank:
            self.model = add_lora(self.model, rank, seed=options.seed)
        aligner = load_aligner(options.align) if options.align else None
        chunk = saved.chunk_length_s if saved else None
        self.data = prepare(
            cleaned, self.processor, model=self.model, align=aligner, chunk_length_s=chunk, progress=options.verbose
        )
        tokens = f"{len(self.processor.tokenizer)} tokens in the vocabulary"
        self.say("Prepared", Notes((*self.data.since(data), tokens)))
        check_room(options.output, self.model)

    def _select(self) -> None:
        """Leave out the clips that the plan does not train on."""
        seconds = [length / SAMPLING_RATE for length in column(self.data.train, "length")]
        train, selection = self.plan.select(self.data.train, seconds)
        if len(train) < len(seconds):
            self.data = self.data.of(train, self.data.evaluation).noted(*repr(selection).splitlines())
            self.say("Selected", selection)

    def _make_trainer(self) -> Any:
        """Make the Trainer by the plan and the user's settings, and save the plan with its explanation."""
        from transformers import PrinterCallback

        from .trainers import arguments_class, make_trainer

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
        user_settings = override(plan, options.settings)
        settings = {name: value for name, value in settings.items() if name not in options.settings} | user_settings
        plan.apply(self.model)  # before TrainingArguments, which start CUDA: the allocator is set up only before that
        args = plan.to_training_arguments(
            options.output, arguments_class=arguments_class(self.model), model=self.model, **settings
        )
        plan.save(options.output / FILE)
        self.manager.explain().save(options.output / "plan.html")
        callbacks = [self.watch, *options.callbacks]
        collator_settings: CollatorSettings = {
            "load": plan.clip_loader(),
            **asked_language(self.processor, options.language),
        }
        data = self._with_drawn_evaluation()
        trainer = make_trainer(self.model, args, data, self.processor, callbacks=callbacks, **collator_settings)
        if not options.verbose:
            trainer.remove_callback(PrinterCallback)  # the Trainer adds it where tqdm is disabled
        return trainer

    def _with_drawn_evaluation(self) -> SpeechData:
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
        """The settings of a model with random weights, which are reported."""
        settings = {**FROM_RANDOM_WEIGHTS, "warmup_steps": max(1, steps // 10)}
        values = ", ".join(f"{name} {value:g}" for name, value in settings.items() if not isinstance(value, bool))
        self.say("Settings", Notes([f"random weights need other settings than the plan's: {values}"]))
        return settings

    def _train(self, stack: ExitStack) -> None:
        """Train under the manager; ``stack`` puts back what is changed for it."""
        options, trainer, evaluation = self.options, self.trainer, self.data.evaluation
        if options.tiny:  # its kernels are so small that threads would wait for each other
            import torch

            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        stack.callback(self.manager.attach(trainer).detach)
        fresh = evaluation is not None and options.resume is False
        if fresh and sum(column(evaluation, "length")) <= _FIRST_EVALUATION_S * SAMPLING_RATE:
            # trainer.evaluate() before a training would make reporters such as TensorBoard write to the working folder.
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
        """Transcribe the first ``n`` evaluation clips; None for all, with a progress bar."""
        longest = getattr(self.trainer.args, "generation_max_length", None)
        progress = self.options.verbose and n is None
        return transcribe(
            self.model, self.processor, self.data.evaluation, n=n, max_length=longest, progress=progress,
            language=self.options.language,
        )  # fmt: skip
