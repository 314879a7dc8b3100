"""The explanation of a plan: decisions with reasons, alternatives, cautions."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"cautions": ("Caution",), "explanation": ("Explanation",)})
