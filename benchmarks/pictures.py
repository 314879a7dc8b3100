"""Pages as pictures, by headless Chromium: what the galleries share."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

WIDTHS = (1200, 700, 380)  # pixels


def gallery(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every gallery takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pictures", action="store_true")
    return parser


def given(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, str]:
    """The arguments, with their folder made, and the browser; "" where no pictures are wanted."""
    arguments = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if arguments.pictures and browser is None:
        parser.error("there is no Chromium in the path")
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments, browser if arguments.pictures and browser else ""


def picture(
    browser: str, html: Path, scheme: str, width: int, height: int | None = None, target: Path | None = None
) -> None:
    """Chromium's own setting for the preferred colours: 0 is dark, 1 is light."""
    target = target or html.with_name(f"{html.stem}-{scheme}-{width}.png")
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            f"--window-size={width},{height or (1500 if width > 500 else 3200)}",
            f"--screenshot={target}",
            html.resolve().as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=180,
    )
