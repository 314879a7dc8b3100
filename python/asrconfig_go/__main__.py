"""``python -m asrconfig_go`` is the command ``asrconfig``."""

import sys

from .cli import main

sys.exit(main())
