"""A small BERT with tokenized rows and a collator that pads them."""

from transformers import Trainer

from text_models import bert, for_classes, texts

model, dataset, collator = bert(positions=128), texts(), for_classes
