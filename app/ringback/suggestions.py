"""Suggests a known name in the place of an unknown one."""

import difflib
from collections.abc import Iterable
from typing import Final

LENGTH_MAX: Final = 64
"""Characters of the unknown name that are compared. The comparison takes quadratic time."""


def find_similar(wanted: str, names: Iterable[str]) -> str | None:
    """The name that resembles the wanted one most; None if none does."""
    return next(iter(difflib.get_close_matches(wanted[:LENGTH_MAX], list(names), n=1)), None)


def suggest_name(wanted: str, names: Iterable[str]) -> str:
    """` Did you mean 'order.shipped'?`, to append to a sentence; empty if no name resembles the wanted one."""
    similar = find_similar(wanted, names)
    return "" if similar is None else f" Did you mean '{similar}'?"
