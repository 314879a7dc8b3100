"""JSON and YAML as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_json(content: Mapping[str, Any]) -> str:
    """Indented, with a line end."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_yaml(content: Mapping[str, Any], indent: str = "") -> str:
    """Tables, lists of tables and scripts; all other values are JSON's, whose quotes keep NO a text."""
    text = ""
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            text += f"{indent}{name}:\n{as_yaml(value, indent + '  ')}"
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            items = (as_yaml(item, indent + "    ") for item in value)
            text += f"{indent}{name}:\n" + "".join(f"{indent}  - {item.lstrip()}" for item in items)
        elif isinstance(value, str) and "\n" in value:
            text += f"{indent}{name}: |\n" + "".join(f"{indent}  {line}\n" for line in value.splitlines())
        else:
            text += f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}\n"
    return text
