"""Small trainings on the CPU for the benchmarks of batches and plans: clips, two models, their loss, the overhead."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asrconfig_go import ASRConfigManager
    from asrconfig_go.predict import HardwareProfile

TONES, LONGEST_S = 5, 32
FRAMES_A_SECOND, MEL_BINS = 100, 80  # of Whisper's features


def cpu_s() -> float:
    """CPU time of this process, all threads: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def use_one_thread() -> None:
    """Compute on one thread, and without oneDNN.

    oneDNN prepares every convolution again for each new length, 10 to 35 ms in these models. That makes small
    micro-batches several times as slow, and a GPU does not do it.
    """
    import torch

    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)


class Names:
    """Tells the Trainer's grouping where lengths are."""

    def __init__(self, name: str) -> None:
        self.model_input_names = (name,)


class Spoken:
    """Clips of these durations: two tones in noise, whose labels are their numbers. ``first`` is the first clip's."""

    def __init__(self, durations: Sequence[float], rate: int, first: int = 0) -> None:
        import torch

        self.durations, self.rate, self.first = durations, rate, first
        self.noise = 0.3 * torch.randn(rate * LONGEST_S, generator=torch.Generator().manual_seed(1))
        turns = torch.arange(rate * LONGEST_S) * 2 * torch.pi
        self.tones = [torch.sin(turns * (0.01 + 0.01 * tone)) for tone in range(TONES)]

    def __len__(self) -> int:
        return len(self.durations)

    def __getitem__(self, i: int) -> dict[str, Any]:
        samples, number = round(self.rate * self.durations[i]), self.first + i
        wave, labels = self.noise[:samples].clone(), [number % TONES, number // TONES % TONES]
        for part, tone in zip(wave.chunk(len(labels)), labels, strict=True):
            part += self.tones[tone][: len(part)]
        return {"input_values": wave, "labels": [3 + tone for tone in labels]}


class Heard(Spoken):
    """The same as Whisper's features of one length: each tone is a mel bin in noise, and silence follows."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        import torch

        frames, number = round(FRAMES_A_SECOND * self.durations[i]), self.first + i
        features = torch.zeros(MEL_BINS, round(FRAMES_A_SECOND * max(self.durations)))
        features[:, :frames] = self.noise[: MEL_BINS * frames].view(MEL_BINS, frames)
        labels = [number % TONES, number // TONES % TONES]
        for k, tone in enumerate(labels):
            features[10 * tone, k * frames // 2 : (k + 1) * frames // 2] += 1.0
        return {"input_features": features, "labels": [3 + tone for tone in labels]}


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    import torch
    from torch.nn.utils.rnn import pad_sequence

    labels = pad_sequence([torch.tensor(row["labels"]) for row in rows], batch_first=True, padding_value=-100)
    if "input_features" in rows[0]:
        return {"input_features": torch.stack([row["input_features"] for row in rows]), "labels": labels}
    audio = pad_sequence([row["input_values"] for row in rows], batch_first=True)
    lengths = torch.tensor([len(row["input_values"]) for row in rows])
    mask = (torch.arange(audio.shape[1]) < lengths[:, None]).int()  # as transformers' feature extractors make it
    return {"input_values": audio, "attention_mask": mask, "labels": labels}


def small_model(seed: int = 0, **changed: Any) -> Any:
    """A wav2vec2 with attention masks and norms over channels: padding changes nothing of its results."""
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    torch.manual_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": 16, "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 192, "conv_dim": (32,) * 7, "feat_extract_norm": "layer", "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4, "layerdrop": 0.0, "apply_spec_augment": False,
        "ctc_loss_reduction": "mean", "ctc_zero_infinity": True, "pad_token_id": 0,
    }  # fmt: skip
    return Wav2Vec2ForCTC(Wav2Vec2Config(**{**settings, **changed}))


def small_whisper(seed: int, longest_s: float) -> Any:
    """A Whisper for inputs of one length."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(seed)
    config = WhisperConfig(
        vocab_size=16, d_model=96, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=192, decoder_ffn_dim=192, num_mel_bins=MEL_BINS,
        max_source_positions=round(FRAMES_A_SECOND * longest_s / 2), max_target_positions=16, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.0,
    )  # fmt: skip
    return WhisperForConditionalGeneration(config)


def grouped_by_length() -> dict[str, Any]:
    """The Trainer's length grouping, as the installed transformers calls it."""
    from transformers import TrainingArguments

    named = "train_sampling_strategy" in TrainingArguments.__dataclass_fields__
    return {"train_sampling_strategy": "group_by_length"} if named else {"group_by_length": True}


def silent_trainer(model: Any, arguments: Any, clips: Spoken, **more: Any) -> Any:
    """A Trainer that keeps its log to itself."""
    from transformers import Trainer

    trainer = Trainer(
        model,
        arguments,
        train_dataset=clips,
        data_collator=collate,
        processing_class=Names(model.main_input_name),
        **more,
    )
    trainer.log = lambda entry, *_: trainer.state.log_history.append(entry)
    return trainer


def profiled(hardware: HardwareProfile, durations: Sequence[float], rate: int, model: Any) -> ASRConfigManager:
    """A manager that knows a machine, clips of these durations, and a model."""
    import numpy

    from asrconfig_go import ASRConfigManager

    manager, silence = ASRConfigManager(), numpy.zeros(round(rate * max(durations)), dtype=numpy.float32)
    manager.hardware = hardware
    arrays = [{"array": silence[: round(rate * seconds)], "sampling_rate": rate} for seconds in durations]
    manager.profile_dataset(arrays, progress=False)
    manager.profile_model(model)
    return manager


def loss_of(model: Any, clips: Spoken, batch: int = 1) -> float:
    """The mean loss of clips in batches of one size: the Trainer's log adds up accumulated batches."""
    import torch

    model.eval()
    with torch.no_grad():
        parts = [range(at, min(at + batch, len(clips))) for at in range(0, len(clips), batch)]
        losses = [len(part) * float(model(**collate([clips[i] for i in part])).loss) for part in parts]
    return sum(losses) / len(clips)


def seconds_of_step(make: Any, model: Any) -> float:
    """Median CPU time of forward and backward over batches that ``make(i)`` gives; each has a length of its own.

    What is prepared again for each length is part of what a micro-batch costs in training.
    """
    times = []
    for i in range(12):
        batch = make(i)
        begin = time.process_time()
        model(**batch).loss.backward()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def overhead_of(model: Any, rate: int) -> tuple[float, float]:
    """Seconds that a second of audio takes in large micro-batches, and the overhead of one, in seconds of audio."""

    def step(size: int, seconds: float) -> float:
        def batch(i: int) -> dict[str, Any]:
            clips = Spoken([seconds + i * 0.011] * size, rate)
            return collate([clips[k] for k in range(size)])

        return seconds_of_step(batch, model)

    step(1, 1.0)
    small, large = step(1, 1.0), step(8, 8.0)  # one second and 64
    step_s = (large - small) / 63.0
    return step_s, max(0.0, small / step_s - 1.0)
