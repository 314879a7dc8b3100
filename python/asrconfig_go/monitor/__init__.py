"""What is done with a monitor's figures while training runs: warnings, clean-ups, curves, progress, a live panel.

``AlertReporter`` and ``lightning_callback`` work on a ``MemoryMonitor`` in any loop; the rest is what
``AdaptiveMemoryCallback`` is made of.
"""

from .alerts import AlertReporter
from .lightning import lightning_callback

__all__ = ["AlertReporter", "lightning_callback"]
