"""Whole trainings: restarts after failures, exact resuming, and what is kept of a run for that."""
