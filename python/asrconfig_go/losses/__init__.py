"""What a loss is divided by, of which follows how the losses of micro-batches add up: a table, and code read."""
