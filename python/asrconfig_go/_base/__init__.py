"""Shared helpers: the native library, errors, records, files, progress bars, random numbers."""
