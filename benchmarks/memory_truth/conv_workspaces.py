"""Would a rule for cuDNN's convolution workspaces help? ``python conv_workspaces.py`` (README.md), three minutes.

Each rule is tried on all measured CNN runs that fit, and chosen anew without the model that it then predicts.
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import protocol
import torch
from run import HERE

from asrconfig_go.trace import _workspaces

aten = torch.ops.aten
# What a call converts to channels-last, in copies of its two tensors and the weight: forward and backward, and the
# narrowest input that is converted.
RULES: dict[str, tuple[int, int, int]] = {
    "none": (0, 0, 0),
    "forward": (1, 0, 0),
    "backward": (0, 1, 0),
    "forward and backward": (1, 1, 0),
    "forward and backward, inputs of 24 x 24 and larger": (1, 1, 24),
    "twice forward, inputs of 24 x 24 and larger": (2, 0, 24),
}


def _converted(copies: int, smallest: int, x: Any, weight: Any, y: torch.Size, groups: int) -> list[int]:
    depthwise = groups > 1 and groups == x.shape[1]  # PyTorch's own kernels
    if not copies or depthwise or not x.is_contiguous() or x.shape[2] < smallest:
        return []
    return [4 * (copies * (x.numel() + y.numel()) + weight.numel())]


def _result(x: Any, weight: Any, stride: Any, padding: Any) -> torch.Size:
    sides = [
        (n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[2:], padding, weight.shape[2:], stride, strict=True)
    ]
    return torch.Size([x.shape[0], weight.shape[0], *sides])


def use(rule: tuple[int, int, int]) -> None:
    """Let the recorder add the rule's workspaces from here on."""
    forward, backward, smallest = rule

    def in_forward(args: Any) -> list[int]:
        x, weight, _, stride, padding = args[:5]
        return _converted(forward, smallest, x, weight, _result(x, weight, stride, padding), args[8])

    def in_backward(args: Any) -> list[int]:
        grad, x, weight = args[:3]
        wanted = [want for want in args[10][:2] if want]  # the input's gradient, the weight's
        return [size for _ in wanted for size in _converted(backward, smallest, x, weight, grad.shape, args[9])]

    table: dict[Any, Callable[[Any], list[int]]] = _workspaces._PASSING
    table[aten.convolution.default] = in_forward
    table[aten.convolution_backward.default] = in_backward


def error(point: dict[str, Any]) -> float:
    """Signed share of the measured peak."""
    card = protocol.CARDS[point["gpu"]]
    trace = protocol.record(point["model"], point["optimizer"], point["batch"], card, None)
    limit = card.limit(point["gpu"], point["gpu_total_bytes"])
    peak = protocol.replay(protocol.allocations(trace), limit)[0] + card.outside
    return float(peak / point["truth_bytes"] - 1)


def _points(name: str) -> list[dict[str, Any]]:
    points = json.loads((HERE / name).read_text())["points"]
    return [p for p in points if p["model"] in protocol.models.IMAGES and not p["oom"]]


def main() -> None:
    scored, extra = _points("points.json"), _points("extra_points.json")
    points = scored + extra
    errors: dict[str, list[float]] = {}
    print(
        f"| rule | median of {len(scored)} scored runs | median of all {len(points)} | worst |\n" + "| --- " * 4 + "|"
    )
    for name, rule in RULES.items():
        use(rule)
        found = errors[name] = [error(p) for p in points]
        medians = [statistics.median(map(abs, chosen)) for chosen in (found[: len(scored)], found)]
        print(f"| {name} | {medians[0]:.2%} | {medians[1]:.2%} | {max(found, key=abs):+.1%} |")
    left_out = []
    for number, point in enumerate(scored):
        others = [i for i, p in enumerate(points) if p["model"] != point["model"]]
        best = min(errors.values(), key=lambda found: statistics.median(abs(found[i]) for i in others))
        left_out.append(abs(best[number]))
    print(f"\nThe best rule by the other models' runs, applied to each scored run: {statistics.median(left_out):.2%}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
