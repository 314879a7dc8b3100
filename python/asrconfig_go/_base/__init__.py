"""What all rooms stand on: the library, errors, records, files, progress bars, random numbers."""
