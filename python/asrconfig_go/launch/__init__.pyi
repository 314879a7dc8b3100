"""Types of the public names in __init__.py; written by build/stubs.py."""

from .launch_arguments import trainer_arguments as trainer_arguments
from .launch_script import LaunchFiles as LaunchFiles, launch_files as launch_files
from .layers import layer_classes as layer_classes
from .sharded_plan import STRATEGIES as STRATEGIES, for_strategy as for_strategy
