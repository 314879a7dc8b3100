"""Audio files made for the benchmarks: many small ones for speed, odd ones for truth."""
