"""Errors of tracing a step."""

from __future__ import annotations

from .._base.errors import InvalidArgumentError, UnsupportedError


class TraceError(UnsupportedError):
    """The step cannot be traced, or a trace file cannot be read; the message names the operation and the module."""


class RefusedBatchError(TraceError):
    """The model's own code raises an error for a batch."""


class CheckpointError(TraceError):
    """The model cannot be trained with this kind of checkpoints."""


class NoLossError(InvalidArgumentError):
    """The model returns no loss for a batch."""
