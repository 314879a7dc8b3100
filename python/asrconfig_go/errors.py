"""Every exception of this package.

AsrConfigError
├── InvalidArgumentError      (also a ValueError)   a value outside its range or of the wrong type
├── NotFoundError             (also a LookupError)  a file, folder, name or handle that does not exist
├── UnsupportedError                                understood, but not handled by this version
├── CorruptFileError          (also a ValueError)   a file that breaks its own format
├── StorageError                                    a disk or a mount that does not answer
├── EmptyDatasetError         (also a ValueError)   nothing usable to plan from
├── InfeasiblePlanError                             no configuration fits the hardware
├── ScanCancelledError                              a scan stopped at the caller's request
├── VersionMismatchError                            written by, or meant for, another version
└── LibraryError              (also a RuntimeError) the native library itself
    ├── LibraryNotLoadedError                       missing, or it could not be loaded
    ├── ForkedProcessError                          called in a process forked after the library was loaded
    ├── PoisonedLibraryError                        an earlier panic; the process should be restarted
    └── InternalError                               a defect of this package
"""

from __future__ import annotations


class AsrConfigError(Exception):
    """The base class: ``message`` says what went wrong with which input, ``hint`` what to do next.

    >>> try:
    ...     scan_audio(CLIPS / "nowhere", progress=False)
    ... except AsrConfigError as error:
    ...     "nowhere" in error.message, bool(error.hint)
    (True, True)
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message


class InvalidArgumentError(AsrConfigError, ValueError):
    """A value outside its range or of the wrong type."""


class NotFoundError(AsrConfigError, LookupError):
    """A file, folder, name or handle that does not exist."""


class UnsupportedError(AsrConfigError):
    """Understood, but not handled by this version."""


class CorruptFileError(AsrConfigError, ValueError):
    """A file that breaks its own format."""


class StorageError(AsrConfigError):
    """A disk, a network folder or a mounted drive that does not answer, whatever the file."""


class EmptyDatasetError(AsrConfigError, ValueError):
    """Nothing usable to plan from."""


class InfeasiblePlanError(AsrConfigError):
    """No configuration fits the hardware."""


class ScanCancelledError(AsrConfigError):
    """A scan stopped at the caller's request."""


class VersionMismatchError(AsrConfigError):
    """Written by, or meant for, another version."""


class LibraryError(AsrConfigError, RuntimeError):
    """The native library itself."""


class LibraryNotLoadedError(LibraryError):
    """The native library is missing or could not be loaded."""


class ForkedProcessError(LibraryError):
    """A call in a process that was forked after the library was loaded."""


class PoisonedLibraryError(LibraryError):
    """The library panicked earlier; the process should be restarted."""


class InternalError(LibraryError):
    """A defect of this package."""


BY_CODE: dict[str, type[AsrConfigError]] = {
    "invalid_argument": InvalidArgumentError,
    "not_found": NotFoundError,
    "unsupported": UnsupportedError,
    "corrupt": CorruptFileError,
    "storage": StorageError,
    "empty_dataset": EmptyDatasetError,
    "infeasible": InfeasiblePlanError,
    "cancelled": ScanCancelledError,
    "unknown_operation": LibraryNotLoadedError,
    "version_mismatch": VersionMismatchError,
    "poisoned": PoisonedLibraryError,
    "internal": InternalError,
}
"""The exception of each error code of ``core/fault``."""


__all__ = [
    "AsrConfigError", "CorruptFileError", "EmptyDatasetError", "ForkedProcessError", "InfeasiblePlanError",
    "InternalError", "InvalidArgumentError", "LibraryError", "LibraryNotLoadedError", "NotFoundError",
    "PoisonedLibraryError", "ScanCancelledError", "StorageError", "UnsupportedError", "VersionMismatchError",
]  # fmt: skip
