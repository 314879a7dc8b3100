"""One fine-tuning, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .._base.defaults import SAMPLING_RATE
from ..view.units import say
from .error_rates import word_error_rate
from .fine_tune_options import Wishes
from .fine_tune_result import FineTuneResult
from .interruption import told_how_to_go_on
from .labelling import prepare
from .model_building import load_model
from .model_kinds import family
from .output_folder import check_room, full_disk_told, save_model
from .processors import build_processor
from .rank_output import quiet
from .recipe_plan import PLAN, plan_of
from .speech_data import Notes, SpeechData, column
from .trainer_settings import FROM_RANDOM_WEIGHTS, override, rhythm
from .trainers import arguments_class, make_trainer, speech_settings
from .transcription import transcribe

_BEFORE_S = 600  # of audio, of which a word error rate before the training costs little


class Run:
    """From data to a model in a folder. See ``fine_tune``."""

    def __init__(self, wishes: Wishes, data: SpeechData) -> None:
        self.wishes, self.data = wishes, data
        self.processor: Any = None
        self.model: Any = None
        self.trainer: Any = None
        self.before: float | None = None

    def go(self, finish: Callable[[Run], FineTuneResult]) -> FineTuneResult:
        """All stages; ``finish`` is the last one."""
        self._prepare()
        self.plan, self.manager = plan_of(self.wishes, self.data, self.model, self.processor)
        self._select()
        self.watch = self.manager.callback()
        self.trainer = self._make_trainer()
        with ExitStack() as stack:
            stack.enter_context(quiet(not self.wishes.verbose))
            stack.enter_context(full_disk_told(self.wishes.output, lambda: int(self.trainer.state.global_step)))
            self._train(stack)
            save_model(self.trainer, self.wishes.output)
            return finish(self)

    def say(self, stage: str, what: Any) -> None:
        """Print a stage."""
        say(self.wishes.verbose and (self.trainer is None or self.trainer.is_world_process_zero()), stage, what)

    def _prepare(self) -> None:
        """Clean transcripts, processor and model, labels."""
        wishes, data = self.wishes, self.data
        self.say("Speech", data)
        cleans = family(wishes.model) == "ctc" if wishes.clean is None else wishes.clean
        cleaned = data.clean() if cleans else data.with_texts(str.strip)
        self.processor = build_processor(column(cleaned.train, "text"), wishes.model, language=wishes.language)
        self.model = load_model(wishes.model, self.processor, seed=wishes.seed)
        self.data = prepare(cleaned, self.processor, model=self.model)
        tokens = f"{len(self.processor.tokenizer)} tokens in the vocabulary"
        self.say("Prepared", Notes((*self.data.since(data), tokens)))
        check_room(wishes.output, self.model)

    def _select(self) -> None:
        """Leave out the clips that the plan leaves out."""
        seconds = [length / SAMPLING_RATE for length in column(self.data.train, "length")]
        train, selection = self.plan.select(self.data.train, seconds)
        if len(train) < len(seconds):
            self.data = self.data.of(train, self.data.evaluation).noted(*repr(selection).splitlines())
            self.say("Selected", selection)

    def _make_trainer(self) -> Any:
        from transformers import PrinterCallback

        wishes, plan, clips = self.wishes, self.plan, len(self.data.train)
        if wishes.epochs is not None:
            plan.num_train_epochs = float(wishes.epochs)
        settings = {
            **rhythm(wishes.steps or plan.max_steps(clips), self.data.evaluation is not None),
            **speech_settings(self.processor, self.model, self.data),
            **({"max_steps": wishes.steps} if wishes.steps else {}),
            **(self._from_random_weights() if wishes.tiny else {}),
            "disable_tqdm": not wishes.verbose,
        }
        others = override(plan, wishes.settings)
        settings = {name: value for name, value in settings.items() if name not in wishes.settings} | others
        args = plan.to_training_arguments(
            wishes.output, arguments_class=arguments_class(self.processor), model=self.model, **settings
        )
        plan.save(wishes.output / PLAN)
        self.manager.explain().save(wishes.output / "plan.html")
        trainer = make_trainer(self.model, args, self.data, self.processor, callbacks=[self.watch, *wishes.callbacks])
        if not wishes.verbose:
            trainer.remove_callback(PrinterCallback)  # it prints what the bar would
        return trainer

    def _from_random_weights(self) -> dict[str, Any]:
        steps = self.wishes.steps or self.plan.max_steps(len(self.data.train))
        settings = {**FROM_RANDOM_WEIGHTS, "warmup_steps": max(1, steps // 10)}
        said = ", ".join(f"{name} {value:g}" for name, value in settings.items() if not isinstance(value, bool))
        self.say("Settings", Notes([f"random weights need other settings than the plan's: {said}"]))
        return settings

    def _train(self, stack: ExitStack) -> None:
        wishes, trainer = self.wishes, self.trainer
        if wishes.tiny:
            from .demo_training import one_thread

            stack.enter_context(one_thread())
        self.plan.apply(self.model)
        stack.callback(self.manager.attach(trainer).detach)
        if self.data.evaluation is not None and wishes.resume is False and self._short_evaluation():
            self.before = self._word_error_rate()
        with told_how_to_go_on(trainer, wishes.verbose):
            self.manager.train(trainer, resume=wishes.resume, verbose=wishes.verbose)

    def _word_error_rate(self) -> float:
        # Not by trainer.evaluate(): before a training has begun, its reporters write to the working folder.
        evaluation = self.data.evaluation
        heard = self.transcribed(None)
        return word_error_rate(column(evaluation, "text"), heard)

    def transcribed(self, n: int | None) -> list[str]:
        """What the model hears in the first ``n`` clips to evaluate with; in all of them for None."""
        longest = getattr(self.trainer.args, "generation_max_length", None)
        shown = self.wishes.verbose and n is None
        return transcribe(self.model, self.processor, self.data.evaluation, n=n, max_length=longest, progress=shown)

    def _short_evaluation(self) -> bool:
        seconds: float = sum(column(self.data.evaluation, "length")) / SAMPLING_RATE
        return seconds <= _BEFORE_S
