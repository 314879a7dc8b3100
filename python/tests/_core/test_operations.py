"""Every operation of the library is described in ``capi/operations.json``."""

from __future__ import annotations

import json

from asrconfig_go._core import native
from locations import REPOSITORY

CONTRACT = json.loads((REPOSITORY / "capi" / "operations.json").read_text("utf-8"))


def test_every_operation_of_the_library_is_described() -> None:
    assert sorted(CONTRACT["operations"]) == native.call("library.info")["operations"]
