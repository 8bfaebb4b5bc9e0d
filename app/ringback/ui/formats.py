"""How pages write times, durations, sizes and counts. A value of None is a dash."""

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode

from markupsafe import Markup

from ringback import amounts
from ringback.domain.clock import format_iso

DASH: Final = Markup("&ndash;")
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_KIBIBYTE: Final = 1024


def format_time(instant: datetime | None) -> Markup:
    """An element `time`. A script shows it in the viewer's zone; without it, the page shows UTC."""
    return _time_element(instant, '<time datetime="{}">{}</time>')


def format_input_time(text: str | None) -> str:
    """A time of a filter as an input of the type `datetime-local` shows it: in UTC, and without an offset."""
    try:
        instant = datetime.fromisoformat(text or "")
        utc = instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return text or ""
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds" if utc.second else "minutes")


def format_age(instant: datetime | None) -> Markup:
    """As `format_time`; the script shows how long ago it was, for example `3 min. ago`."""
    return _time_element(instant, '<time datetime="{}" data-age>{}</time>')


def format_duration(duration: timedelta | float | None) -> str | Markup:
    """Seconds, or a timedelta, in at most two units: `850 ms`, `3.2 s`, `4 min 5 s`, `2 h 3 min`, `5 d 1 h`."""
    if duration is None:
        return DASH
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if round(seconds * 1000) < 1000:  # noqa: PLR2004 - milliseconds in a second
        return f"{round(seconds * 1000)} ms"
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, smaller_size, smaller_unit in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size:,} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def format_amount(amount: float) -> str:
    """A number of an upstream, such as its progress: `44 of 200`, `0.5`, `1,234,567`."""
    return amounts.format_amount(amount, separator=",")


def format_bytes(count: int | None) -> str | Markup:
    """A size in the units that are powers of 1024: `512 B`, `1.5 KiB`, `20 MiB`."""
    if count is None:
        return DASH
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIBIBYTE:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= _KIBIBYTE
    return f"{size:,.1f}".removesuffix(".0") + " TiB"


def format_count(count: int | None) -> str | Markup:
    """A whole number with commas between thousands: `12,345`."""
    return DASH if count is None else f"{count:,}"


def quote_segment(text: str) -> str:
    """A text as one segment of a URL's path: a client session may have slashes in its name."""
    return quote(text, safe="")


def session_path(client_session_id: str, principal: str | None = None) -> str:
    """The page of a client session, below the dashboard's path; `principal`: of this principal only.

    Browsers take the segments `.` and `..` out of a path, so these names are in the query.
    """
    named = client_session_id in {".", ".."}
    path = "/session" if named else f"/sessions/{quote_segment(client_session_id)}"
    query = {
        **({"client_session_id": client_session_id} if named else {}),
        **({"principal": principal} if principal else {}),
    }
    return f"{path}?{urlencode(query)}" if query else path


def shorten_text(text: str, length: int = 32) -> str:
    """The text, or its beginning with an ellipsis: names that clients choose have up to 256 characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _time_element(instant: datetime | None, element: str) -> Markup:
    if instant is None:
        return DASH
    text = format_iso(instant)
    return Markup(element).format(text, text[:19].replace("T", " ") + " UTC")  # noqa: S704 - the caller's constant
