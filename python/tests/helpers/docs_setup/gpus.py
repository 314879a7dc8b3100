"""A folder of clips, what makes a model's input of them, and a manager that has profiled both."""

from transformers import Wav2Vec2FeatureExtractor

import asrconfig_go as ac
from docs_setup import stand_ins

stand_ins.folder()
feature_extractor = Wav2Vec2FeatureExtractor()
manager = ac.ASRConfigManager()
manager.profile_dataset("clips/", progress=False)
manager.profile_model("openai/whisper-small")
