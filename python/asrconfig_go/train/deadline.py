"""``save_by``: the moment before which a training saves and stops, such as the end of a notebook's session."""

from __future__ import annotations

import re
from datetime import datetime, time as time_of_day, timedelta

from ..errors import InvalidArgumentError

_FORMS = 'pass "11h30m" from now, "17:45" today, or "2026-03-01T06:30"; without a zone by the clock of this machine'
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"\d\d:\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")


def deadline_of(save_by: str, now: datetime | None = None) -> datetime:
    """The moment that ``save_by`` names. Raises ``InvalidArgumentError`` for another form and for one that has passed.

    >>> deadline_of("1h30m", datetime.fromisoformat("2026-03-01T06:30+00:00")).isoformat()
    '2026-03-01T08:00:00+00:00'
    """
    now = now or datetime.now().astimezone()
    moment = _moment(save_by, now)
    if moment > now:
        return moment
    tomorrow = moment + timedelta(days=1)
    hint = f'pass "{tomorrow:%Y-%m-%dT%H:%M}" for tomorrow' if _CLOCK.fullmatch(save_by) else _FORMS
    raise InvalidArgumentError(f"save_by = {save_by!r} has passed: it is {now:%Y-%m-%d %H:%M %Z}", hint)


def _moment(save_by: str, now: datetime) -> datetime:
    if not isinstance(save_by, str):
        raise InvalidArgumentError(f"save_by = {save_by!r} is not a text", _FORMS)
    parts = _DURATION.fullmatch(save_by)
    try:
        if save_by and parts is not None:
            hours, minutes, seconds = (int(part or 0) for part in parts.groups())
            return now + timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if _CLOCK.fullmatch(save_by):
            return datetime.combine(now.date(), time_of_day.fromisoformat(save_by), now.tzinfo)
        if _MOMENT.fullmatch(save_by):
            moment = datetime.fromisoformat(re.sub("Z$", "+00:00", save_by))
            return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"save_by = {save_by!r} is no moment: {error}", _FORMS) from error
    raise InvalidArgumentError(f"save_by = {save_by!r} is neither a duration nor a moment", _FORMS)
