"""How long each legacy session of one endpoint has been idle in this process.

`services.mcp_sessions` reads this when a principal has too many sessions, and ends the one that is idle longest.
"""

from collections import Counter
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime

from ringback.domain.clock import Clock


class SessionActivity:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open_requests = Counter[str]()
        self._last_uses = dict[str, datetime]()
        self._unrecorded = set[str]()
        self._ended = list[str]()

    @contextmanager
    def record_request(self, session_id: str) -> Generator[None]:
        """A request of the session is in flight until the context ends."""
        self._open_requests[session_id] += 1
        self._note_use(session_id)
        try:
            yield
        finally:
            self._note_use(session_id)
            self._open_requests[session_id] -= 1
            if not self._open_requests[session_id]:
                del self._open_requests[session_id]

    def _note_use(self, session_id: str) -> None:
        self._unrecorded.add(session_id)
        self._last_uses[session_id] = self._clock.now()

    def get_idle_seconds(self, session_id: str) -> float | None:
        """Seconds since the last request, 0 while one is in flight; None if this process has handled none."""
        if session_id in self._open_requests:
            return 0.0
        last_use = self._last_uses.get(session_id)
        return None if last_use is None else (self._clock.now() - last_use).total_seconds()

    # -- what is recorded every few minutes --

    def list_used(self, open_sessions: Collection[str]) -> Collection[str]:
        """The open sessions that were used since `mark_recorded`. All others are forgotten."""
        self._unrecorded.intersection_update(open_sessions)
        for session_id in self._last_uses.keys() - open_sessions - self._open_requests.keys():
            del self._last_uses[session_id]
        return self._unrecorded | (self._open_requests.keys() & set(open_sessions))

    def mark_recorded(self, session_ids: Collection[str]) -> None:
        self._unrecorded.difference_update(session_ids)

    # -- sessions that ended in the store --

    def add_ended(self, session_ids: Collection[str]) -> None:
        self._ended.extend(session_ids)

    def pop_ended(self) -> Sequence[str]:
        """The sessions that are no longer stored, and whose transports are still open."""
        ended, self._ended = self._ended, []
        return ended
