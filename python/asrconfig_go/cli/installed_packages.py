"""Facts about installed packages, which are imported in another process because that may fail."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from typing import Any

_LIMIT_S = 120  # torch from a cold disk takes half a minute
_PROBE = """
import importlib.util, json, sys
told = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        told[name] = {"error": ""}
        if name == "torchcodec" and importlib.util.find_spec("datasets"):  # it loads FFmpeg when it decodes
            from asrconfig_go.loading.stored_audio import cannot_decode
            told[name]["error"] = cannot_decode()
    except BaseException as error:
        told[name] = {"error": (str(error).strip() or type(error).__name__).partition("\\n")[0]}
torch = sys.modules.get("torch")
if not told.get("torch", {}).get("error", "not asked"):
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")
    told["torch"] |= {"cuda": torch.version.cuda, "hip": torch.version.hip, "architectures": (flags() or "").split()}
if not told.get("soundfile", {}).get("error", "not asked"):
    told["soundfile"]["library"] = sys.modules["soundfile"].__libsndfile_version__
print(json.dumps(told))
"""


def version(package: str) -> str:
    """The installed version, "" where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def imported(*packages: str) -> dict[str, dict[str, Any]]:
    """By package ``error``, "" where it can be imported; of torch ``cuda``, ``hip`` and ``architectures``, too, and of
    soundfile the version of its ``library``. Packages that are not installed are left out."""
    there = [package for package in packages if version(package)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, *there],
            capture_output=True, text=True, timeout=_LIMIT_S, check=True, env=environment,
        )  # fmt: skip
        probes: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, LookupError) as error:
        return {package: {"error": f"its import ends the process: {error}"} for package in there}
    return probes
