"""A folder of clips."""

from asrconfig_go import scan_audio
from docs_setup import stand_ins

stand_ins.folder()
