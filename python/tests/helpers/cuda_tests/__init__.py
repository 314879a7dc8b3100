"""What the tests on the stand-in CUDA runtime run there, and how they are run."""
