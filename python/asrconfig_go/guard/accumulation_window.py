"""The batches of one optimizer step, and what must be put back to compute them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._base.errors import InfeasiblePlanError
from .._base.random_state import cpu_state, gpu_states_in_use, set_cpu_state, set_gpu_states
from ..batching.batch_lengths import Extent, extent
from ..batching.collated_batch import batch_size, copied, like, pick, piece
from .loss_weights import Totals, labels_name, row_tokens, totals
from .model_state import Attributes, Key, ModelState, Saved
from .padding import trimmed
from .process_group import ProcessGroup


@dataclass
class Call:
    """One collated batch, and the random numbers that its step begins with."""

    inputs: Any  # None once all its clips were left out
    random: dict[str, Any]
    versions: list[tuple[Any, int]]
    """Of the batch's tensors, each time that one is changed in place."""
    attributes: dict[Key, Any]
    """That steps set, as they were."""
    replacements: list[Any] = field(default_factory=list)
    """Batches that the user's function made of clips that were too long."""
    loss: Any = 0.0
    told: Any = 0.0
    """The weighted loss, and what of it the Trainer has been given."""
    kept: list[int] | None = None
    """The numbers in the collated batch of the clips that are left; None while all are."""
    _size: tuple[Any, int, Extent] | None = None

    def size(self) -> tuple[int, Extent]:
        """Its samples, and the extent of each."""
        if self._size is None or self._size[0] is not self.inputs:
            self._size = self.inputs, batch_size(self.inputs), extent(self.inputs)
        return self._size[1:]

    def take_out(self, row: int, lengths: list[int]) -> Any:
        """Take a sample out, and give it as a batch of one; the others are padded to the longest of them.

        ``lengths`` are those of all without padding.
        """
        rest = [i for i in range(len(lengths)) if i != row]
        sample = trimmed(pick(self.inputs, [row]), lengths[row])
        self.inputs = trimmed(pick(self.inputs, rest), max(lengths[i] for i in rest)) if rest else None
        kept = list(range(len(lengths))) if self.kept is None else self.kept
        self.kept = [kept[i] for i in rest]
        return sample

    @property
    def changed(self) -> bool:
        """Whether the step has changed the batch in place, so that it cannot be computed again."""
        return _changed(self.versions)

    def begin_again(self, attributes: Attributes) -> None:
        """Random numbers and attributes as they were."""
        set_cpu_state(self.random)
        attributes.put(self.attributes)


class Window:
    """The accumulation window that a Trainer is in: from one optimizer step to the next."""

    def __init__(self, trainer: Any, ranks: ProcessGroup) -> None:
        self._labels, self._ranks = labels_name(trainer), ranks
        self.state: ModelState = ModelState(trainer.model)
        self.attributes: Attributes = Attributes(trainer)
        self._in_place: bool | None = None  # whether steps change their batches; None before the first window's end
        self.wanted = True
        """Whether ``uneven`` is asked for; alike in all processes."""
        self.clear()

    def clear(self) -> None:
        """Forget the batches."""
        self.totals: Totals = Totals()
        self.left_out: Totals = Totals()
        self.calls: list[Call] = []
        self.planned = 0
        self._batches: list[Any] = []
        self._handed: list[tuple[Any, int]] = []
        self._copies_changed = False
        self._uneven: bool | None = None
        self._gpu: list[Any] = []
        self._saved = Saved()

    def collecting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The Trainer's way to fetch a window's batches, which begins one here."""

        def get_batch_samples(batches: Any, count: int, *args: Any, **kwargs: Any) -> Any:
            ready = self._ranks.fetched(batches, count)
            batches, items = original(ready, count, *args, **kwargs)
            self.clear()
            for batch in batches:
                self.totals.add(totals(batch, self._labels))
            self.planned = len(batches)
            if self.wanted:
                self._batches = list(batches)
            if not self._ranks.alone:
                self.totals, self._uneven = self._ranks.summed(self.totals, self._counts() if self.wanted else ())
            return batches, items

        return get_batch_samples

    def _counts(self) -> tuple[float, ...]:
        """For several processes: whether tokens of samples differ here, their number, and its square."""
        counts = [n for batch in self._batches for n in row_tokens(batch, self._labels)] or [0]
        return float(len(set(counts)) > 1), float(counts[0]), float(counts[0] ** 2)

    def begin(self, inputs: Any) -> Call:
        """Note one more batch; with the first, what its forward changes."""
        if not self.calls:
            self._gpu, self._saved = gpu_states_in_use(), self.state.save()
            self._batches = self._batches or [inputs]  # of a rehearsal
        # A copy: compute_loss may take labels out of what it is given.
        self.calls.append(Call(like(inputs, dict(inputs)), cpu_state(), _versions(inputs), self.attributes.now()))
        return self.calls[-1]

    def fresh(self, part: Any) -> Any:
        """A batch that may be changed in place: a copy, until it is known that steps leave theirs as they are."""
        return part if self._in_place is False else copied(part)

    def handed(self, part: Any) -> Any:
        """What a training step gets of a batch; it is seen whether it changes it."""
        made = self.fresh(part)
        if made is not part:
            self._handed = _versions(made)
        return made

    def returned(self) -> None:
        """The training step of what was handed out is over, or has failed: its copy is not needed any more."""
        if self._handed:
            self._copies_changed = self._copies_changed or _changed(self._handed)
            self._handed = []

    def watch_changes(self) -> None:
        """Learn whether steps change batches in place, at the end of a window."""
        if self._in_place is None:
            self._in_place = self._copies_changed
        elif not self._in_place:
            self._in_place = any(call.changed for call in self.calls)

    @property
    def uneven(self) -> bool:
        """Whether samples of the window, in any process, have different numbers of tokens; while that is wanted."""
        if self._uneven is None:  # of several processes: the others were not asked
            counts = {n for batch in self._batches for n in row_tokens(batch, self._labels)}
            self._uneven = self._ranks.alone and len(counts) > 1
        return self._uneven

    def singles(self, inputs: Any) -> list[Any]:
        """Two samples of the window, if there are two, as batches of one; those of ``inputs`` first."""
        batches = [inputs, *(batch for batch in self._batches if batch is not inputs)]
        return [piece(batch, i, i + 1) for batch in batches[:2] for i in range(min(2, batch_size(batch)))][:2]

    def telling(self) -> Any:
        """The batch whose samples distinguish weights best; None where all have one sample."""
        several = [batch for batch in self._batches if batch_size(batch) > 1]
        return max(several, key=lambda batch: len(set(row_tokens(batch, self._labels))), default=None)

    @property
    def is_one(self) -> bool:
        """Whether it is one batch, of which nothing was left out or replaced."""
        return self.planned <= 1 and not self.left_out.samples and not self.calls[-1].replacements

    @property
    def complete(self) -> bool:
        """Whether the batch begun last is the last one of its optimizer step."""
        return len(self.calls) >= self.planned

    def rewind(self) -> None:
        """Put back what there was when the window began."""
        set_gpu_states(self._gpu)
        self._saved.restore()
        if self.calls:
            self.calls[0].begin_again(self.attributes)

    def leave_out(self, samples: Any) -> None:
        """Count ``samples``, a batch, no more; the gradient is scaled up for it when the window ends."""
        self.left_out.add(totals(samples, self._labels))

    def bring_in(self, samples: Any) -> None:
        """Count ``samples``, a batch that replaces something left out."""
        more = totals(samples, self._labels)
        self.left_out.add(Totals(-more.samples, -more.tokens))

    @property
    def nothing_left(self) -> bool:
        """Whether everything was left out, as far as this process knows; never of a rehearsal, which is no window."""
        return 0 < self.totals.samples <= self.left_out.samples

    def factor(self, rule: str, gone: Totals) -> float:
        """By what gradients and losses are too small because clips were left out, ``gone`` in all processes."""
        if not gone.samples and not int(gone.tokens):
            return 1.0
        left = Totals(self.totals.samples - gone.samples, self.totals.tokens - gone.tokens)
        share = float(left.share(rule, self.totals))
        if not share:
            raise InfeasiblePlanError(
                "every clip of an optimizer step, in all processes, was left out: too long for the GPU, or bad",
                "split or drop long clips before training, enable gradient checkpointing, or use a larger GPU",
            )
        return 1.0 / share

    def tell(self, call: Call, factor: float = 1.0) -> Any:
        """The loss to return to the Trainer for ``call``, so that those of the window add up to the right one."""
        call.told = call.loss
        if factor != 1.0:
            call.told = factor * sum(each.loss for each in self.calls) - sum(each.told for each in self.calls[:-1])
        return call.told


def _versions(inputs: Any) -> list[tuple[Any, int]]:
    """A batch's tensors with their version counters, each of which grows when its tensor is changed in place."""
    return [(value, value._version) for value in inputs.values() if hasattr(value, "_version")]


def _changed(versions: list[tuple[Any, int]]) -> bool:
    return any(tensor._version != version for tensor, version in versions)
