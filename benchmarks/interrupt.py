"""How long a scan goes on after Ctrl-C: SIGINT to exit of ``asrconfig scan`` over a list of millions, several times.

python benchmarks/interrupt.py [--runs 10]
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path

AIM_S = 0.3


def interrupted(manifest: Path, after: float) -> float:
    """Seconds from SIGINT to the end of a scan that had run for ``after`` seconds."""
    command = [sys.executable, "-m", "asrconfig_go", "scan", str(manifest), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    if process.poll() is not None:
        sys.exit("the scan was over before it could be interrupted: give it more files")
    start = time.perf_counter()
    process.send_signal(signal.SIGINT)
    if process.wait(timeout=30) != 130:
        sys.exit(f"exit code {process.returncode} instead of 130")
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--files", type=int, default=2_000_000)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it otherwise
    with tempfile.TemporaryDirectory() as folder:
        clip, manifest = Path(folder, "a.wav"), Path(folder, "many.csv")
        with wave.open(str(clip), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(bytes(3200))
        manifest.write_text("path\n" + f"{clip}\n" * arguments.files)
        # At different moments: while the list is read, and while files are measured.
        seconds = [interrupted(manifest, 0.4 + 0.3 * (run % 8)) for run in range(arguments.runs)]
    median, worst = statistics.median(seconds), max(seconds)
    print(f"SIGINT to exit, {arguments.runs} scans of {arguments.files} files")
    print(f"median {median:.3f} s, worst {worst:.3f} s, aim {AIM_S} s, worst/aim {worst / AIM_S:.2f}")


if __name__ == "__main__":
    main()
