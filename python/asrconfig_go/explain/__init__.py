"""A whole plan for people and programs: what it is, why, what else could be, and what to look out for."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "cautions": ("Caution",),
        "explanation": ("Explanation",),
    },
)
