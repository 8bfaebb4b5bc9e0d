"""Where the state of requests is stored: the Protocol, and the manager that keeps it in memory.

A manager stores small JSON texts by key, and replaces a text only if it is still the version that the caller read. It does not
parse the texts. `conformance` checks a manager of your own.
"""

import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

CLEANUP_COUNT_MIN: Final = 100
"""Expired states are deleted from memory when there are so many states, and then when there are twice as many as were left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The state of one request."""

    key: str
    """At most 128 characters of `[A-Za-z0-9_-]`."""
    version: str
    """Chosen by the writer, new for each write."""
    text: str = field(repr=False)
    """JSON. It contains the arguments and the result of the call."""
    expires_at: float
    """Seconds since 1970. After it, the state does not exist."""


class RequestStateManager(Protocol):
    """Stores the state of requests. Each method is atomic, and what it wrote is durable when it returns.

    Each raises `StateUnavailable` if the store does not work.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes read what this one writes."""
        ...

    async def read(self, key: str) -> StoredState | None:
        """The state with this key; None if there is none or it has expired."""
        ...

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        """Store the state if the stored version is `replaces` (None: if there is no state); False if it is not."""
        ...

    async def delete(self, key: str) -> None:
        """Delete the state with this key, if there is one."""
        ...

    async def list_states(self, *, after: str = "", limit: int = 100) -> Sequence[StoredState]:
        """The first `limit` states whose keys follow `after`, by key. Fewer than `limit` means that these are the last."""
        ...


class MemoryRequestState:
    """Keeps states in the memory of this process: another process cannot join, and they end with this process."""

    is_shared = False

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:  # noqa: TID251 - the library's default clock
        """`now` returns seconds since 1970."""
        self._now = now
        self._states: dict[str, StoredState] = {}
        self._keys: list[str] = []
        """Sorted."""
        self._cleanup_count = CLEANUP_COUNT_MIN

    async def read(self, key: str) -> StoredState | None:
        state = self._states.get(key)
        return state if state is not None and state.expires_at > self._now() else None

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        stored = await self.read(state.key)
        if (stored.version if stored else None) != replaces:
            return False
        if state.key not in self._states:
            if len(self._keys) >= self._cleanup_count:
                self._delete_expired()
                self._cleanup_count = max(CLEANUP_COUNT_MIN, 2 * len(self._keys))
            insort(self._keys, state.key)
        self._states[state.key] = state
        return True

    async def delete(self, key: str) -> None:
        if self._states.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    async def list_states(self, *, after: str = "", limit: int = 100) -> Sequence[StoredState]:
        now = self._now()
        places = range(bisect_right(self._keys, after), len(self._keys))
        states = (self._states[self._keys[place]] for place in places)
        return list(islice((state for state in states if state.expires_at > now), limit))

    def _delete_expired(self) -> None:
        now = self._now()
        self._states = {key: state for key, state in self._states.items() if state.expires_at > now}
        self._keys = [key for key in self._keys if key in self._states]
