"""Types of the public names in __init__.py; written by build/stubs.py."""

from .stream_batches import StreamBatches as StreamBatches
