"""Suggests a known name in the place of an unknown one."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

LENGTH_MAX: Final = 64
"""Characters of the unknown name that are compared. The comparison takes quadratic time."""


SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "session": ("client_session_id",),
    "callback": ("callback_url", "url"),
    "callback_url": ("url",),
    "webhook_url": ("url",),
    "key": ("idempotency_key",),
    "token": ("resume_token",),
    "server": ("upstream",),
    "wait": ("wait_seconds",),
}
"""Names that other APIs and our own command line have, and our names of the same, which they do not resemble."""


def find_similar(wanted: str, names: Iterable[str]) -> str | None:
    """The name that means the same as the wanted one, or resembles it most; None if none does."""
    known = list(names)
    if (meant := next((each for each in SYNONYMS.get(wanted, ()) if each in known), None)) is not None:
        return meant
    return next(iter(difflib.get_close_matches(wanted[:LENGTH_MAX], known, n=1)), None)


def suggest_name(wanted: str, names: Iterable[str]) -> str:
    """` Did you mean 'order.shipped'?`, to append to a sentence; empty if no name resembles the wanted one."""
    similar = find_similar(wanted, names)
    return "" if similar is None else f" Did you mean '{similar}'?"
