"""The machine and the versions that figures come from, as README names them: python benchmarks/machine.py."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib import metadata
from pathlib import Path


def machine() -> str:
    cores = f"{len(os.sched_getaffinity(0))} cores ({processor()})"
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "transformers")]
    return ", ".join([cores, f"Python {platform.python_version()}", *versions])


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write it to a file as well")
    options = parser.parse_args()
    print(machine())
    if options.json:
        options.json.write_text(json.dumps({"machine": machine()}))


if __name__ == "__main__":
    main()
