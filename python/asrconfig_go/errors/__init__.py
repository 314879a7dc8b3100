"""Every exception of this package, each an ``AsrConfigError``: ``except asrconfig_go.errors.AsrConfigError``."""

from .._base.errors import (
    AsrConfigError,
    CorruptFileError,
    EmptyDatasetError,
    ForkedProcessError,
    InfeasiblePlanError,
    InternalError,
    InvalidArgumentError,
    LibraryError,
    LibraryNotLoadedError,
    NotFoundError,
    PoisonedLibraryError,
    ScanCancelledError,
    StorageError,
    UnsupportedError,
    VersionMismatchError,
)

__all__ = [
    "AsrConfigError", "CorruptFileError", "EmptyDatasetError", "ForkedProcessError", "InfeasiblePlanError",
    "InternalError", "InvalidArgumentError", "LibraryError", "LibraryNotLoadedError", "NotFoundError",
    "PoisonedLibraryError", "ScanCancelledError", "StorageError", "UnsupportedError", "VersionMismatchError",
]  # fmt: skip
