"""What a notebook has before the two steps, and data and models of other kinds."""

import tokenizers
import torch
from transformers import PreTrainedTokenizerFast, Trainer

from asrconfig_go import find_max_batch_size
from data_kinds import bert, of_words, own_waves
from docs_setup import stand_ins

dataset, model, collator = stand_ins.prepared(), stand_ins.model(), stand_ins.collator
texts, text_classifier = of_words(), bert()
voices, network, collate_voices = own_waves()
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
