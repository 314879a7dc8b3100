"""Where the repository, its Python and the helpers of its tests are."""

from __future__ import annotations

from pathlib import Path

HELPERS = Path(__file__).resolve().parent
PYTHON = HELPERS.parents[1]
REPOSITORY = PYTHON.parent
