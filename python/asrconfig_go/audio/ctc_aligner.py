"""When each word of a known text is said, by a CTC model and its most likely path."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.checks import in_range
from .._core.settings import SAMPLING_RATE
from ..data.label_rules import limits_of, repeats
from ..data.segments import Segment, part_of
from ..errors import InvalidArgumentError
from .decoding import Array, load_audio
from .features import model_inputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

MAX_CELLS = 40_000_000_000  # frames × states: an hour and a half of fluent speech, in some minutes
_BETWEEN = -1
_WINDOW_S, _CONTEXT_S = 30.0, 4.0
_MINUTE = 60 * SAMPLING_RATE


def best_path(log_probs: Array, labels: Sequence[int], blank: int) -> Array | None:
    """Which of ``labels``, by its place, each frame belongs to, -1 for a blank; None where the labels do not fit.

    ``log_probs`` is of shape (frames, vocabulary). Of equally likely paths the one that advances later is taken.
    """
    frames = len(log_probs)
    if not labels or len(labels) + repeats(labels) > frames:
        return None
    trellis = _Trellis(log_probs, labels, blank)
    block = max(64, isqrt(8 * frames))  # a checkpoint takes 8 bytes a state, a choice one
    starts = range(0, frames, block)
    checkpoints = []
    scores = trellis.start()
    for start in starts:
        checkpoints.append(scores.copy())
        trellis.advance(scores, start, min(frames, start + block))
    state = trellis.states - 1 if scores[-1] >= scores[-2] else trellis.states - 2
    path: Array = np.empty(frames, np.int64)
    for start in reversed(starts):
        choices = trellis.advance(checkpoints.pop(), start, min(frames, start + block), keep=True)
        for i in range(len(choices) - 1, -1, -1):
            path[start + i] = state
            state -= int(choices[i, state])
    labelled: Array = np.where(path % 2 == 1, path // 2, _BETWEEN)
    return labelled


class _Trellis:
    """Scores of the states: a blank, the first label, a blank, the second label, …, a blank."""

    def __init__(self, log_probs: Array, labels: Sequence[int], blank: int) -> None:
        self.states = 2 * len(labels) + 1
        self._log_probs = log_probs
        self._tokens = np.full(self.states, blank)
        self._tokens[1::2] = labels
        self._no_skip = np.full(self.states, -np.inf)  # added to the score of a step over one state
        different = self._tokens[3::2] != self._tokens[1:-2:2]
        self._no_skip[3::2][different] = 0.0

    def start(self) -> Array:
        """Before the first frame: as if a state in front of the first had been reached."""
        scores = np.full(self.states + 2, -np.inf)
        scores[1] = 0.0
        return scores

    def advance(self, scores: Array, start: int, end: int, *, keep: bool = False) -> Any:
        """Move ``scores`` over the frames; with ``keep``, return how many states back each one came from."""
        choices: Any = np.zeros((end - start, self.states), np.uint8) if keep else None
        for frame in range(start, end):
            stay, step, skip = scores[2:], scores[1:-1], scores[:-2] + self._no_skip
            if frame == 0:
                skip[1] = scores[1]  # the first label, over the first blank
            best = np.maximum(stay, step)
            if choices is not None:
                np.greater(step, stay, out=choices[frame - start].view(bool))
                choices[frame - start][skip > best] = 2
            np.maximum(best, skip, out=best)
            best += self._log_probs[frame].take(self._tokens)
            scores[2:] = best
            scores[1] = -np.inf
        return choices


class CTCAligner:
    """Aligns texts with recordings by a CTC model, such as one that was fine-tuned.

    Recordings of any length are processed in windows of 30 s with 4 s more on both sides, whose frames are dropped. A
    word scores the geometric mean of the probabilities of its letters. Letters that the vocabulary lacks are skipped.

    Args:
        model: The CTC model.
        processor: Its processor.
        min_confidence: What the words of either half of a piece must score on average, 0 to 1, for ``config.select`` to
            use the piece.

    Raises:
        InvalidArgumentError: The model has no frames, such as Whisper, or ``min_confidence`` is out of its range.

    Example:
        >>> from asrconfig_go.recipe import build_processor, load_model
        >>> processor = build_processor(["one two"], "tiny-wav2vec2")
        >>> aligner = CTCAligner(load_model("tiny-wav2vec2", processor), processor)
        >>> [word.text for word in aligner.words(CLIPS / "test-000.mp3", 0.58, "one two")]
        ['one', 'two']
    """

    def __init__(self, model: PreTrainedModel, processor: ProcessorMixin, *, min_confidence: float = 0.5) -> None:
        in_range("min_confidence", min_confidence, 0, 1, "leave it out")
        limits = limits_of(model)
        if limits.positions is not None:
            raise InvalidArgumentError(
                f"{type(model).__name__} has a decoder and no frames to align with",
                "pass a model for CTC: Wav2Vec2ForCTC or its like, with its processor",
            )
        self.model, self.processor, self.min_confidence = model, processor, min_confidence
        self._hop = round(_MINUTE / (limits.frames(2 * _MINUTE) - limits.frames(_MINUTE)))
        self._vocabulary: dict[str, int] = processor.tokenizer.get_vocab()
        self._blank = int(model.config.pad_token_id)

    def words(self, audio: object, duration: float, text: str) -> list[Segment]:
        """Find when each word of a text is said.

        Args:
            audio: The recording, in any form that ``load_audio`` accepts.
            duration: Its duration in seconds.
            text: The words that are said in it.

        Returns:
            The words in their order, with times in seconds and scores. A word without letters of the vocabulary has no
            score.

        Raises:
            InvalidArgumentError: No letter is in the vocabulary, the audio has fewer frames than the text has letters,
                or both are too long to be aligned at once.
        """
        words = text.split()
        labels, owners = self._labels(words)
        frames = round(duration * SAMPLING_RATE / self._hop)
        if frames * 2 * len(labels) > MAX_CELLS:
            raise InvalidArgumentError(
                f"{duration / 3600:.1f} h with {len(labels)} letters are too much to be aligned at once",
                "split the recording by hand, into hours",
            )
        log_probs = self._log_probs(audio, duration) if labels else np.zeros((0, 1), np.float32)
        path = best_path(log_probs, labels, self._blank)
        if path is None:
            problem = f"the text has {len(labels)} letters of the vocabulary, the audio {len(log_probs)} frames"
            raise InvalidArgumentError(problem, "check that the text belongs to the audio")
        return self._timed(words, labels, owners, path, log_probs)

    def _labels(self, words: list[str]) -> tuple[list[int], list[int]]:
        """Tokens and the index of each one's word, -1 for the delimiter between words."""
        between = self._vocabulary.get(str(self.processor.tokenizer.word_delimiter_token))
        labels: list[int] = []
        owners: list[int] = []
        for number, word in enumerate(words):
            tokens = [token for c in word if (token := self._token(c)) is not None]
            if tokens and labels and between is not None:
                labels.append(between)
                owners.append(-1)
            labels += tokens
            owners += [number] * len(tokens)
        return labels, owners

    def _token(self, character: str) -> int | None:
        spellings = (character, character.lower(), character.upper())
        return next((self._vocabulary[c] for c in spellings if c in self._vocabulary), None)

    def _log_probs(self, audio: object, duration: float) -> Array:
        import torch

        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                log_probs: Array = np.concatenate(list(self._windows(audio, round(duration * SAMPLING_RATE))))
                return log_probs
        finally:
            self.model.train(training)

    def _windows(self, audio: object, samples: int) -> Iterator[Array]:
        extractor = self.processor.feature_extractor
        core = max(1, round(_WINDOW_S * SAMPLING_RATE / self._hop))
        context = round(_CONTEXT_S * SAMPLING_RATE / self._hop)
        for first in range(0, max(1, samples // self._hop), core):
            before = min(first, context)
            start, end = (first - before) * self._hop, min(samples, (first + core + context + 1) * self._hop)
            clip = load_audio(part_of(audio, start / SAMPLING_RATE, end / SAMPLING_RATE))
            inputs = model_inputs([{"audio": {"array": clip}}], extractor, load_audio, (), None)
            logits = self.model(**{name: value.to(self.model.device) for name, value in inputs.items()}).logits[0]
            yield logits[before : before + core].float().log_softmax(-1).cpu().numpy()

    def _timed(
        self, words: list[str], labels: list[int], owners: list[int], path: Array, log_probs: Array
    ) -> list[Segment]:
        """A word without known letters gets the end of the word before it, or the start of the first with letters."""
        hop = self._hop / SAMPLING_RATE
        at = np.flatnonzero(path >= 0)
        owner = np.asarray(owners)[path[at]]
        at, owner = at[owner >= 0], owner[owner >= 0]
        scores = log_probs[at, np.asarray(labels)[path[at]]]
        spelled = owner.tolist()
        end = float(at[0] * hop)
        timed: list[Segment] = []
        for number, word in enumerate(words):
            a, b = bisect.bisect_left(spelled, number), bisect.bisect_right(spelled, number)
            if a == b:
                timed.append(Segment(end, end, word))
                continue
            start, end = float(at[a] * hop), float((at[b - 1] + 1) * hop)
            timed.append(Segment(start, end, word, float(np.exp(scores[a:b].mean()))))
        return timed
