"""Record what a training loop allocates, without a GPU and without memory."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils import _foreach_utils as foreach_utils, _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .._core.modules import versions
from .._core.random_state import cpu_generators_kept, seed_cpu
from .._core.training_session import override
from ..errors import InvalidArgumentError
from ..trace import _kernels
from ._arena import Arena, cuda_is_here, is_quantized, quantized_kernels, statistics
from ._autograd import endless_ones_refused
from ._calls import Whereabouts, in_backward
from ._cudnn import take_places
from ._mode import DeviceMode
from ._workspaces import Workspaces
from .event_log import EventLog, Trace

_active: list[MemoryRecorder] = []


class MemoryRecorder:
    """Records a loop that runs inside it, without a GPU and without memory.

    Build the model inside: its parameters then take no memory. Nothing is computed on large float tensors; integers
    stay real. A model and its inputs count from the moment they are used, and everything that is created in a forward
    pass, a backward pass or an optimizer step counts. The loop may name the device "cuda" as if there were one. Only
    one recorder can be active at a time.

    Args:
        compute_capability: The compute capability of the GPU in mind. It decides which attention kernels run, and the
            size of cuBLAS' workspace.
        about: Facts to store in the trace as they are; None for none.

    Example:
        >>> import torch
        >>> from asrconfig_go.predict import MemoryModel
        >>> with MemoryRecorder() as recorder:
        ...     model = torch.nn.Linear(64, 64)
        ...     optimizer = torch.optim.AdamW(model.parameters())
        ...     for _ in range(3):
        ...         model(torch.randn(8, 64)).sum().backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...         recorder.step()
        >>> memory = MemoryModel.load(recorder.trace(), gpu="T4")
        >>> memory.as_recorded().fits
        True
    """

    def __init__(self, *, compute_capability: tuple[int, int] = (8, 0), about: dict[str, Any] | None = None) -> None:
        self.about: dict[str, Any] = {
            **versions(),
            "compute_capability": "{}.{}".format(*compute_capability),
            **(about or {}),
        }
        self.notes: list[str] = []
        self._where = Whereabouts(self._entered, self._stepping)
        self.log: EventLog = EventLog(self._where.now)
        """The events that were recorded so far."""
        self._working = False
        self._capability = compute_capability
        self._workspaces = Workspaces(self.log, compute_capability, in_backward)
        self._mode = DeviceMode(self.log, self._workspaces, self._inside, self._where.now)
        self._stack = ExitStack()
        self._loaded: set[int] = set()
        self._in_few_bits = False
        self._owners: dict[int, str] = {}  # of parameters, by identity: the module that has them

    def __enter__(self) -> MemoryRecorder:
        if _active:
            raise InvalidArgumentError("a MemoryRecorder is already active", "leave the other one first")
        with ExitStack() as stack:
            # Draws inside are the same in every trace, and the draws outside go on as if there had been none.
            stack.enter_context(cpu_generators_kept())
            seed_cpu(0)
            stack.enter_context(_foreach_as_on_cuda())
            if gc.isenabled():  # frees come from reference counts only: when the collector runs depends on other things
                gc.disable()
                stack.callback(gc.enable)
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)  # what is computed for real is too small for several
            with warnings.catch_warnings():  # torch 2.4 warns of kernels that are replaced
                warnings.simplefilter("ignore")
                stack.callback(_kernels.register(self._capability, self.log)._destroy)
            stack.enter_context(self._where.hooked())
            stack.enter_context(cuda_is_here())
            stack.enter_context(endless_ones_refused())
            stack.enter_context(_saved_on_host(self.log, self.arena))
            stack.enter_context(self._mode)
            _active.append(self)
            stack.callback(_active.remove, self)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.log.close()
        self._stack.close()

    @property
    def arena(self) -> Arena:
        """The addresses of the recorder's imaginary tensors."""
        return self._mode.arena

    @property
    def lengths(self) -> list[dict[str, Any]]:
        """The lengths that sizes depend on, as in the trace file."""
        return self._mode.lengths.rungs

    def load(self, model: nn.Module) -> None:
        """Put a model on the device, in the order of ``model.to(device)``. A forward pass does it implicitly.

        Args:
            model: The model; a second call with the same one does nothing.
        """
        if id(model) in self._loaded:
            return
        self._loaded.add(id(model))
        if not self._in_few_bits and any(map(is_quantized, model.parameters())):
            self._in_few_bits = True
            self._stack.enter_context(quantized_kernels(self.log))
        if not self.log.segments:
            self.log.begin("load", {}, "load")
        with self._loading("load"):
            for tag, tensor, self._where.loading in _in_order_of_to(model):
                self._owners[id(tensor)] = self._where.loading
                if isinstance(tensor, nn.RNNBase):
                    self._flatten(tensor)
                    continue
                self.log.birth(tensor, "to", tag)
                if tag == "parameter" and tensor.dim() == 1:
                    self._workspaces.widths.add(tensor.numel())

    def load_again(self, model: nn.Module) -> None:
        """Repeat ``model.to(device)`` after ``torch.cuda.empty_cache()``: recurrent layers allocate a new buffer.

        Args:
            model: A model that is on the device.
        """
        with self._loading("load_again"):
            for _, layer, self._where.loading in _in_order_of_to(model):
                if isinstance(layer, nn.RNNBase):
                    self._flatten(layer)

    @contextmanager
    def _loading(self, phase: str) -> Iterator[None]:
        resting, self._where.resting = self._where.resting, phase
        try:
            yield
        finally:
            self._where.resting, self._where.loading = resting, ""

    def _flatten(self, layer: nn.RNNBase) -> None:
        """One buffer for the layer's weights, which exist beside it until they are moved."""
        weights = list(layer.parameters(recurse=False))
        elements, dtype = sum(w.numel() for w in weights), weights[0].dtype
        buffer = self.arena.tensor(dtype, (elements,), (1,), 0, elements * dtype.itemsize)
        self.log.birth(buffer, "aten._cudnn_rnn_flatten_weight.default", "parameter")
        take_places(layer, buffer)

    def segment(self, kind: str, *, phase: str = "forward", **shape: int) -> None:
        """Begin a segment by hand.

        Args:
            kind: The kind of segment: ``"micro"``, ``"accumulate"``, ``"step"``, ``"iteration"`` or ``"evaluate"``.
            phase: The phase outside forward, backward and optimizer steps.
            **shape: ``batch``, ``length`` and ``labels`` of its micro-batch; none if the shape does not count.
        """
        self.settle()
        self.log.begin(kind, shape, phase)
        self._where.resting = phase

    def step(self, **shape: int) -> None:
        """Mark the end of one iteration of your loop.

        Args:
            **shape: ``batch``, ``length`` and ``labels`` of the iteration's micro-batch, with which other shapes can be
                computed; none for a trace that holds only for the recorded shapes.

        Raises:
            InvalidArgumentError: There was no forward pass before it.
        """
        if not self.log.segments:
            raise InvalidArgumentError("step() before any forward pass", "call it at the end of each iteration")
        self.log.segments[-1].shape.update(shape)
        self.segment("iteration")

    def place(self, batch: Mapping[str, Any], tag: str = "input") -> Any:
        """Put the tensors of a batch on the device: they count from here on.

        Args:
            batch: The tensors by name; values may be nested.
            tag: What they are counted as, one of the trace's tags.

        Returns:
            The batch with imaginary float tensors.
        """
        with self.working():
            placed = pytree.tree_map_only(torch.Tensor, self._mode.imagine, batch)
            for tensor in _tensors_in(placed):
                self.log.birth(tensor, "to", tag)
        return placed

    def outputs(self, outputs: object) -> None:
        """Count tensors as results that are kept.

        Args:
            outputs: A tensor, or a nested structure of them; those that were not allocated here are ignored.
        """
        for tensor in _tensors_in(outputs):
            self.log.retag(tensor, "output")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count what the body creates without inputs, as inside a module."""
        before, self._working = self._working, True
        yield
        self._working = before

    def trace(self) -> Trace:
        """Return what was recorded so far.

        Returns:
            The trace, for ``MemoryModel.load`` or ``Trace.save``.

        Raises:
            InvalidArgumentError: Nothing was recorded.
        """
        if not self.log.segments:
            raise InvalidArgumentError("nothing was recorded", "run a forward pass inside the recorder")
        self.settle()
        return Trace.of(self.log, self.lengths, {**self.about, "notes": "; ".join(self.notes)})

    def settle(self) -> None:
        """End the newest segment: store which lengths its convolutions made."""
        if self.log.segments:
            self._mode.lengths.settle(self.log.segments[-1].shape.get("length"))

    def _inside(self) -> bool:
        return self._working or self._where.at_work()

    def _entered(self, model: nn.Module) -> None:
        first = not self.log.segments
        self.load(model)
        if first:
            self.segment("iteration")

    def _stepping(self, optimizer: torch.optim.Optimizer, done: bool) -> None:
        """Before a step the tensors in ``.grad`` are gradients; after it, the optimizer's tensors are its state."""
        if not done:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                if parameter.grad is not None:
                    self.log.retag(parameter.grad, "gradient")
            return
        for parameter, state in optimizer.state.items():
            for tensor in _tensors_in(state):
                self.log.retag(tensor, "optimizer", self._owners.get(id(parameter), ""))


def _tensors_in(values: object) -> Iterator[torch.Tensor]:
    return (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _in_order_of_to(model: nn.Module, name: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yields tag, tensor and module name as ``Module._apply`` visits them, children first; recurrent layers last."""
    for step, child in model.named_children():
        yield from _in_order_of_to(child, f"{name}.{step}" if name else step)
    yield from (("parameter", p, name) for p in model._parameters.values() if p is not None)
    yield from (("parameter", t, name) for t in statistics(model))
    yield from (("buffer", b, name) for b in model._buffers.values() if b is not None)
    if isinstance(model, nn.RNNBase):
        yield "parameter", model, name


@contextmanager
def _saved_on_host(log: EventLog, arena: Arena) -> Iterator[None]:
    """Makes ``save_on_cpu``, by which checkpoints are offloaded, copy tensors to the host and back, as on a GPU.

    For the CPU tensors of a trace torch's own would copy nothing.
    """

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        with _disable_current_modes():
            if arena.holds(tensor):
                return arena.dense(tensor, torch.contiguous_format)
            return tensor.detach().clone(memory_format=torch.contiguous_format)

    def init(self: save_on_cpu, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_contiguous():  # put in order on the device first: aten/src/ATen/native/cuda/Copy.cu
                size = tensor.numel() * tensor.element_size()
                with log.during(size, "aten.clone.default"):
                    log.copied(size, tensor)
            log.transferred(tensor, "aten.copy_.default", "to_pinned" if pin_memory else "host")
            return copied(tensor)

        def unpack(packed: torch.Tensor) -> torch.Tensor:
            tensor = copied(packed)
            log.birth(tensor, "aten._to_copy.default")
            log.transferred(tensor, "aten._to_copy.default", "host")
            return tensor

        saved_tensors_hooks.__init__(self, pack, unpack)

    with ExitStack() as stack:
        stack.callback(override(save_on_cpu, "__init__", init))
        yield


@contextmanager
def _foreach_as_on_cuda() -> Iterator[None]:
    """Makes optimizers and clipping use the foreach path for CPU tensors, too."""
    from torch.optim import optimizer as optimizers

    name = "_get_foreach_kernels_supported_devices"
    with ExitStack() as stack:
        for module in (foreach_utils, optimizers):
            if hasattr(module, name):
                stack.callback(override(module, name, lambda: ["cuda", "xpu", "cpu"]))
        yield
