"""A plan put in force: training arguments, environment variables, switches of torch, the model."""
