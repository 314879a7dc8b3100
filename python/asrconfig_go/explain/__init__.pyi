"""Types of the public names in __init__.py; written by build/stubs.py."""

from .cautions import Caution as Caution
from .explanation import Explanation as Explanation
