"""What all rooms share: the native library, errors, records, files, output, random numbers, collated batches."""
