"""The recorded requests and answers of capi/testdata, through the shared library."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asrconfig_go._core import native
from asrconfig_go.errors import BY_CODE, AsrConfigError
from locations import REPOSITORY

GOLDEN = REPOSITORY / "capi" / "testdata"
PAIRS = [
    pytest.param(pair["request"], pair["answer"], id=f"{file.stem}-{number}")
    for file in sorted(GOLDEN.glob("*.json"))
    if file.stem != "envelope"  # requests that the package cannot make
    for number, pair in enumerate(json.loads(file.read_text()))
]


@pytest.mark.parametrize(("request_", "answer"), PAIRS)
def test_answer(request_: dict[str, Any], answer: dict[str, Any]) -> None:
    if answer["ok"]:
        assert native.call(request_["op"], request_["args"]) == answer["result"]
        return
    with pytest.raises(AsrConfigError) as caught:
        native.call(request_["op"], request_["args"])
    error = answer["error"]
    assert type(caught.value) is BY_CODE[error["code"]]
    assert (caught.value.message, caught.value.hint) == (error["message"], error["hint"])


def test_every_error_code_of_the_core_has_an_exception() -> None:
    source = (GOLDEN.parents[1] / "core" / "fault" / "fault.go").read_text()
    codes = {line.split('"')[1] for line in source.splitlines() if " Code = " in line}
    assert codes == set(BY_CODE)
