"""Answers for some trainings in a process of its own, a line each: what is predicted, or what a training took."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ANSWER = "answer: "
COPY_LIMIT = 1 << 24  # larger copies are left out on the stand-in: nothing reads them


def _on_the_stand_in(gpu: str) -> None:
    """Before torch is imported."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "build"))
    import cuda_standin

    from asrconfig_go.predict.memory_settings import Target

    cuda_standin.load(gpu=gpu, context_bytes=Target.find(gpu).context_bytes or 0, copy_limit_bytes=COPY_LIMIT)


def _trained(case: Any, values: bool) -> dict[str, Any]:
    from training import train

    if not values:
        return train(case)
    from cuda_standin.few_bits import replace_kernels
    from cuda_standin.values import Values

    if case.model.endswith(" bits"):
        replace_kernels()
    return train(case, Values())


def _main(request: dict[str, Any]) -> None:
    stand_in = request["gpu"] not in ("", "here")
    if stand_in:
        _on_the_stand_in(request["gpu"])
    from cases import Case
    from prediction import predict

    for given in request["cases"]:
        case = Case(**given)
        try:
            answer = predict(case) if request["what"] == "predict" else _trained(case, stand_in)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print("\n" + ANSWER + json.dumps(answer), flush=True)
    os._exit(0)  # Python 3.11 may abort while threads of autograd end


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
