"""Records of which settings of a plan were applied, which were not, and why."""

from __future__ import annotations

import html
import textwrap
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

DONE, KEPT, NOT_DONE = "done", "kept", "not done"
_WIDTH = 110


class TooLateWarning(UserWarning):
    """A setting that is only read when CUDA starts, which it has: restart the process (in a notebook, the kernel)."""


@dataclass(frozen=True)
class AppliedSetting:
    """One setting, and whether it was applied."""

    where: str
    """``"environment"``, ``"torch"`` or ``"model"``."""
    name: str
    value: str
    """What is in effect now."""
    state: str
    """``"done"``; ``"kept"`` where it was so already, or your own value is kept; ``"not done"``."""
    why: str = ""
    warning: type[Warning] | None = field(default=None, repr=False, compare=False)
    """How ``apply`` warned of it."""


@dataclass(frozen=True, repr=False)
class Applied:
    """The settings that ``config.apply`` or ``prepare_model`` looked at, in the order in which it did."""

    settings: tuple[AppliedSetting, ...]

    @property
    def done(self) -> tuple[AppliedSetting, ...]:
        """What was changed."""
        return tuple(s for s in self.settings if s.state == DONE)

    @property
    def not_done(self) -> tuple[AppliedSetting, ...]:
        """Planned settings that could not be applied."""
        return tuple(s for s in self.settings if s.state == NOT_DONE)

    def __getitem__(self, name: str) -> AppliedSetting:
        """The setting of a name; raises ``KeyError`` for one that was not looked at."""
        for setting in self.settings:
            if setting.name == name:
                return setting
        raise KeyError(name)

    def __repr__(self) -> str:
        if not self.settings:
            return "Applied: nothing to do"
        lines = [f"Applied: {len(self.done)} done, {len(self.not_done)} not done"]
        for s in self.settings:
            lines.append(f"  {s.state:<8}  {s.where}: {s.name} = {s.value}")
            lines += textwrap.wrap(s.why, _WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 12)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f'<td style="text-align:left">{html.escape(text)}</td>' for text in cells) + "</tr>"
            for cells in ((s.state, s.where, s.name, s.value, s.why) for s in self.settings)
        )
        head = "".join(f"<th>{name}</th>" for name in ("", "where", "setting", "value", "why"))
        return f"<div><b>{html.escape(repr(self).splitlines()[0])}</b><table><tr>{head}</tr>{rows}</table></div>"


def report(settings: Iterable[AppliedSetting], stacklevel: int) -> Applied:
    """The record of ``settings``, after their warnings. ``stacklevel`` 1 is this function's caller."""
    applied = Applied(tuple(settings))
    for s in applied.settings:
        if s.warning is not None:
            warnings.warn(f"{s.name}: {s.why}", s.warning, stacklevel=stacklevel + 1)
    return applied
