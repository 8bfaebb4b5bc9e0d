"""How many live lists and pages one owner has open: a principal, or a portal link."""

from collections import Counter, defaultdict
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from typing import Generic, TypeVar

from ringback.domain.errors import QuotaExceeded

Owner = TypeVar("Owner", bound=Hashable)

RETRY_SECONDS = 15
"""When to try again: a page that was closed counts until the next write to it."""


class LiveListPool(Generic[Owner]):
    """Counts the lists and streams of each owner."""

    def __init__(self, *, lists_max: int, streams_max: int | None = None) -> None:
        self._lists_max = lists_max
        self._streams_max = streams_max
        self._keys: defaultdict[Owner, Counter[Hashable]] = defaultdict(Counter)

    @contextmanager
    def count(self, owner: Owner, key: Hashable) -> Generator[None]:
        """Count one stream of this list until the context ends. Raises `QuotaExceeded`."""
        self._require_free(self._keys.get(owner, Counter()), key)
        keys = self._keys[owner]
        keys[key] += 1
        try:
            yield
        finally:
            keys[key] -= 1
            if not keys[key]:
                del keys[key]
            if not keys:
                self._keys.pop(owner, None)

    def _require_free(self, keys: Counter[Hashable], key: Hashable) -> None:
        if key not in keys and len(keys) >= self._lists_max:
            raise _too_many("lists", self._lists_max)
        if self._streams_max is not None and keys.total() >= self._streams_max:
            raise _too_many("pages", self._streams_max)


def _too_many(what: str, limit: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"You follow {limit} {what} already. Close a page, or reload this one to see what changed.",
        retry_after_seconds=RETRY_SECONDS,
        quota=f"live_{what}",
        limit=limit,
    )
