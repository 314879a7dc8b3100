"""A complete training on spoken digits that fits a laptop: plan, train, guard and evaluate in a few minutes.

>>> from asrconfig_go.demo import run
>>> print(run("demo-output"))
"""

from __future__ import annotations

from .run import DemoResult, run

__all__ = ["DemoResult", "run"]
