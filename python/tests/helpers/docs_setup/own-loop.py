"""Speakers with their model, and texts as collated batches."""

from torch.utils.data import DataLoader

from data_kinds import collate, head, of_waves, of_words, side

speakers, model = of_waves(side), head("Wav2Vec2ForSequenceClassification")
speaker_loader = DataLoader(speakers, batch_size=8, collate_fn=collate)
durations = [1.0 + i % 3 for i in range(len(speakers))]
batch_of_speakers = collate([speakers[i] for i in range(4)])
_rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in of_words()]
texts = [collate(_rows[i : i + 4]) for i in range(0, len(_rows), 4)]
