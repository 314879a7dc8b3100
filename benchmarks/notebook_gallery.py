"""The notebooks as pages to look at, as they were committed, in light and dark.

    python benchmarks/notebook_gallery.py OUT [--only quickstart] [--cells explain,train] [--pictures]

writes OUT/NAME-SCHEME.html by nbconvert, and with --pictures (headless Chromium in the path) pieces of the page from
top to bottom, OUT/NAME-SCHEME-1.png and so on. `--cells` keeps the cells of these ids alone.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter
from pictures import gallery, given, picture

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
WIDTH, PIECE = 1100, 2200  # pixels
_SCRIPT = re.compile(r"<script[^>]*\bsrc=[^>]*></script>")  # MathJax and RequireJS, from elsewhere


def page(path: Path, scheme: str, cells: list[str]) -> str:
    notebook = nbformat.read(path, as_version=4)
    if cells:
        notebook.cells = [cell for cell in notebook.cells if cell.id in cells]
    html, _ = HTMLExporter(theme=scheme).from_notebook_node(notebook)
    return _SCRIPT.sub("", html)


def height_of(browser: str, html: Path) -> int:
    """Of the whole page, by a copy that writes its height where --dump-dom shows it."""
    asking = html.with_suffix(".asking.html")
    script = "<script>document.title='height '+document.documentElement.scrollHeight</script>"
    asking.write_text(html.read_text(encoding="utf-8").replace("</body>", f"{script}</body>"), encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={WIDTH},800", "--dump-dom"]
    dom = subprocess.run([*command, asking.resolve().as_uri()], check=True, capture_output=True, timeout=180).stdout
    asking.unlink()
    match = re.search(rb"<title>height (\d+)", dom)
    if match is None:
        raise RuntimeError(f"the browser does not tell how high {html} is")
    return int(match.group(1))


def pieces(picture: Path) -> None:
    """Cut a tall picture into some that can be looked at."""
    import matplotlib.image as image

    pixels = image.imread(picture)
    for number, top in enumerate(range(0, pixels.shape[0], PIECE), start=1):
        image.imsave(picture.with_name(f"{picture.stem}-{number}.png"), pixels[top : top + PIECE])


def main() -> None:
    parser = gallery(__doc__)
    parser.add_argument("--only", help="of the notebooks, parted by commas")
    parser.add_argument("--cells", help="of the cells, parted by commas")
    arguments, browser = given(parser)
    cells = arguments.cells.split(",") if arguments.cells else []
    for path in sorted(FOLDER.glob("*.ipynb")):
        if arguments.only and path.stem not in arguments.only.split(","):
            continue
        for scheme in ("light", "dark"):
            html = arguments.out / f"{path.stem}-{scheme}.html"
            html.write_text(page(path, scheme, cells), encoding="utf-8")
            if browser:
                screenshot = html.with_suffix(".png")
                picture(browser, html, scheme, WIDTH, min(16_000, height_of(browser, html)), screenshot)
                pieces(screenshot)
            print(html)


if __name__ == "__main__":
    main()
