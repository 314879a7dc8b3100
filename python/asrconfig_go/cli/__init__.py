"""The command ``asrconfig``."""
