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
    """The base class of all exceptions of this package.

    Args:
        message: What went wrong, and with which input.
        hint: What to do next; ``""`` where there is nothing to add.

    Attributes:
        message: What went wrong, and with which input.
        hint: What to do next.

    Example:
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
    """A value is out of its range, of the wrong type, or does not go together with another one."""


class NotFoundError(AsrConfigError, LookupError):
    """A file, folder, name or handle does not exist, or a file cannot be written."""


class UnsupportedError(AsrConfigError):
    """The input is understood, but this version or the installed packages cannot handle it."""


class CorruptFileError(AsrConfigError, ValueError):
    """A file breaks its own format."""


class StorageError(AsrConfigError):
    """A disk, a network folder or a mounted drive does not answer, whatever the file."""


class EmptyDatasetError(AsrConfigError, ValueError):
    """A dataset has no clip that can be used."""


class InfeasiblePlanError(AsrConfigError):
    """No configuration fits the hardware, or a training cannot continue in its memory."""


class ScanCancelledError(AsrConfigError):
    """A scan was stopped at the caller's request."""


class VersionMismatchError(AsrConfigError):
    """A file or the library was written by, or is meant for, another version."""


class LibraryError(AsrConfigError, RuntimeError):
    """The native library cannot be used."""


class LibraryNotLoadedError(LibraryError):
    """The native library is missing or could not be loaded."""


class ForkedProcessError(LibraryError):
    """The library was called in a process that was forked after it was loaded."""


class PoisonedLibraryError(LibraryError):
    """The library panicked earlier: restart the process."""


class InternalError(LibraryError):
    """This package has a defect."""


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
