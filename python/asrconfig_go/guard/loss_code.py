"""The code that computes a model's loss: its statements, and whether all of it is transformers' own."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

_OWN = frozenset({"torch", "transformers", "peft", "bitsandbytes"})
_WRAPPERS = _OWN | {"accelerate"}  # mixed precision and placement wrap the forwards of instances
_COMPILED = ("torch.jit", "torch.fx")  # modules of anybody, translated
_LOSS_NAME = re.compile("loss|entropy", re.IGNORECASE)
_ASSIGNED = re.compile(r"\w*loss\w*|(\w+_)?labels|shift_attention_mask")
_RENAMED = ((re.compile("(masked_lm|lm|mlm|total)_loss"), "loss"), (re.compile("(shift|flat)_labels"), "labels"))
# What does not change the divisor: conversions, and arguments by their values or names.
_CONVERSIONS = frozenset({"to", "contiguous", "view", "reshape", "float"})
_VALUES = re.compile(
    r"\w*(logits|scores|log_probs|targets|lengths)(\.squeeze\(\))?|self(\.\w+(\(\))?)*\.(vocab_size|out_features)"
    r"|self\.config"
)
_NAMES = re.compile(r"\w*logits|logit_lengths|vocab_size|config|durations|blank\w*|zero_infinity")


class LossCode(NamedTuple):
    """How a forward computes its loss."""

    statements: frozenset[str]
    """Those that assign losses and labels, without what does not change the divisor."""
    passes_num_items: bool
    """Whether ``self.loss_function`` gets ``num_items_in_batch``, by name or in the forward's ``**kwargs``."""
    adds_router_loss: bool
    """Whether more is computed where ``output_router_logits`` is set."""


def loss_code(kind: type[torch.nn.Module]) -> LossCode | None:
    """The code of a class of models; None where its forward is not defined in it or a base, or has no source."""
    owner = next(base for base in kind.__mro__ if "forward" in vars(base))
    forward = inspect.unwrap(kind.forward)
    return _read(forward) if getattr(forward, "__qualname__", "") == f"{owner.__qualname__}.forward" else None


@functools.lru_cache(maxsize=256)
def _read(forward: Callable[..., object]) -> LossCode | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    return code_of(tree) if isinstance(tree, ast.FunctionDef) else None


def code_of(forward: ast.FunctionDef) -> LossCode:
    """The code of a parsed forward."""
    reader = _Reader(forward.args.kwarg.arg if forward.args.kwarg else "")
    statements = {ast.unparse(reader.visit(node)) for node in _statements(forward) if _computes_loss(node)}
    changes = (text for text in statements if text.partition(" = ")[2] not in ("None", text.partition(" = ")[0]))
    return LossCode(frozenset(changes), reader.passes_num_items, any(_is_router_branch(n) for n in ast.walk(forward)))


class _Reader(ast.NodeTransformer):
    """Removes from statements what does not change the divisor."""

    def __init__(self, kwargs: str) -> None:
        self._kwargs, self.passes_num_items = kwargs, False

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rename the variants of loss and labels to one name each."""
        return ast.Name(next((name for pattern, name in _RENAMED if pattern.fullmatch(node.id)), node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Without ``nn`` in front."""
        self.generic_visit(node)
        return ast.Name(node.attr) if ast.unparse(node.value) == "nn" else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """``[:, 1:]`` as ``[..., 1:]``."""
        self.generic_visit(node)
        if isinstance(node.slice, ast.Tuple) and ast.unparse(node.slice.elts[0]) == ":":
            node.slice.elts[0] = ast.Constant(...)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Without conversions, and with the arguments that may change the divisor."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CONVERSIONS:
            return node.func.value
        node.args = [value for value in node.args if not _VALUES.fullmatch(ast.unparse(value))]
        is_loss, keywords = ast.unparse(node.func) == "self.loss_function", []
        for keyword in node.keywords:
            value = ast.unparse(keyword.value)
            if is_loss and (keyword.arg == "num_items_in_batch" or (keyword.arg is None and value == self._kwargs)):
                self.passes_num_items = True
            elif keyword.arg == "labels":
                node.args += [keyword.value] if value != "None" else []
            elif not _NAMES.fullmatch(keyword.arg or "") and (keyword.arg, value) != ("ignore_index", "-100"):
                keywords.append(keyword)
        node.keywords = keywords
        return node


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Simple statements, but none that only run where ``output_router_logits`` is set."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return):
            yield child
        elif isinstance(child, ast.If) and _is_router_branch(child):
            yield from _statements(ast.Module(child.orelse, []))
        else:
            yield from _statements(child)


def _is_router_branch(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "output_router_logits"


def _computes_loss(node: ast.stmt) -> bool:
    if isinstance(node, ast.Return):  # of a sum with the loss, or a ``loss=`` that is more than a name
        parts = list(ast.walk(node))
        keywords = [n for n in parts if isinstance(n, ast.keyword) and n.arg == "loss"]
        sides = [side for n in parts if isinstance(n, ast.BinOp) for side in (n.left, n.right)]
        return any(not isinstance(n.value, ast.Name) for n in keywords) or any("loss" in _name(s) for s in sides)
    if isinstance(node, ast.Expr):
        return any("loss" in _name(n) for n in ast.walk(node))
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    return any(_ASSIGNED.fullmatch(_name(n)) for target in targets for n in ast.walk(target))


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def package_of(value: object) -> str:
    """The package that defines a function, whatever it wraps, or a class."""
    namespace = getattr(value, "__globals__", {})
    return str(namespace.get("__name__") or getattr(value, "__module__", "")).partition(".")[0]


def is_own(model: torch.nn.Module) -> bool:
    """Whether all modules of a model are of torch, transformers, PEFT or bitsandbytes, and so are their forwards."""
    kinds = set()
    for module in model.modules():
        kinds.add(type(module))
        place = type(module).__module__
        # What torch.compile returns has the module itself inside.
        if "forward" in vars(module) and not (place.startswith("torch._dynamo") or forward_is_own(module)):
            return False
        if place == "torch.nn.modules.loss":  # not a plain mean
            options = module.reduction, getattr(module, "ignore_index", -100), getattr(module, "weight", None)
            if options != ("mean", -100, None):
                return False
    return all(
        package_of(kind) in _OWN
        and not kind.__module__.startswith(_COMPILED)
        and all(package_of(layer) in _OWN for layer in _layers(kind.forward))
        for kind in kinds
    )


def forward_is_own(module: torch.nn.Module) -> bool:
    """Whether the forward of an instance is that of its class, if need be inside accelerate's wrappers."""
    *_, innermost = _layers(type(module).forward)
    layers = [*_layers(module.forward)]
    return layers[-1] is innermost and all(package_of(layer) in _WRAPPERS for layer in layers)


def losses_are_own(function: Any) -> bool:
    """Whether the losses that a function calls by name are those of torch and transformers."""
    import torch

    plain = inspect.unwrap(function)
    names = {"cross_entropy", *filter(_LOSS_NAME.search, plain.__code__.co_names)}
    places = plain.__globals__, vars(torch.nn), vars(torch.nn.functional)
    losses = (place[name] for name in names for place in places if callable(place.get(name)))
    return all(package_of(loss) in _OWN for loss in losses)


def _layers(function: Any) -> Iterator[Any]:
    """A callable and those that it wraps, as plain functions."""
    while function is not None:
        plain = function.func if isinstance(function, functools.partial) else getattr(function, "__func__", function)
        yield plain if hasattr(plain, "__globals__") else type(plain).__call__
        function = getattr(function, "__wrapped__", None)
