"""A whole plan for people and programs: what it is, why, what else could be, and what to look out for."""

from .cautions import Caution
from .explanation import Explanation

__all__ = ["Caution", "Explanation"]
