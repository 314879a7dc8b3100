"""The notebooks' code runs as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_cells_run_in_order(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code
    namespace: dict[str, Any] = {}
    for cell in code:
        exec(compile(cell, str(notebook), "exec"), namespace)
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code" and "= " not in cell["source"][-1])
