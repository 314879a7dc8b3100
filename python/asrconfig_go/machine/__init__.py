"""The machine and the model, measured."""
