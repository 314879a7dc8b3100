"""Where the package comes from. Not from PyPI: a package of its name there is not ours."""

from __future__ import annotations

from typing import Final

SOURCE: Final = "git+https://github.com/asrconfig/asrconfig-go"
"""What pip installs before and after a release."""
