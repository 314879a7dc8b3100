"""``python -m asrconfig_go`` is the command ``asrconfig``."""

import sys

from .cli.main import main

sys.exit(main())
