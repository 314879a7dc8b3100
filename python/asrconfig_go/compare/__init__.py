"""One training on many GPUs, and the largest models for one."""
