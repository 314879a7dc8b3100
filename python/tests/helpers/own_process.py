"""Code in a process of its own, where what it does to the library does not reach other tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code``, which may be indented, with these arguments and additions to the environment."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
