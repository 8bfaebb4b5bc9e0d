"""Suggests a known name in the place of an unknown one."""

import difflib
import heapq
from collections.abc import Iterable, Mapping
from itertools import islice, takewhile
from typing import Final

LENGTH_MAX: Final = 64
"""Characters of a name that are compared. The comparison of two takes quadratic time: up to a millisecond."""
KNOWN_MAX: Final = 1_000
"""Known names that are looked at, some 10 ms. A list with more is seldom one that a person has typed a name of."""
COMPARED_MAX: Final = 10
"""Known names that are compared: those that begin and end most like the unknown one. Clients and upstreams may choose hundreds
of names that resemble it."""


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
    """The name that means the same as the wanted one, or resembles it most; None if none does. Case makes no difference."""
    known, wanted = list(islice(names, KNOWN_MAX)), wanted[:LENGTH_MAX].lower()
    if (meant := next((each for each in SYNONYMS.get(wanted, ()) if each in known), None)) is not None:
        return meant
    nearest = heapq.nlargest(COMPARED_MAX, known, key=lambda name: _count_shared_ends(wanted, name.lower()))
    compared = {name[:LENGTH_MAX].lower(): name for name in reversed(nearest)}
    found = difflib.get_close_matches(wanted, compared, n=1)
    return compared[found[0]] if found else None


def _count_shared_ends(one: str, other: str) -> int:
    """The characters at the beginning and at the end that are the same."""
    ends = zip(one, other, strict=False), zip(reversed(one), reversed(other), strict=False)
    return sum(sum(1 for _ in takewhile(_is_same, end)) for end in ends)


def _is_same(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def suggest_name(wanted: str, names: Iterable[str]) -> str:
    """` Did you mean 'order.shipped'?`, to append to a sentence; empty if no name resembles the wanted one."""
    similar = find_similar(wanted, names)
    return "" if similar is None else f" Did you mean '{similar}'?"
