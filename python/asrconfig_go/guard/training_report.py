"""Records of what the guard did: events, restarts, bad clips, memory failures."""

from __future__ import annotations

import json
import shlex
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.files import read_object, write_whole
from .._core.output import first_of, listed, shortened
from .._core.records import from_file
from .._core.render import box, plural, visible
from ..predict.predict_records import HeldRow, PredictedMoment

if TYPE_CHECKING:
    from transformers import Trainer

_FAILURE_FILE = "asrconfig-failure.json"
_TEXT_LENGTH = 60  # characters of a text
_LONGEST = 200  # of a path or an error
_CLIPS = 5  # of a batch that are listed
PREFIX = "_asrconfig-oom-"  # the underscore keeps Trainer.push_to_hub from uploading what begins with it
_HINT = "remove it, or report without it"
_BATCHES = 10  # bad ones that are listed
FINISHED = (
    "the run in output_dir has made all its steps; for more of them raise num_train_epochs or max_steps, for a new run "
    "choose another output_dir or call manager.train(trainer, resume=False)"
)


@dataclass(frozen=True)
class GuardEvent:
    """An out-of-memory error, and what was done about it.

    Attributes:
        place: What was computed: ``"training"``, ``"evaluation"``, ``"optimizer"``, ``"saving"``, ``"loading"`` (host
            memory), ``"skipped"`` (a clip that does not fit alone) or ``"pre-flight"``.
        global_step: The optimizer steps before it.
        micro_batch_before: The samples of the micro-batch that failed; of ``"loading"`` the loader workers, and
            otherwise 0.
        micro_batch_after: The samples of those that follow, or loader workers, likewise; 1 after 1 where one sample was
            computed again.
        error: The first line of the error.
        lost_s: The seconds that the failed attempt took, and that freeing its memory took.
        snapshot: The file with a memory snapshot of that moment; ``""`` where none was written: see ``Guard``.
        not_restored: What the failed attempt may have changed and could not be restored, such as an iterator that the
            step reads from; everything else is as if nothing had failed.
        rank: The rank of the process; None where there is only one.
    """

    place: str
    global_step: int
    micro_batch_before: int
    micro_batch_after: int
    error: str
    lost_s: float = 0.0
    snapshot: str = ""
    not_restored: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def lost(self) -> str:
        """A sentence about what could not be restored; ``""`` where everything was."""
        return f"{listed(self.not_restored)} could not be put back" if self.not_restored else ""

    def __str__(self) -> str:
        before, after = self.micro_batch_before, self.micro_batch_after
        sizes = f"{before} → {after}" if before != after else "retried"
        action = "a clip was left out" if self.place == "skipped" else sizes
        snapshot = f"; memory snapshot in {self.snapshot}" if self.snapshot else ""
        lost = f"; {self.lost}" if self.not_restored else ""
        place = self.place if self.rank is None else f"{self.place}, rank {self.rank}"
        return f"step {self.global_step} ({place}): {action} after {self.error}{snapshot}{lost}"


def write_state(trainer: Trainer, events: list[GuardEvent], error: Exception) -> str:
    """Write the Trainer's state to ``output_dir``; returns a sentence with the file and the last checkpoint.

    Weights and the optimizer's state are on the GPU: reading them would fail or hang. The Trainer's state and log are
    in host memory. An error of writing is reported in the sentence, as ``error`` is about to be raised.
    """
    from transformers.trainer_utils import get_last_checkpoint

    folder = Path(trainer.args.output_dir)
    state = trainer.state
    record = {
        "error": "".join(traceback.format_exception_only(type(error), error)).strip(),
        "global_step": state.global_step,
        "epoch": state.epoch,
        "max_steps": state.max_steps,
        "log_history": state.log_history,
        "events": [asdict(event) for event in events],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _FAILURE_FILE, json.dumps(record, indent=1, default=str).encode())
        last = get_last_checkpoint(str(folder))
    except OSError as failed:
        return f"cannot write the state of the training: {failed}"
    advice = f"continue from {last}" if last else "there is no checkpoint to continue from"
    return f"the log is in {folder / _FAILURE_FILE}; {advice}"


@dataclass(frozen=True)
class BadClip:
    """A clip of a batch that went wrong.

    Attributes:
        row: The row of the dataset that it is; None where the loader does not report it.
        path: The path of its audio; ``""`` where the dataset has none.
        text: Its text; ``""`` where the dataset has none and nothing decodes the labels.
        seconds: The seconds of its audio without padding; None where unknown.
        labels: The number of its labels; None where unknown.
        loss: The loss of the clip alone; None where not finite or not measured.
        gradient_norm: The gradient norm of the clip alone; None where not finite or not measured.
        why: Why it is to blame; ``""`` for the other clips of the batch.
        findings: What is unusual in its audio and labels.
        number: Its place in the collated batch, from 0.
    """

    row: int | None
    path: str
    text: str
    seconds: float | None
    labels: int | None
    loss: float | None
    gradient_norm: float | None
    why: str
    findings: tuple[str, ...]
    number: int = 0

    @property
    def name(self) -> str:
        """The row and path of the clip, where available; else the beginning of its text, or its place in the batch."""
        row = "" if self.row is None else f"row {self.row}"
        source = " ".join(part for part in (row, shortened(self.path, _LONGEST)) if part)
        return visible(source) or (
            f"the clip {self.text[:_TEXT_LENGTH]!r}" if self.text else f"clip {self.number} of its batch"
        )

    def __str__(self) -> str:
        length = "" if self.seconds is None else f", {self.seconds:.2f} s"
        text = f", {self.text[:_TEXT_LENGTH]!r}" if self.text and not self.name.endswith("'") else ""
        return (
            f"{self.name}{length}{text}: {listed(filter(None, (shortened(self.why, _LONGEST), *self.findings)), '; ')}"
        )


@dataclass(frozen=True)
class BadBatch:
    """A batch that went wrong, and the clips to blame.

    Attributes:
        global_step: The optimizer steps before it.
        what: ``"error"`` (the model raised one), ``"loss"`` or ``"gradient"`` (not finite), ``"jump"`` (a gradient norm
            far above the recent ones), ``"memory"`` (a clip that does not fit alone, the longest of its batch),
            ``"evaluation"`` (the loss of one of its batches is not finite; rows are the evaluation dataset's) or
            ``"weights"`` (not finite already, so that no clip is to blame).
        said: What happened, in words.
        clips: The clips that stand out; empty where no clip does alone.
        done: ``"reported"``, ``"left out"`` or ``"raised"``.
        folder: The folder with the saved batch, for ``asrconfig replay``; ``""`` where none was written.
        loss_fn: The loss function of your own loop, which ``replay_batch`` requires; ``""`` for a Trainer.
    """

    global_step: int
    what: str
    said: str
    clips: tuple[BadClip, ...]
    done: str
    folder: str
    loss_fn: str = ""

    def __str__(self) -> str:
        lines = [f"step {self.global_step}: {shortened(self.said)}"]
        if self.what != "weights" and not self.clips:
            lines.append("no clip alone stands out")
        lines += first_of(self.clips, _CLIPS)
        if self.done == "left out":
            lines.append(f"{plural(len(self.clips), 'clip')} left out of the step")
        if self.folder:
            in_python = f"replay_batch({self.folder!r}, model, loss_fn=loss_fn)"
            lines.append(in_python if self.loss_fn else f"asrconfig replay {shlex.quote(self.folder)}")
        return "; ".join(lines)


@dataclass(frozen=True)
class MemoryFailure:
    """What a training held when GPU memory ran out, in bytes.

    Attributes:
        place: What was computed: see ``GuardEvent``.
        step: The optimizer steps before it.
        rank: The rank of the process.
        at_unix_s: The wall clock, in seconds since 1970.
        samples: The samples of the predicted micro-batch; None without a prediction.
        seconds: The seconds of its longest clip; None without a prediction.
        phase: The phase of the step in which memory ran out; ``""`` where unknown.
        module: The module in which memory ran out; ``""`` where unknown.
        reserved: What PyTorch's allocator had reserved.
        held: What was in use of it; the sum of the rows.
        predicted: The predicted use; the sum of the rows' predictions. None without a prediction.
        moment: The moment of the predicted step that is compared; None without a prediction.
        rows: What held the memory.
    """

    place: str
    step: int
    rank: int
    at_unix_s: float
    samples: int | None
    seconds: float | None
    phase: str
    module: str
    reserved: int
    held: int
    predicted: int | None
    moment: PredictedMoment | None
    rows: tuple[HeldRow, ...]


def read_failure(path: Path) -> MemoryFailure:
    """Read the record that the guard wrote. Raises ``CorruptFileError`` where the file is anything else."""
    return from_file(MemoryFailure, read_object(path, "record of an out-of-memory error", _HINT), path, _HINT)


@dataclass(frozen=True)
class Restart:
    """An out-of-memory error where no step can be computed again, after which training continued from an earlier step.

    Attributes:
        step: The optimizer steps that had been made.
        since: The step from which training continued.
        place: The kind of steps outside of which memory ran out.
        before: The limit of the micro-batch, in samples.
        after: The limit of the micro-batch from then on.
        error: The first line of the error.
    """

    step: int
    since: int
    place: str
    before: int
    after: int
    error: str

    def __str__(self) -> str:
        again = plural(self.step - self.since, "step")
        return (
            f"step {self.step} (outside of {self.place} steps): continued from step {self.since}, {again} made again, "
            f"{self.before} → {self.after} after {self.error}"
        )


@dataclass(frozen=True)
class Change:
    """A setting that has changed since the run began.

    Attributes:
        name: The name of the setting.
        before: Its value when the run began, as in JSON.
        now: Its value now, as in JSON.
        in_force: Whether the new value is in effect. The run's value stays for learning rate, weight decay and betas,
            which a checkpoint's optimizer brings, and for the seed, from which random numbers continue.
    """

    name: str
    before: object
    now: object
    in_force: bool

    @property
    def difference(self) -> str:
        """Both values, in a sentence."""
        return f"{self.name} was {self.before!r}, is {self.now!r}"

    def __str__(self) -> str:
        effect = "in effect from here on" if self.in_force else "the run's stays in effect"
        return f"{self.difference}: {effect}"


@dataclass(frozen=True)
class TrainingReport:
    """A training that ``manager.train`` ran, from its beginning, with the processes that it was resumed in.

    With several processes each reports its own incidents only, until the training is complete.

    Attributes:
        steps: The optimizer steps that were made.
        planned_steps: The optimizer steps that were planned.
        resumed_from: The checkpoint that this process began with; ``""`` for none.
        restarts: The restarts within a process.
        events: The steps that ran out of memory and were computed again, none of which is lost.
        skipped_samples: The number of samples that did not fit alone and were left out or replaced.
        batch: The samples a device and batch, the accumulation steps and the devices; their product is the effective
            batch size.
        limit_samples: The most samples of a micro-batch by now; None without limit.
        limit_values: The most values (samples × padded length) of a micro-batch by now; None without limit.
        seconds: The seconds that this process took.
        error: What ended it; ``""`` when it completed.
        finished: Whether the run had made all its steps before, so that nothing was trained.
        changes: The settings that have changed since the run that is resumed began.
        stopped: What ``save_by`` did; ``""`` where it did not end the training.
        profile: The files of PyTorch's profiler, a Chrome trace and a table of operators; empty without them.
        bad_batches: The batches whose loss or gradient went wrong, or of which a clip did not fit alone, with the clips
            to blame.
        bad_samples: The number of bad samples that were left out since this start.
    """

    steps: int
    planned_steps: int
    resumed_from: str
    restarts: tuple[Restart, ...]
    events: tuple[GuardEvent, ...]
    skipped_samples: int
    batch: tuple[int, int, int]
    limit_samples: int | None
    limit_values: int | None
    seconds: float
    error: str
    finished: bool = False
    changes: tuple[Change, ...] = ()
    stopped: str = ""
    profile: tuple[str, ...] = ()
    bad_batches: tuple[BadBatch, ...] = ()
    bad_samples: int = 0

    @property
    def recomputed_steps(self) -> int:
        """The number of optimizer steps that restarts made again."""
        return sum(restart.step - restart.since for restart in self.restarts)

    def __repr__(self) -> str:
        size, accumulation, devices = self.batch
        named = ((self.limit_samples, "sample"), (self.limit_values, "value"))
        limits = [plural(limit, noun) for limit, noun in named if limit is not None]
        incidents = (*self.events, *self.restarts)
        here = " in this process" if self.error and devices > 1 else ""
        times, outcome = plural(len(incidents), "time"), "" if self.error else "; no step was lost"
        lines = [
            f"{self.steps} of {plural(self.planned_steps, 'step')} in {self.seconds:.1f} s"
            + (f", resumed from {self.resumed_from}" if self.resumed_from else ""),
            f"effective batch {size * accumulation * devices}: {size} × {accumulation}"
            + (f" × {devices} devices" if devices > 1 else "")
            + (f"; micro-batches of at most {' and '.join(limits)}" if limits else ""),
            f"memory {f'ran out {times}{outcome}' if incidents else f'never ran out{here}'}",
            *(f"  {line}" for line in first_of(incidents)),
        ]
        if self.changes:
            lines.append(f"{plural(len(self.changes), 'setting')} changed since the run began")
            lines += [f"  {change.difference if self.finished else change}" for change in self.changes]
        if self.finished:
            lines.insert(0, f"nothing was trained: {FINISHED}")
        if self.skipped_samples:
            lines.append(f"{plural(self.skipped_samples, 'sample')} left out or replaced: too long to fit alone")
        if self.bad_samples:
            lines.append(f"{plural(self.bad_samples, 'sample')} left out: loss or gradient not finite")
        lines += [f"  {line}" for line in first_of(self.bad_batches, _BATCHES)]
        if self.stopped:
            lines.append(f"{self.stopped}: the same call with resume=True continues")
        if self.profile:
            lines.append(f"profile for ui.perfetto.dev: {self.profile[0]}; by operator: {self.profile[1]}")
        if self.error:
            lines.append(f"ended by {self.error}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return box("Training", repr(self))
